"""Limits of one message of an MCP server, checked before it is decoded.

The limits are the same for stdio and HTTP. A message over a limit, or a malformed one, becomes an
error for the request that it answers: the request fails at once, and the connection stays open.
"""

from __future__ import annotations

from typing import Final

import msgspec

from treadle.support.text.json_members import Id, is_id, naming_members
from treadle.support.text.json_text import MAX_NESTING, has_more_values, is_nested_deeper

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of one message, after decompression."""

MAX_VALUES: Final = 200_000
"""The most values of one message: lists, objects and their members."""

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
"""The most bytes of a document of an authorization server: its metadata, or a token."""

MAX_DOCUMENT_VALUES: Final = 10_000
"""The most values of such a document, which the SDK validates on the event loop."""

DOCUMENT_SECONDS: Final = 30.0
"""The longest time for such a document, and for each wait of the request for it."""

MAX_QUESTIONS: Final = 50
"""The most elicitations of a server during one call."""

MAX_UNREAD: Final = 2_000
"""The most messages that wait for a server to read them; the SDK holds a task for each answer."""

LONG_MESSAGE_BYTES: Final = 256 * 1024
"""Larger messages are checked and decoded in a thread."""

MAX_WORKERS: Final = 1
"""How many messages of one server are decoded in parallel."""

OVER_LIMIT: Final = "exceeds a limit"
MALFORMED: Final = "does not fit the protocol"

TOO_LONG: Final = f"{OVER_LIMIT}: it has more than {MAX_MESSAGE_BYTES} bytes"
COMPRESSED: Final = f"{MALFORMED}: it is compressed, which was not requested"

_PARSE_ERROR: Final = -32700


def limit_error(message: bytes, max_values: int = MAX_VALUES) -> str | None:
    """The reason why a message is not decoded, or `None` if it may be; takes linear time."""
    if len(message) > MAX_MESSAGE_BYTES:
        return TOO_LONG
    if has_more_values(message, max_values):
        return f"{OVER_LIMIT}: it has more than {max_values} values"
    if is_nested_deeper(message):
        return f"{OVER_LIMIT}: it is nested deeper than {MAX_NESTING} levels"
    return None


def error_for(reason: str, message: bytes, request_id: Id | None = None) -> bytes | None:
    """Encode an error for the request that a message answers; the start of the message suffices.

    `request_id` is the request of the HTTP response, if there is one. Returns `None` if the message
    is not an answer.
    """
    members = naming_members(message)
    own_id = members.get("id")
    id_ = request_id if request_id is not None else own_id if is_id(own_id) else None
    if id_ is None or "method" in members:
        return None
    return error_answer(reason, id_)


def error_answer(reason: str, request_id: Id) -> bytes:
    """Encode the error of a request whose answer is not decoded."""
    error = {"code": _PARSE_ERROR, "message": reason}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def is_own_error(message: str) -> bool:
    """Whether this module created an error message."""
    return message.startswith((OVER_LIMIT, MALFORMED))
