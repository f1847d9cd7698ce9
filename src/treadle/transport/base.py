"""The interface of every transport, and the inbox that most of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from treadle.jsonrpc.framing import Frame, frame_size

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

MAX_INBOX_FRAMES: Final = 256
MAX_INBOX_BYTES: Final = 8 * 1024 * 1024


class TransportError(Exception):
    """The connection failed: refused, broken, or closed by us."""


class Transport(Protocol):
    """Moves whole messages; one task receives, one task sends."""

    @property
    def peer(self) -> str:
        """The name of the other end, for logs."""
        ...

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next messages; empty at the end of input.

        Raises:
            TransportError: the connection broke.
        """
        ...

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send messages in order; returns when the peer is keeping up.

        Raises:
            TransportError: the connection broke.
        """
        ...

    async def close(self) -> None:
        """Hang up; a pending `receive` gets the end of input."""
        ...


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport for a process with a single connection: frames skip the inbox."""

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Pass messages on as they arrive; `receive` then only reports the end."""
        ...

    def send_now(self, frame: bytes) -> bool:
        """Send a message at once if it is short and there is room; return whether it was sent."""
        ...


@runtime_checkable
class CountingTransport(Transport, Protocol):
    """A transport whose output stays open after the end of input, and shows how it is read."""

    @property
    def written(self) -> int:
        """How many bytes the system has taken so far."""
        ...


@runtime_checkable
class GuardedTransport(Transport, Protocol):
    """A transport with strict limits for a peer that has not sent `initialize`."""

    @property
    def is_stranger(self) -> bool:
        """Whether the peer has not sent `initialize` yet."""
        ...

    def introduce(self) -> None:
        """Lift the limits for strangers."""
        ...


class Admit(Protocol):
    """Decides about a peer before it becomes a connection."""

    async def __call__(self, line: TransportSocket, *, accepted_at: float) -> str | None:
        """Return why a peer is refused, `None` if it is admitted.

        `accepted_at` is when the connection was accepted, by the monotonic clock.
        """
        ...


class Listener(Protocol):
    """Accepts connections of peers."""

    async def serve(
        self, accept: Callable[[Transport], Awaitable[None]], *, admit: Admit | None = None
    ) -> None:
        """Run `accept` for each admitted peer, concurrently, until cancelled."""
        ...


class Inbox:
    """Frames that arrived and were not taken yet; pauses and resumes their source."""

    def __init__(self, *, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._frames: list[Frame] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._finished = False
        self._error: Exception | None = None
        self._pause = pause
        self._resume = resume
        self._is_paused = False
        self._is_discarding = False
        self._sink: Callable[[Sequence[Frame]], None] | None = None

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Pass frames on as they arrive, without a call of `take`."""
        self._sink = sink
        frames, self._frames, self._size = self._frames, [], 0
        if frames:
            sink(frames)

    def put(self, frames: Sequence[Frame]) -> None:
        """Add frames that arrived."""
        if self._is_discarding:
            return
        if self._sink is not None:
            self._sink(frames)
            return
        self._frames += frames
        self._size += sum(map(frame_size, frames))
        if self._frames:
            self._wake.set()
        if len(self._frames) > MAX_INBOX_FRAMES or self._size > MAX_INBOX_BYTES:
            self._is_paused = True
            self._pause()

    def finish(self, error: Exception | None = None) -> None:
        """Mark the end of input; an error is raised after all earlier frames were taken."""
        if not self._finished:
            self._finished = True
            self._error = error
        self._wake.set()

    def discard(self) -> None:
        """Drop all frames, present and future."""
        self._frames.clear()
        self._error = None
        self._is_discarding = True
        self.finish()

    async def take(self) -> Sequence[Frame]:
        """Wait for frames and take them all; empty at the end."""
        while not self._frames and not self._finished:
            self._wake.clear()
            await self._wake.wait()
        frames, self._frames, self._size = self._frames, [], 0
        if self._is_paused and not self._finished:
            self._is_paused = False
            self._resume()
        if not frames and self._error is not None:
            raise TransportError(str(self._error)) from self._error
        return frames or ()
