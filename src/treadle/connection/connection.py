"""Requests, responses and notifications in both directions over one transport.

Owns the life of a conversation: one task reads, one writes, handlers run beside them. Knows no
method by name. However the connection ends, every open request is settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Final, Generic, TypeAlias, TypeGuard, TypeVar

import msgspec

from treadle.connection.context import S
from treadle.connection.dispatch import MAX_IN_FLIGHT, Dispatcher
from treadle.connection.outbound import MAX_OUTBOUND_BYTES, Outbound
from treadle.connection.router import Router
from treadle.jsonrpc import envelope
from treadle.jsonrpc.envelope import (
    ErrorMessage,
    Id,
    MalformedMessage,
    Message,
    NotificationMessage,
    RequestMessage,
    ResponseMessage,
)
from treadle.jsonrpc.errors import InvalidRequest, RpcError
from treadle.jsonrpc.framing import Frame, frame_size
from treadle.protocol.base import JsonValue
from treadle.protocol.method import Notification, Request
from treadle.support.clock import NowMs
from treadle.transport.base import (
    CountingTransport,
    DirectTransport,
    GuardedTransport,
    Transport,
    TransportError,
)

P = TypeVar("P")
R = TypeVar("R")

Answering: TypeAlias = Coroutine[None, None, R]

GRACE_SECONDS: Final = 1.0
FLUSH_SECONDS: Final = 0.5
UNREAD_SECONDS: Final = 10.0
"""How long the reader of a pipe may read nothing before the rest of the output is dropped."""

MAX_READ_AHEAD: Final = MAX_OUTBOUND_BYTES
MAX_STEP_FRAMES: Final = 32
"""How many requests of one peer are started before other peers get their turn."""

MAX_STRANGER_BYTES: Final = 64 * 1024
"""The limit on outgoing data for a peer that has not sent `initialize`."""

MAX_DROP_WARNINGS: Final = 10
"""How many dropped frames of one peer are logged as warnings."""

logger = logging.getLogger(__name__)


class ConnectionLost(TransportError):
    """The peer closed the connection before it answered."""


class Connection(Generic[S]):
    """One conversation; `session` is the owner's state for the peer."""

    def __init__(
        self,
        transport: Transport,
        router: Router[S],
        session: S,
        *,
        stamp: NowMs | None = None,
        ids: Iterator[int] | None = None,
        on_start: Callable[[], None] | None = None,
        on_notice: Callable[[NotificationMessage], None] | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self.session: Final = session
        self._transport = transport
        self._stamp = stamp
        self._on_start = on_start
        # A client has only this connection, which cannot starve others.
        self._is_alone = on_notice is not None
        direct = transport if self._is_alone and isinstance(transport, DirectTransport) else None
        self._direct = direct
        self._guarded = transport if _is_stranger(transport) else None
        self._outbound = Outbound(
            MAX_OUTBOUND_BYTES if self._guarded is None else MAX_STRANGER_BYTES,
            send_now=direct.send_now if direct else None,
        )
        self._dispatcher = Dispatcher(
            self,
            router,
            outbound=self._outbound,
            spawn=self._spawn,
            max_in_flight=max_in_flight,
        )
        # A client receives every notification, including those that are not in the table.
        self._on_notice = on_notice or self._dispatcher.on_notice
        # A server numbers its requests across all clients, so that they agree on the ids.
        self._ids = ids or count()
        self._open: dict[Id, asyncio.Future[ResponseMessage]] = {}
        self._tasks = asyncio.TaskGroup()
        self._handlers: set[asyncio.Task[None]] = set()
        self._companions: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._farewell: Callable[[], Awaitable[None]] | None = None
        self._is_lost = False
        self._dropped = 0
        self._is_over = False

    @property
    def peer(self) -> str:
        """The name of the other end, for logs."""
        return self._transport.peer

    async def run(self) -> None:
        """Run until the peer closes the connection, or `finish` or `close` is called."""
        try:
            async with self._tasks:
                writer = self._tasks.create_task(self._write(), name=f"write {self.peer}")
                self._reader = self._tasks.create_task(self._read(), name=f"read {self.peer}")
                if self._on_start is not None:
                    self._on_start()
                if self._is_lost:
                    self._reader.cancel()
                try:
                    await asyncio.wait({self._reader})
                    self._settle()
                    await self._finish_handlers()
                finally:
                    self._is_over = True
                    self._settle()
                    self._outbound.close()
                    for task in (self._reader, *self._handlers, *self._companions):
                        task.cancel()
                    await self._flush(writer)
                    writer.cancel()
        finally:
            await self._transport.close()

    def introduce_peer(self) -> None:
        """Lift the limits for strangers: the peer has sent `initialize`."""
        guarded, self._guarded = self._guarded, None
        if guarded is not None:
            self._outbound.set_limit(MAX_OUTBOUND_BYTES)
            guarded.introduce()

    def finish(self, farewell: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop reading, answer the open requests, then hang up.

        Before that, within the grace period, `farewell` may send the peer last notifications.
        """
        self._farewell = farewell or self._farewell
        self._settle()
        if self._reader is not None:
            self._reader.cancel()

    async def close(self) -> None:
        """Hang up."""
        await self._transport.close()

    async def request(self, method: Request[P, R], params: P, *, id_: Id | None = None) -> R:
        """Send a request and wait for its response.

        Raises:
            RpcError: the peer returned an error.
            ConnectionLost: it closed the connection first.
        """
        await self._outbound.room()
        return await self.begin_request(method, params, id_=id_)

    async def request_raw(self, method: str, params: JsonValue) -> msgspec.Raw:
        """Send a request and wait for its response, which the caller decodes.

        Raises:
            RpcError: the peer returned an error.
            ConnectionLost: it closed the connection first.
        """
        if not self._outbound.has_room:
            await self._outbound.room()
        id_, answer = self._put_request(method, params, None)
        try:
            return (await answer).result
        finally:
            self._open.pop(id_, None)

    def begin_request(
        self, method: Request[P, R], params: P, *, id_: Id | None = None
    ) -> Answering[R]:
        """Queue a request at once, in order with the notifications; await the response later.

        Raises:
            ConnectionLost: the peer closed the connection.
        """
        return self._answer(method, *self._put_request(method.method, params, id_))

    def _put_request(
        self, method: str, params: JsonValue, id_: Id | None
    ) -> tuple[Id, asyncio.Future[ResponseMessage]]:
        if self._is_lost:
            raise ConnectionLost(f"{self.peer} closed the connection")
        id_ = next(self._ids) if id_ is None else id_
        call = envelope.encode_request(id_, method, params)
        answer: asyncio.Future[ResponseMessage] = asyncio.get_running_loop().create_future()
        self._open[id_] = answer
        self._outbound.put(call)
        return id_, answer

    async def _answer(
        self, method: Request[P, R], id_: Id, answer: asyncio.Future[ResponseMessage]
    ) -> R:
        try:
            return method.result_decoder.decode((await answer).result)
        finally:
            self._open.pop(id_, None)

    async def notify(self, method: Notification[P], params: P) -> None:
        """Send a notification; waits only while the peer is far behind in reading."""
        await self._outbound.room()
        stamp = self._stamp() if self._stamp else None
        self._outbound.put(envelope.encode_notification(method.method, params, stamp))

    def notify_nowait(self, method: Notification[P], params: P) -> None:
        """Queue a notification at once, if it must directly follow a response."""
        stamp = self._stamp() if self._stamp else None
        self._outbound.put(envelope.encode_notification(method.method, params, stamp))

    async def room(self) -> None:
        """Wait until the peer has read enough to be sent more."""
        await self._outbound.room()

    async def post(self, method: str, params: object, *, at_ms: int, seq: int | None) -> None:
        """Send a notification about a past event, with its original time and number."""
        if not self._outbound.has_room:  # checked here too: this runs once for every delta
            await self._outbound.room()
        self._outbound.put(envelope.encode_notification(method, params, at_ms, seq))

    async def post_encoded(self, frame: bytes) -> None:
        """Send a notification that is encoded already, for several peers at once."""
        if not self._outbound.has_room:
            await self._outbound.room()
        self._outbound.put(frame)

    @property
    def in_flight(self) -> int:
        """The number of the peer's requests that are not answered yet."""
        return self._dispatcher.in_flight

    def spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None] | None:
        """Run a task for as long as the conversation lasts; `None` if it is over.

        Only while `run` runs: before that, no task group owns it.
        """
        if self._is_over:
            work.close()
            return None
        task = self._tasks.create_task(work, name=name)
        self._companions.add(task)
        task.add_done_callback(self._companions.discard)
        return task

    async def _read(self) -> None:
        if self._direct is not None:
            self._direct.pour_into(self._take_all)
        try:
            while frames := await self._next_frames():
                if self._is_alone:
                    self._take_all(frames)
                    continue
                # Frames that were already buffered must not keep other connections from running.
                for start in range(0, len(frames), MAX_STEP_FRAMES):
                    if not self._outbound.has_room:
                        await self._outbound.room()
                    self._take_all(frames[start : start + MAX_STEP_FRAMES])
                    await asyncio.sleep(0)
        except TransportError as error:
            self._log_loss(error)

    def _take_all(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._take(envelope.decode(frame, is_bounded=not self._is_alone))

    async def _next_frames(self) -> list[Frame]:
        """Return the next frames of the peer; empty at the end.

        A peer that does not read its responses gets no further ones, which bounds the memory. A
        little more is still read from it, to detect whether it has closed the connection.
        """
        frames = list(await self._transport.receive())
        while frames and not self._outbound.has_room:
            ahead = MAX_READ_AHEAD if self._guarded is None else 0
            if sum(map(frame_size, frames)) > ahead:
                await self._outbound.room()
                break
            more = await self._read_until_room()
            if more is not None and not more:
                return []
            frames += more or ()
        return frames

    async def _read_until_room(self) -> Sequence[Frame] | None:
        """Read once more; `None` if there was room before a frame arrived."""
        room = self._tasks.create_task(self._outbound.room())
        more = self._tasks.create_task(_receive(self._transport))
        try:
            await asyncio.wait({room, more}, return_when=asyncio.FIRST_COMPLETED)
            return more.result() if more.done() else None
        finally:
            room.cancel()
            more.cancel()

    async def _write(self) -> None:
        try:
            await self._outbound.write_to(self._transport)
        except TransportError as error:
            self._log_loss(error)
            self._outbound.close()
            await self._transport.close()

    def _log_loss(self, error: TransportError) -> None:
        # A stranger can break connections as often as it likes.
        level = logging.INFO if self._guarded is None else logging.DEBUG
        logger.log(level, "connection lost", extra={"peer": self.peer, "reason": str(error)})

    def _take(self, message: Message) -> None:
        match message:
            case NotificationMessage():
                self._on_notice(message)
            case RequestMessage():
                self._dispatcher.on_call(message)
            case ResponseMessage():
                self._settle_one(message.id, message)
            case ErrorMessage():
                self._settle_one(message.id, RpcError.from_object(message.error))
            case MalformedMessage():
                self._on_malformed(message)

    def _on_malformed(self, message: MalformedMessage) -> None:
        self._dropped += 1
        # A program that does not speak the protocol may print lines as fast as it can.
        is_loud = self._guarded is None and self._dropped <= MAX_DROP_WARNINGS
        level = logging.WARNING if is_loud else logging.DEBUG
        logger.log(level, "dropped a frame", extra={"peer": self.peer, "reason": message.reason})
        # Safe between two symmetric peers: an error with the id null is never answered.
        if message.id is not None or message.is_unnamed:
            unnamed = "; its id cannot be repeated: expected at most 4096 bytes of text"
            reason = f"Invalid request: {message.reason}{unnamed if message.is_unnamed else ''}"
            self._dispatcher.fail(message.id, InvalidRequest(reason, method=message.method))

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        if self._is_over:
            work.close()
            return
        task = self._tasks.create_task(work, name=name)
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    def _settle_one(self, id_: Id, outcome: ResponseMessage | RpcError) -> None:
        future = self._open.pop(id_, None)
        if future is None or future.done():
            return  # a response to no request of ours, or a late one
        if isinstance(outcome, ResponseMessage):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    def _settle(self) -> None:
        self._is_lost = True
        for future in self._open.values():
            if not future.done():
                future.set_exception(ConnectionLost(f"{self.peer} closed the connection"))
                future.exception()  # retrieved here: the caller may be cancelled already
        self._open.clear()

    async def _flush(self, writer: asyncio.Task[None]) -> None:
        """Wait for the last frames to be written; a peer on a pipe may read them slowly."""
        transport = self._transport
        if not isinstance(transport, CountingTransport):
            await asyncio.wait({writer}, timeout=FLUSH_SECONDS)
            return
        before = -1
        while not writer.done() and before != transport.written:
            before = transport.written
            await asyncio.wait({writer}, timeout=UNREAD_SECONDS)

    async def _finish_handlers(self) -> None:
        """Answer the requests received before the end of input, within the grace period."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while self._handlers:
                    await asyncio.wait(self._handlers)
                if self._farewell is not None:
                    async with asyncio.timeout(FLUSH_SECONDS):
                        await self._farewell()


def _is_stranger(transport: Transport) -> TypeGuard[GuardedTransport]:
    return isinstance(transport, GuardedTransport) and transport.is_stranger


async def _receive(transport: Transport) -> Sequence[Frame]:
    try:
        return await transport.receive()
    except TransportError:
        return ()  # a broken connection ends the input like any other
