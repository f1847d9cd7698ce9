"""A tap on the line of a session: every message is seen as it passes, both ways.

It knows the shapes of messages and which questions are open; what they mean is its listener's.
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
SHOWN: Final = 2000
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
    """Whoever follows the conversation."""

    def noticed(self, method: str, params: JsonValue) -> None:
        """The server told something."""
        ...

    def answered(self, question: ObservedRequest, result: JsonValue, error: JsonValue) -> None:
        """A question of the server got its answer: a result, or an error."""
        ...

    def strayed(self, text: str, *, is_json: bool) -> None:
        """Something came that is no message to us."""
        ...

    async def room(self) -> None:
        """Wait until more may be read."""
        ...


class Tap:
    """Follows one conversation, over one connection after another."""

    def __init__(self, listener: MessageObserver) -> None:
        self._listener = listener
        self._open: dict[Id, ObservedRequest] = {}
        self._asked: dict[Id, str] = {}
        self.pid: int | None = None

    @property
    def open_questions(self) -> Sequence[ObservedRequest]:
        """What the server waits for."""
        return list(self._open.values())

    def forget_all(self) -> None:
        """The turn that asked is over."""
        self._open.clear()

    def on(self, connector: Connector) -> Connector:
        """The same way to a server, with this tap on the line."""

        async def dial(tasks: BackgroundTasks) -> Transport:
            transport = await connector.dial(tasks)
            self._open.clear()
            self._asked.clear()
            if isinstance(transport, ChildTransport):
                self.pid = getattr(transport, "pid", None)
                return TappedChild(transport, self)
            return TappedTransport(transport, self)

        return Connector(dial, connector.can_return, connector.is_local)

    async def room(self) -> None:
        """Wait until more may be read."""
        await self._listener.room()

    def incoming(self, frame: Frame) -> Frame | None:
        """Look at a message of the server; gives what the client is to see of it, if anything."""
        message = envelope.decode(frame)
        match message:
            case NotificationMessage():
                params = _document(message.params)
                if message.method == "serverRequest/resolved" and isinstance(params, dict):
                    self._open.pop(params.get("requestId", ""), None)
                self._listener.noticed(message.method, params)
            case RequestMessage():
                return self._on_call(message, frame)
            case ResponseMessage():
                return self._on_answer(message, frame)
            case ErrorMessage():
                self._take_asked(message.id, frame)
            case MalformedMessage() if message.id is None:
                self._listener.strayed(_text(frame), is_json=_is_json(frame))
                return None
            case _:
                pass  # a request that cannot be read: the client refuses it by its id
        return frame

    def outgoing(self, frame: bytes) -> bytes:
        """Look at a message to the server; gives what it is sent."""
        message = envelope.decode(frame)
        match message:
            case RequestMessage():
                self._asked[message.id] = message.method
            case ResponseMessage():
                if (question := self._open.pop(message.id, None)) is not None:
                    self._listener.answered(question, _document(message.result), None)
            case ErrorMessage():
                return self._on_refusal(message, frame)
            case _:
                pass
        return frame

    def _on_call(self, call: RequestMessage, frame: Frame) -> Frame:
        params = _document(call.params)
        self._open[call.id] = ObservedRequest(call.id, call.method, params)
        if call.method == "item/tool/call" and isinstance(params, dict) and "tool" not in params:
            # Older servers name the tool otherwise, and leave out arguments that are none.
            named = {"arguments": {}, **params, "tool": params.get("name")}
            return envelope.encode_call(call.id, call.method, named)
        return frame

    def _on_refusal(self, failure: ErrorMessage, frame: bytes) -> bytes:
        question = self._open.pop(failure.id, None)
        if question is None:
            return frame
        error = failure.error
        if question.method not in SERVER_REQUESTS:
            error = ErrorObject(METHOD_NOT_FOUND, f"method not found: {question.method}")
            frame = envelope.encode_failure(failure.id, error)
        self._listener.answered(question, None, msgspec.to_builtins(error))
        return frame

    def _on_answer(self, answer: ResponseMessage, frame: Frame) -> Frame | None:
        method = self._take_asked(answer.id, frame)
        if method not in _PAYLOADS:
            return frame
        name, kind = _PAYLOADS[method]
        document = _document(answer.result)
        owner = document.get(name) if isinstance(document, dict) else None
        id_ = owner.get("id") if isinstance(owner, dict) else None
        if isinstance(id_, str) and id_:
            return frame
        data = {"kind": kind, "payload": document}
        error = ErrorObject(INTERNAL, f"the answer names no {name}", data)
        return envelope.encode_failure(answer.id, error)

    def _take_asked(self, id_: Id, frame: Frame) -> str | None:
        method = self._asked.pop(id_, None)
        if method is None:
            self._listener.strayed(_text(frame), is_json=True)
        return method


class TappedTransport:
    """Passes frames on and lets the tap see them."""

    def __init__(self, transport: Transport, tap: Tap) -> None:
        self.peer = transport.peer
        # Text is mended first, or a line with half a character in it would pass for no message.
        self._transport = MendedTransport(transport)
        self._tap = tap

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next messages that are meant for the client."""
        while frames := await self._transport.receive():
            seen = [passed for frame in frames if (passed := self._tap.incoming(frame)) is not None]
            await self._tap.room()
            if seen:
                return seen
        return ()

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send messages in order."""
        await self._transport.send([self._tap.outgoing(frame) for frame in frames])

    async def close(self) -> None:
        """Hang up."""
        await self._transport.close()


class TappedChild(TappedTransport):
    """The same for a server that is a process of ours."""

    def __init__(self, transport: Transport, tap: Tap) -> None:
        super().__init__(transport, tap)
        if not isinstance(transport, ChildTransport):
            raise TypeError(f"{transport.peer} is no process")
        self._child: ChildTransport = transport

    @property
    def exit_code(self) -> int | None:
        """The server's exit code; `None` while it runs."""
        return self._child.exit_code

    @property
    def stderr_tail(self) -> str:
        """What the server said on stderr lately."""
        return self._child.stderr_tail


def _document(raw: msgspec.Raw | None) -> JsonValue:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # half a character, say: the client mends what it is given


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
    return head[:SHOWN].decode("utf-8", "replace")
