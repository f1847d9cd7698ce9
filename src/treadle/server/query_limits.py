"""How much a client may ask a list to look for at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.errors import InvalidInput

MAX_TERM_CHARACTERS: Final = 4096
MAX_ALTERNATIVES: Final = 1000


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
    if values is not None and len(values) > MAX_ALTERNATIVES:
        limit = f"at most {MAX_ALTERNATIVES} entries"
        raise InvalidInput(path, f"{path} must have {limit}, not {len(values)}")
