"""How much work one check of an answer may be, whatever its schema asks for."""

from __future__ import annotations

from typing import Final

MAX_STEPS: Final = 2_000_000
"""About half a second: a step is about as long as a state of a pattern takes for a character."""


class SchemaTooComplex(Exception):
    """The work takes more steps than it may."""


class ValidationBudget:
    """Counts the steps of one check, of all its parts together."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Count steps, before they are taken where that can be said.

        Raises:
            TooComplex: there are not so many left.
        """
        self._left -= steps
        if self._left < 0:
            raise SchemaTooComplex
