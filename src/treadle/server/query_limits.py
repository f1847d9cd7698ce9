"""How much one request of a client may hold, and a list may look for at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.errors import InvalidInput

MAX_TERM_CHARACTERS: Final = 4096
MAX_ALTERNATIVES: Final = 1000
MAX_PARTS: Final = 1000
"""The most parts of one input: texts, images, mentions."""
MAX_ITEMS: Final = 2000
"""The most items that one request adds to what the model sees."""
MAX_WORDS: Final = 32_768
"""The most words of one command."""


def check_term(term: str, path: str = "searchTerm") -> str:
    """Give a search term back if it can be looked for.

    Raises:
        InvalidInput: it is too long.
    """
    if len(term) > MAX_TERM_CHARACTERS:
        limit = f"at most {MAX_TERM_CHARACTERS} characters"
        raise InvalidInput(path, f"{path} must have {limit}, not {len(term)}")
    return term


def check_alternatives(values: Sequence[object] | None, path: str) -> None:
    """Check the values of a filter of which any may match.

    Raises:
        InvalidInput: there are too many.
    """
    check_count(values or (), path, MAX_ALTERNATIVES)


def check_count(values: Sequence[object], path: str, limit: int) -> None:
    """Check how many entries a request has: all of them are handled in one step.

    Raises:
        InvalidInput: there are too many.
    """
    if len(values) > limit:
        raise InvalidInput(path, f"{path} must have at most {limit} entries, not {len(values)}")
