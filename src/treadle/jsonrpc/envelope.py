"""The four kinds of JSON-RPC message, and their encoding and decoding. No state, no i/o.

Decoding is strict about the members that identify a request and lenient about the rest: a frame
that cannot be answered becomes `MalformedMessage`, never an exception.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from treadle.jsonrpc.errors import ErrorObject
from treadle.jsonrpc.framing import Frame, Oversized
from treadle.protocol.base import JsonValue
from treadle.support.text.json_members import UNREADABLE, is_id, is_text, naming_members
from treadle.support.text.json_text import (
    MAX_CONTAINERS,
    MAX_NESTING,
    MAX_STRINGS,
    encode_json,
    is_crowded,
    is_nested_deeper,
)

Id: TypeAlias = str | int


class RequestMessage(msgspec.Struct, frozen=True, gc=False):
    """A request: the peer waits for one response to `id`."""

    id: Id
    method: str
    params: Raw | None


class NotificationMessage(msgspec.Struct, frozen=True, gc=False):
    """A notification; `seq` is its number among the events of its thread, if the peer counts."""

    method: str
    params: Raw | None
    seq: int | None = None


class ResponseMessage(msgspec.Struct, frozen=True, gc=False):
    """The result of a request that we sent."""

    id: Id
    result: Raw


class ErrorMessage(msgspec.Struct, frozen=True, gc=False):
    """The error response to a request that we sent."""

    id: Id
    error: ErrorObject


class MalformedMessage(msgspec.Struct, frozen=True, gc=False):
    """A frame that cannot be read; `id` is set only if the frame still shows its request.

    A request whose id cannot be repeated has `is_unnamed` set: its response has the id null.
    """

    reason: str
    id: Id | None = None
    method: str | None = None
    is_unnamed: bool = False


Message: TypeAlias = (
    RequestMessage | NotificationMessage | ResponseMessage | ErrorMessage | MalformedMessage
)


class _Envelope(msgspec.Struct):
    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: JsonValue = UNSET  # any shape counts: an error that we cannot read is still one
    seq: JsonValue = None  # any shape, as above: a wrong one must not cost the message


class _EncodedRequest(msgspec.Struct, omit_defaults=True):
    method: str
    id: Id
    params: JsonValue = None


class _EncodedNotification(msgspec.Struct, omit_defaults=True, rename="camel"):
    method: str
    params: JsonValue = None
    emitted_at_ms: int | None = None
    seq: int | None = None


class _EncodedResponse(msgspec.Struct):
    id: Id
    result: JsonValue


class _EncodedError(msgspec.Struct):
    error: ErrorObject
    id: Id | None


_decoder: Final = msgspec.json.Decoder(_Envelope)
_NULL: Final = Raw(b"null")


def decode(frame: Frame, *, is_bounded: bool = False) -> Message:
    """Classify one frame; a server bounds what clients send, a client trusts its server."""
    if isinstance(frame, Oversized):
        bound = f": at most {frame.limit} bytes before `initialize`" if frame.limit else ""
        return _malformed(f"a message of {frame.size} bytes is too large{bound}", frame.head)
    if is_bounded and is_crowded(frame):
        bound = f"{MAX_CONTAINERS} arrays and objects, or {MAX_STRINGS} strings or other values"
        return _malformed(f"a message has more than {bound}", frame)
    if is_nested_deeper(frame):
        return _malformed(f"nested deeper than {MAX_NESTING} levels", frame)
    try:
        envelope = _decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError) as cause:
        return _malformed(str(cause) or "out of memory", frame)
    id_, method, params = envelope.id, envelope.method, envelope.params
    if method is not UNSET:
        raw = None if params is UNSET or params == _NULL else params
        if id_ is not UNSET:
            return RequestMessage(id_, method, raw)
        return NotificationMessage(method, raw, envelope.seq if type(envelope.seq) is int else None)
    if id_ is UNSET:
        return MalformedMessage("neither a method nor an id")
    result, error = envelope.result, envelope.error
    if error is not UNSET and (error is not None or result is UNSET):
        return ErrorMessage(id_, _read_error(error))
    if not isinstance(result, UnsetType):
        return ResponseMessage(id_, result)
    # A JavaScript client writes this when it answers with `undefined`; dropping it would leave
    # the request open forever.
    return ErrorMessage(id_, ErrorObject(-32600, "the peer answered with neither result nor error"))


def _read_error(error: JsonValue) -> ErrorObject:
    try:
        return msgspec.convert(error, ErrorObject)
    except msgspec.ValidationError:
        return ErrorObject(-32600, "the peer sent an invalid error object", error)


def encode_request(id_: Id, method: str, params: JsonValue) -> bytes:
    """Encode a request."""
    return encode_json(_EncodedRequest(method, id_, params))


def encode_notification(
    method: str, params: JsonValue, emitted_at_ms: int | None = None, seq: int | None = None
) -> bytes:
    """Encode a notification; `seq` is its number among the events of its thread."""
    return encode_json(_EncodedNotification(method, params, emitted_at_ms, seq))


def encode_response(id_: Id, result: JsonValue) -> bytes:
    """Encode a response."""
    return encode_json(_EncodedResponse(id_, result))


def encode_error(id_: Id | None, error: ErrorObject) -> bytes:
    """Encode an error response; the id is null if that of the request cannot be repeated."""
    return encode_json(_EncodedError(error, id_))


def _malformed(reason: str, frame: bytes) -> ErrorMessage | MalformedMessage:
    """Find the request in the readable part, so that its sender does not wait forever.

    The sender of a broken request gets an error, and so does the receiver of a broken response.
    """
    members = naming_members(frame)
    id_, method = members.get("id"), members.get("method")
    is_answer = "result" in members or "error" in members
    if not is_id(id_):
        is_string = id_ is UNREADABLE or isinstance(id_, str)
        return MalformedMessage(reason, is_unnamed=is_string and not is_answer)
    if "method" in members:
        return MalformedMessage(reason, id_, method if is_text(method) else None)
    if is_answer:
        return ErrorMessage(id_, ErrorObject(-32700, f"the peer's answer cannot be read: {reason}"))
    return MalformedMessage(reason)
