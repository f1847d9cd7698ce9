"""A WebSocket after its handshake, at either end: frames, pings, backpressure and closing."""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from treadle.jsonrpc.framing import MAX_MESSAGE_BYTES, Frame, Oversized
from treadle.transport.admission import Stranger
from treadle.transport.base import Inbox, TransportError
from treadle.transport.websocket.frames import (
    GOING_AWAY,
    MESSAGE_TOO_BIG,
    NO_STATUS,
    NORMAL_CLOSURE,
    POLICY_VIOLATION,
    Binary,
    Close,
    Decoder,
    Encoder,
    Event,
    Ping,
    Violation,
)

CLOSE_TIMEOUT: Final = 1.0
"""Seconds a peer gets to answer our Close before the connection is cut."""

MAX_STEP_FRAMES: Final = 256
"""How many frames are read before other connections get their turn."""

_HIGH_WATER_BYTES: Final = 256 * 1024
_STRANGER_HIGH_WATER_BYTES: Final = 64 * 1024
_LARGE_BYTES: Final = 64 * 1024
MAX_LOUD_GARBAGE: Final = 10
# Why reading is paused: the inbox is full, or the frames that were read are not processed yet.
_FULL: Final = 1
_STEP: Final = 2
_FRIENDLY_CODES: Final = frozenset({NORMAL_CLOSURE, GOING_AWAY, NO_STATUS})

logger = logging.getLogger(__name__)


class Keepalive(Struct, frozen=True):
    """Sends a ping after `interval` seconds of silence; the peer is gone after `timeout` more."""

    interval: float = 20.0
    timeout: float = 20.0


class WebSocketTransport(asyncio.Protocol):
    """One message per text frame, over a connection that is already upgraded."""

    def __init__(
        self,
        peer: str,
        *,
        is_client: bool,
        keepalive: Keepalive | None,
        limit: int = MAX_MESSAGE_BYTES,
        stranger: Stranger | None = None,
    ) -> None:
        self.peer = peer
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._stranger = stranger
        self._decoder = Decoder(
            masked=not is_client,
            limit=stranger.message_bytes if stranger else limit,
            is_strict=stranger is not None,
        )
        self._deadline: asyncio.TimerHandle | None = None
        self._encoder = Encoder(_new_key if is_client else None)
        self._keepalive = keepalive
        self._stream: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        # Input: messages that were parsed and not yet taken, and how the input ended.
        self._inbox = Inbox(pause=self._on_full, resume=self._on_room)
        self._pauses = 0  # why reading is paused, one bit per reason
        self._is_ended = False
        self._failure: str | None = None
        # Output.
        self._writer: asyncio.Future[None] | None = None
        self._is_writing_paused = False
        self._is_close_sent = False
        self._close_code = NORMAL_CLOSURE
        self._pending_pong: bytes | None = None
        self._bytes_written = 0
        self._garbage = 0
        # Liveness: when bytes last arrived, and the bytes sent at the time of a ping.
        self._received_at = self._loop.time()
        self._sent_at_ping: int | None = None

    # The Transport interface.

    async def receive(self) -> Sequence[Frame]:
        """Return the messages since the last call; () at the end.

        Raises:
            TransportError: the connection broke.
        """
        if self._pauses & _STEP and self._decoder.is_strict:
            self._read_on()  # the previous message was processed
        return await self._inbox.take()

    @property
    def is_stranger(self) -> bool:
        """Whether the peer has not sent `initialize` yet."""
        return self._stranger is not None

    def introduce(self) -> None:
        """Lift the limits for strangers: the peer has sent a valid `initialize`."""
        stranger, self._stranger = self._stranger, None
        if stranger is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._require_stream().set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._decoder.relax(self._limit)
        if self._pauses & _STEP:
            self._loop.call_soon(self._read_on)
        stranger.on_initialize()

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write the messages; return once the peer has read all but a bounded rest.

        Raises:
            TransportError: the connection is closed or broke.
        """
        waiting: list[bytes] = []
        size = 0
        for frame in frames:
            # A message is written whole, so that a cancelled send cannot tear one apart.
            parts = self._encoder.text(frame)
            if len(frame) >= _LARGE_BYTES:
                # Copying it would cost more than the calls that joining it to others saves.
                await self._write_and_drain(b"".join(waiting), *parts)
                waiting, size = [], 0
                continue
            waiting += parts
            size += len(frame)
            if size >= _HIGH_WATER_BYTES:
                await self._write_and_drain(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            await self._write_and_drain(b"".join(waiting))

    async def close(self, code: int | None = None) -> None:
        """Send a Close, wait for the peer's for up to `CLOSE_TIMEOUT`, end the connection."""
        self._end(None)
        self._inbox.discard()
        if self._stream is None:
            return
        # Otherwise the peer's Close would never be read.
        self._resume_reading(_FULL)
        self._read_on()
        self._send_close(self._close_code if code is None else code)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._gone.wait()
        except TimeoutError:
            pass
        finally:
            self._stream.abort()
        await self._gone.wait()

    # The callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a WebSocket needs a stream")
        self._stream = transport
        stranger = self._stranger
        transport.set_write_buffer_limits(
            high=_STRANGER_HIGH_WATER_BYTES if stranger else _HIGH_WATER_BYTES
        )
        if stranger is not None:
            self._deadline = self._loop.call_later(stranger.seconds, self._expire)
        self._watch_silence()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        if self._sent_at_ping is not None:
            self._sent_at_ping = None
            self._watch_silence()
        self._take(data)

    def eof_received(self) -> None:
        # The reference ends TCP without a Close frame: not a failure in itself.
        torn = (
            "the peer closed the connection inside a message"
            if self._decoder.is_inside_message
            else None
        )
        self._end(torn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None if exc is None else f"the connection broke: {exc}")
        for timer in (self._timer, self._deadline):
            if timer is not None:
                timer.cancel()
        self._gone.set()
        self._wake_writer()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._send_pong()
        self._wake_writer()

    # Internals.

    def _take(self, data: bytes) -> None:
        """Decode some frames; the rest of the data waits until other connections had their turn."""
        frames: list[Frame] = []
        for event in self._decoder.feed(data, MAX_STEP_FRAMES):
            if isinstance(event, bytes | Oversized):
                frames.append(event)
            else:
                self._handle(event)
        self._send_pong()
        if frames:
            self._inbox.put(frames)
        if self._decoder.is_strict and frames:
            # One at a time: `receive` reads on after this one was processed.
            self._pause_reading(_STEP)
            if isinstance(frames[-1], Oversized):
                self._close_code = MESSAGE_TOO_BIG
                self._refuse_stranger("a message before `initialize` is too large")
        elif self._decoder.has_more:
            self._pause_reading(_STEP)
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """Continue where `_take` stopped."""
        if self._pauses & _STEP and not self._gone.is_set():
            self._resume_reading(_STEP)
            self._take(b"")

    def _refuse_stranger(self, reason: str) -> None:
        if self._stranger is not None:
            self._stranger.on_refusal(reason)
        self._end(reason)

    def _expire(self) -> None:
        reason = "no `initialize` in time"
        self._refuse_stranger(reason)
        self._send_close(POLICY_VIOLATION, reason)
        self._hang_up()

    def _send_pong(self) -> None:
        """Answer the newest ping, which RFC 6455 permits instead of answering each."""
        if self._pending_pong is not None and not self._is_writing_paused:
            self._write(self._encoder.pong(self._pending_pong))
            self._pending_pong = None

    def _handle(self, event: Event) -> None:
        match event:
            case Ping(payload):
                # Only the newest is answered: a peer that pings and never reads costs nothing.
                self._pending_pong = payload
            case Binary(size):
                self._log_garbage("binary message dropped", size=size)
            case Close(code, reason):
                friendly = code in _FRIENDLY_CODES
                self._end(None if friendly else f"the peer closed with {code}: {reason!r}")
                self._send_close(code)
                self._require_stream().close()
            case Violation(code, reason):
                if self._stranger is not None:
                    self._stranger.on_refusal(reason)
                self._log_garbage("framing violated", reason=reason)
                self._end(f"the peer violated the framing: {reason}")
                self._send_close(code, reason)
                self._hang_up()
            case _:  # a Pong needs no action beyond its arrival
                pass

    def _log_garbage(self, message: str, **fields: object) -> None:
        """Log the first few as warnings: a program without the protocol may send any number."""
        self._garbage += 1
        is_loud = self._stranger is None and self._garbage <= MAX_LOUD_GARBAGE
        level = logging.WARNING if is_loud else logging.DEBUG
        logger.log(level, message, extra={"peer": self.peer, **fields})

    def _end(self, failure: str | None) -> None:
        """Mark the end of input; the first reason counts."""
        if not self._is_ended:
            self._is_ended = True
            self._failure = failure
            self._inbox.finish(None if failure is None else TransportError(failure))

    def _send_close(self, code: int, reason: str = "") -> None:
        if not self._is_close_sent:
            self._write(self._encoder.close(code, reason))
            self._is_close_sent = True

    def _hang_up(self) -> None:
        """End our side, and give the peer time to read why: a plain close could reset it."""
        stream = self._require_stream()
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_TIMEOUT, stream.abort)
        try:
            stream.write_eof() if stream.can_write_eof() else stream.close()
        except OSError:
            stream.abort()  # the peer has closed the connection already

    def _watch_silence(self) -> None:
        """Start the timer of the next ping."""
        if self._timer:
            self._timer.cancel()
        if self._keepalive:
            self._timer = self._loop.call_later(self._keepalive.interval, self._tick)

    def _tick(self) -> None:
        keepalive = self._keepalive
        if keepalive is None:
            return
        delay = keepalive.timeout
        if self._pauses:
            # Reading is paused, so silence means nothing.
            self._received_at = self._loop.time()
            self._sent_at_ping = None
        silence = self._loop.time() - self._received_at
        if silence < keepalive.interval:
            delay = keepalive.interval - silence
        elif self._sent_at_ping is None:
            self._write(self._encoder.ping())
            self._sent_at_ping = self._bytes_sent()
        elif self._bytes_sent() > self._sent_at_ping:
            # The ping waits behind a backlog that the peer reads slowly.
            self._sent_at_ping = self._bytes_sent()
        else:
            self._end(f"no sign of life from {self.peer} after a ping")
            self._require_stream().abort()
            return
        self._timer = self._loop.call_later(delay, self._tick)

    def _bytes_sent(self) -> int:
        """Count the bytes that the kernel has taken."""
        return self._bytes_written - self._require_stream().get_write_buffer_size()

    async def _write_and_drain(self, *parts: bytes) -> None:
        if self._is_close_sent or self._require_stream().is_closing():
            raise TransportError(self._failure or "the connection is closed")
        self._write(*parts)
        while self._is_writing_paused and not self._gone.is_set():
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._gone.is_set():
            raise TransportError(self._failure or "the connection is closed")

    def _write(self, *parts: bytes) -> None:
        stream = self._require_stream()
        # Not writelines(): until 3.13.1 it never paused the writer (CVE-2024-12254).
        for part in parts:
            # Nothing follows our Close: our side may have ended with it.
            if part and not self._is_close_sent and not stream.is_closing():
                self._bytes_written += len(part)
                stream.write(part)

    def _require_stream(self) -> asyncio.Transport:
        if self._stream is None:
            raise TransportError("not connected")
        return self._stream

    def _on_full(self) -> None:
        self._pause_reading(_FULL)

    def _on_room(self) -> None:
        self._resume_reading(_FULL)

    def _pause_reading(self, reason: int) -> None:
        if not self._pauses:
            self._require_stream().pause_reading()
        self._pauses |= reason

    def _resume_reading(self, reason: int) -> None:
        if not self._pauses & reason:
            return
        self._pauses &= ~reason
        if not self._pauses:
            self._received_at = self._loop.time()
            self._require_stream().resume_reading()

    def _wake_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)


def _new_key() -> bytes:
    return os.urandom(4)
