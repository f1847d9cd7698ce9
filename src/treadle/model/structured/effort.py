"""Limits the work of one validation, whatever its schema."""

from __future__ import annotations

from typing import Final

MAX_STEPS: Final = 2_000_000
"""About half a second: a step is the time of one pattern state for one character."""


class SchemaTooComplex(Exception):
    """The validation exceeds its number of steps."""


class ValidationBudget:
    """Counts the steps of one validation, of all its parts together."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Count steps, before they are taken if their number is known.

        Raises:
            TooComplex: the limit is exceeded.
        """
        self._left -= steps
        if self._left < 0:
            raise SchemaTooComplex
