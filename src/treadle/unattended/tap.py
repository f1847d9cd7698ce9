"""A tap on a session's connection that observes every message, both ways.

It knows the shapes of messages and which server requests are open; its observer interprets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from treadle.client._compat.surrogates import MendedTransport
from treadle.client._runtime.connection import ChildTransport
from treadle.client.connectors import Connector
from treadle.jsonrpc import envelope
from treadle.jsonrpc.envelope import (
    ErrorMessage,
    Id,
    MalformedMessage,
    NotificationMessage,
    RequestMessage,
    ResponseMessage,
)
from treadle.jsonrpc.errors import ErrorObject
from treadle.jsonrpc.framing import Frame, Oversized
from treadle.protocol.base import JsonValue
from treadle.protocol.server_requests import SERVER_REQUESTS
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.transport.base import Transport
from treadle.unattended.errors import INVALID_THREAD, INVALID_TURN

METHOD_NOT_FOUND: Final = -32601
INTERNAL: Final = -32603
MAX_TEXT_BYTES: Final = 2000
_PAYLOADS: Final = {
    "thread/start": ("thread", INVALID_THREAD),
    "thread/resume": ("thread", INVALID_THREAD),
    "turn/start": ("turn", INVALID_TURN),
}


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """A request of the server."""

    id: Id
    method: str
    params: JsonValue


class MessageObserver(Protocol):
    """The observer of a session's messages."""

    def noticed(self, method: str, params: JsonValue) -> None:
        """Handle a notification of the server."""
        ...

    def answered(self, question: ObservedRequest, result: JsonValue, error: JsonValue) -> None:
        """Handle the answer to a server request: a result, or an error."""
        ...

    def strayed(self, text: str, *, is_json: bool) -> None:
        """Handle input that is not a message for this client."""
        ...

    async def room(self) -> None:
        """Wait until more may be read."""
        ...


class Tap:
    """Observes one session over all its connections."""

    def __init__(self, observer: MessageObserver) -> None:
        self._observer = observer
        self._open: dict[Id, ObservedRequest] = {}
        self._sent: dict[Id, str] = {}
        self.pid: int | None = None

    @property
    def open_requests(self) -> Sequence[ObservedRequest]:
        """The server requests without an answer."""
        return list(self._open.values())

    def forget_all(self) -> None:
        """Drop the open server requests of a turn that is over."""
        self._open.clear()

    def on(self, connector: Connector) -> Connector:
        """Return a connector whose connections have this tap."""

        async def dial(tasks: BackgroundTasks) -> Transport:
            transport = await connector.dial(tasks)
            self._open.clear()
            self._sent.clear()
            if isinstance(transport, ChildTransport):
                self.pid = getattr(transport, "pid", None)
                return TappedChild(transport, self)
            return TappedTransport(transport, self)

        return Connector(dial, connector.can_return, connector.is_local)

    async def room(self) -> None:
        """Wait until more may be read."""
        await self._observer.room()

    def incoming(self, frame: Frame) -> Frame | None:
        """Observe a message of the server; return the client's frame, or `None` to drop it."""
        message = envelope.decode(frame)
        match message:
            case NotificationMessage():
                params = _document(message.params)
                if message.method == "serverRequest/resolved" and isinstance(params, dict):
                    self._open.pop(params.get("requestId", ""), None)
                self._observer.noticed(message.method, params)
            case RequestMessage():
                return self._on_call(message, frame)
            case ResponseMessage():
                return self._on_answer(message, frame)
            case ErrorMessage():
                self._take_sent(message.id, frame)
            case MalformedMessage() if message.id is None:
                self._observer.strayed(_text(frame), is_json=_is_json(frame))
                return None
            case _:
                pass  # a request that cannot be read: the client refuses it by its id
        return frame

    def outgoing(self, frame: bytes) -> bytes:
        """Observe a message to the server; return the frame to send."""
        message = envelope.decode(frame)
        match message:
            case RequestMessage():
                self._sent[message.id] = message.method
            case ResponseMessage():
                if (question := self._open.pop(message.id, None)) is not None:
                    self._observer.answered(question, _document(message.result), None)
            case ErrorMessage():
                return self._on_refusal(message, frame)
            case _:
                pass
        return frame

    def _on_call(self, call: RequestMessage, frame: Frame) -> Frame:
        params = _document(call.params)
        self._open[call.id] = ObservedRequest(call.id, call.method, params)
        if call.method == "item/tool/call" and isinstance(params, dict) and "tool" not in params:
            # Older servers name the tool `name` and omit empty arguments.
            current = {"arguments": {}, **params, "tool": params.get("name")}
            return envelope.encode_request(call.id, call.method, current)
        return frame

    def _on_refusal(self, failure: ErrorMessage, frame: bytes) -> bytes:
        question = self._open.pop(failure.id, None)
        if question is None:
            return frame
        error = failure.error
        if question.method not in SERVER_REQUESTS:
            error = ErrorObject(METHOD_NOT_FOUND, f"method not found: {question.method}")
            frame = envelope.encode_error(failure.id, error)
        self._observer.answered(question, None, msgspec.to_builtins(error))
        return frame

    def _on_answer(self, answer: ResponseMessage, frame: Frame) -> Frame | None:
        method = self._take_sent(answer.id, frame)
        if method not in _PAYLOADS:
            return frame
        name, kind = _PAYLOADS[method]
        document = _document(answer.result)
        owner = document.get(name) if isinstance(document, dict) else None
        id_ = owner.get("id") if isinstance(owner, dict) else None
        if isinstance(id_, str) and id_:
            return frame
        data = {"kind": kind, "payload": document}
        error = ErrorObject(INTERNAL, f"response has no {name} id", data)
        return envelope.encode_error(answer.id, error)

    def _take_sent(self, id_: Id, frame: Frame) -> str | None:
        method = self._sent.pop(id_, None)
        if method is None:
            self._observer.strayed(_text(frame), is_json=True)
        return method


class TappedTransport:
    """A transport that shows every frame to a tap."""

    def __init__(self, transport: Transport, tap: Tap) -> None:
        self.peer = transport.peer
        # Text is repaired first: a line with half a character in it would not decode as a message.
        self._transport = MendedTransport(transport)
        self._tap = tap

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next messages for the client."""
        while frames := await self._transport.receive():
            visible = [
                passed for frame in frames if (passed := self._tap.incoming(frame)) is not None
            ]
            await self._tap.room()
            if visible:
                return visible
        return ()

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send messages in order."""
        await self._transport.send([self._tap.outgoing(frame) for frame in frames])

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()


class TappedChild(TappedTransport):
    """A tapped transport to a server that is a child process."""

    def __init__(self, transport: Transport, tap: Tap) -> None:
        super().__init__(transport, tap)
        if not isinstance(transport, ChildTransport):
            raise TypeError(f"{transport.peer} is not a process")
        self._child: ChildTransport = transport

    @property
    def exit_code(self) -> int | None:
        """The server's exit code; `None` while it runs."""
        return self._child.exit_code

    @property
    def stderr_tail(self) -> str:
        """The end of the server's stderr."""
        return self._child.stderr_tail


def _document(raw: msgspec.Raw | None) -> JsonValue:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # half a character, for example: the client repairs its own copy


def _is_json(frame: Frame) -> bool:
    if isinstance(frame, Oversized):
        return False
    try:
        msgspec.json.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _text(frame: Frame) -> str:
    head = frame.head if isinstance(frame, Oversized) else frame
    return head[:MAX_TEXT_BYTES].decode("utf-8", "replace")
