"""What one message of an MCP server may cost, checked before it is decoded.

The limits are the same for processes and addresses. A message beyond them, or one that cannot be
read, becomes an error of the request that it answers: that fails at once, and the connection stays.
"""

from __future__ import annotations

from typing import Final

import msgspec

from treadle.support.text.json_members import Id, is_id, naming_members
from treadle.support.text.json_text import MAX_NESTING, has_more_values, is_nested_deeper

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""How many bytes one message may have, after decompression."""

MAX_VALUES: Final = 200_000
"""How many values one message may have: lists and objects, and what is in them."""

MAX_QUESTIONS: Final = 50
"""How many questions a server may ask the user during one call."""

LONG_MESSAGE_BYTES: Final = 256 * 1024
"""Messages beyond this size are checked and decoded in a thread."""

MAX_WORKERS: Final = 1
"""How many messages of one server are decoded at once."""

BEYOND: Final = "exceeds a limit"
GARBLED: Final = "does not fit the protocol"

TOO_LONG: Final = f"{BEYOND}: it has more than {MAX_MESSAGE_BYTES} bytes"
COMPRESSED: Final = f"{GARBLED}: it is compressed, which was not asked for"

_PARSE_ERROR: Final = -32700


def fault_of(message: bytes) -> str | None:
    """Say why a message is not decoded, or None if it may be; takes linear time."""
    if len(message) > MAX_MESSAGE_BYTES:
        return TOO_LONG
    if has_more_values(message, MAX_VALUES):
        return f"{BEYOND}: it has more than {MAX_VALUES} values"
    if is_nested_deeper(message):
        return f"{BEYOND}: it is nested deeper than {MAX_NESTING} levels"
    return None


def refusal(reason: str, message: bytes, request_id: Id | None = None) -> bytes | None:
    """Write the error for the request that a message answers; its beginning is enough.

    `request_id` is the request that the connection belongs to, if it belongs to one. There is no
    error for what is not an answer.
    """
    members = naming_members(message)
    named = members.get("id")
    found = request_id if request_id is not None else named if is_id(named) else None
    if found is None or "method" in members:
        return None
    return error_answer(reason, found)


def error_answer(reason: str, request_id: Id) -> bytes:
    """Write the error of a request whose answer is not decoded."""
    error = {"code": _PARSE_ERROR, "message": reason}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def is_ours(message: str) -> bool:
    """Tell whether the message of an error says that an answer was not decoded."""
    return message.startswith((BEYOND, GARBLED))
