"""Limits on the size of client requests and on list filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from treadle.engine.errors import InvalidInput
from treadle.protocol.base import JsonValue
from treadle.protocol.collaboration import CollaborationMode
from treadle.support.text.json_text import encode_json

MAX_TERM_CHARACTERS: Final = 4096
MAX_ALTERNATIVES: Final = 1000
MAX_PARTS: Final = 1000
"""Maximum number of parts in one input: texts, images, mentions."""
MAX_ITEMS: Final = 2000
"""Maximum number of items that one request adds to the model context."""
MAX_INSTRUCTIONS_CHARACTERS: Final = 1024 * 1024
"""The length of instructions in the settings of a thread: each change stores them again."""
MAX_METADATA_BYTES: Final = 256 * 1024
"""The size of a client's metadata of a thread: every list of threads repeats it."""
MAX_WORDS: Final = 32_768
"""Maximum number of arguments of one command, and of its variables."""


def check_term(term: str, path: str = "searchTerm") -> str:
    """Return a search term, a name or a similar short text if it is short enough.

    Raises:
        InvalidInput: the text is too long.
    """
    _check_length(term, path, MAX_TERM_CHARACTERS)
    return term


def _check_length(text: str, path: str, limit: int) -> None:
    if len(text) > limit:
        raise InvalidInput(path, f"{path} must have at most {limit} characters, not {len(text)}")


def check_texts(params: msgspec.Struct) -> None:
    """Check the length of every text of a request that describes a thread or a turn.

    Raises:
        InvalidInput: a text is too long.
    """
    for field, path in zip(params.__struct_fields__, params.__struct_encode_fields__, strict=True):
        value = getattr(params, field)
        if type(value) is str and field != "cwd":  # folders have their own limits
            is_long = field.endswith("instructions")
            _check_length(
                value, path, MAX_INSTRUCTIONS_CHARACTERS if is_long else MAX_TERM_CHARACTERS
            )
    mode: CollaborationMode | None = getattr(params, "collaboration_mode", None)
    if mode is not None:
        path, settings = "collaborationMode.settings", mode.settings
        instructions = settings.developer_instructions or ""
        _check_length(settings.model, f"{path}.model", MAX_TERM_CHARACTERS)
        # The members of this object are spelled in snake_case.
        text_path = f"{path}.developer_instructions"
        _check_length(instructions, text_path, MAX_INSTRUCTIONS_CHARACTERS)
    _check_size(getattr(params, "config", None), "config", MAX_INSTRUCTIONS_CHARACTERS)
    _check_size(getattr(params, "metadata", None), "metadata", MAX_METADATA_BYTES)


def _check_size(value: JsonValue, path: str, limit: int) -> None:
    if value is not None and (size := len(encode_json(value))) > limit:
        raise InvalidInput(path, f"{path} must have at most {limit} bytes as JSON, not {size}")


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
