"""A pair of connected transports in one process, for tests and in-process servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from treadle.jsonrpc.framing import HEAD_BYTES, MAX_MESSAGE_BYTES, Frame, Oversized
from treadle.transport.base import Inbox, TransportError


class MemoryTransport:
    """One end of a pair created by `memory_pair`."""

    peer = "memory"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reading = asyncio.Event()
        self._reading.set()
        self._inbox = Inbox(pause=self._reading.clear, resume=self._reading.set)
        self._other: MemoryTransport | None = None

    def connect(self, other: MemoryTransport) -> None:
        """Set the end that receives what this one sends."""
        self._other = other

    async def receive(self) -> Sequence[Frame]:
        """Wait for frames of the other end."""
        return await self._inbox.take()

    async def send(self, frames: Sequence[bytes]) -> None:
        """Pass the frames on; waits while the other end is behind.

        Raises:
            TransportError: either end was closed.
        """
        other = self._other
        if other is None:
            raise TransportError("the connection is closed")
        other.arrive([self._measured(frame) for frame in frames])
        await other.caught_up()

    def arrive(self, frames: Sequence[Frame]) -> None:
        """Receive frames of the other end."""
        self._inbox.put(frames)

    async def caught_up(self) -> None:
        """Wait until this end has taken enough of its frames."""
        await self._reading.wait()

    async def close(self) -> None:
        """Hang up, at both ends."""
        other, self._other = self._other, None
        self._inbox.finish()
        self._reading.set()
        if other is not None:
            await other.close()

    def _measured(self, frame: bytes) -> Frame:
        if len(frame) > self._limit:
            return Oversized(len(frame), frame[:HEAD_BYTES])
        return frame


def memory_pair(limit: int = MAX_MESSAGE_BYTES) -> tuple[MemoryTransport, MemoryTransport]:
    """Create a connection and return its two ends."""
    one, two = MemoryTransport(limit), MemoryTransport(limit)
    one.connect(two)
    two.connect(one)
    return one, two
