"""What every transport offers, and the inbox that most of them share."""

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
    """The line is gone: refused, broken, or closed by us."""


class Transport(Protocol):
    """Moves whole messages; one task receives, one task sends."""

    @property
    def peer(self) -> str:
        """Who is at the other end, for logs."""
        ...

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next messages; empty at the end of input.

        Raises:
            TransportError: the line broke.
        """
        ...

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send messages in order; returns when the peer is keeping up.

        Raises:
            TransportError: the line broke.
        """
        ...

    async def close(self) -> None:
        """Hang up; whoever receives gets the end of input."""
        ...


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport for whoever has only this one: it need not wait for its turn to be read."""

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Hand over messages as they arrive; `receive` then only tells the end."""
        ...

    def send_now(self, frame: bytes) -> bool:
        """Send a message at once, if it is short and there is room for it; false if it was not."""
        ...


@runtime_checkable
class GuardedTransport(Transport, Protocol):
    """A transport that grants little to a peer that has not introduced itself."""

    @property
    def is_stranger(self) -> bool:
        """Whether the peer has yet to introduce itself."""
        ...

    def introduce(self) -> None:
        """Lift the limits for strangers."""
        ...


class Admit(Protocol):
    """Judges a peer before it becomes a connection."""

    async def __call__(self, line: TransportSocket, *, accepted_at: float) -> str | None:
        """Return why a peer is refused, `None` if it is admitted.

        `accepted_at` is when the connection was accepted, by the monotonic clock.
        """
        ...


class Listener(Protocol):
    """Waits for peers."""

    async def serve(
        self, accept: Callable[[Transport], Awaitable[None]], *, admit: Admit | None = None
    ) -> None:
        """Run `accept` for each peer that is admitted, at the same time, until cancelled."""
        ...


class Inbox:
    """Frames that arrived and were not taken yet; tells its source when to pause and resume."""

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
        """Hand over what arrives as it arrives, without waiting for somebody to take it."""
        self._sink = sink
        frames, self._frames, self._size = self._frames, [], 0
        if frames:
            sink(frames)

    def put(self, frames: Sequence[Frame]) -> None:
        """Add what arrived."""
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
        """Nothing more will come; an error is raised once everything before it was taken."""
        if not self._finished:
            self._finished = True
            self._error = error
        self._wake.set()

    def discard(self) -> None:
        """Forget everything, now and later: nobody will take it."""
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
