"""Limits on the size of client requests and on list filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.errors import InvalidInput

MAX_TERM_CHARACTERS: Final = 4096
MAX_ALTERNATIVES: Final = 1000
MAX_PARTS: Final = 1000
"""Maximum number of parts in one input: texts, images, mentions."""
MAX_ITEMS: Final = 2000
"""Maximum number of items that one request adds to the model context."""
MAX_WORDS: Final = 32_768
"""Maximum number of arguments of one command."""


def check_term(term: str, path: str = "searchTerm") -> str:
    """Return a search term, a name or a similar short text if it is short enough.

    Raises:
        InvalidInput: the text is too long.
    """
    if len(term) > MAX_TERM_CHARACTERS:
        limit = f"at most {MAX_TERM_CHARACTERS} characters"
        raise InvalidInput(path, f"{path} must have {limit}, not {len(term)}")
    return term


def check_alternatives(values: Sequence[object] | None, path: str) -> None:
    """Check the number of alternative values of a filter.

    Raises:
        InvalidInput: there are too many.
    """
    check_count(values or (), path, MAX_ALTERNATIVES)


def check_count(values: Sequence[object], path: str, limit: int) -> None:
    """Check the number of entries in a request: all of them are handled in one step.

    Raises:
        InvalidInput: there are too many.
    """
    if len(values) > limit:
        raise InvalidInput(path, f"{path} must have at most {limit} entries, not {len(values)}")
