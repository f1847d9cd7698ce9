"""The outgoing frames of one peer: in order, bounded, written by one task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from treadle.transport.base import Transport

MAX_OUTBOUND_BYTES: Final = 16 * 1024 * 1024


class Outbound:
    """A queue of frames with a bounded number of bytes.

    `put` never fails and never waits, so a response is never dropped; producers that can wait do
    so in `room`. Memory is bounded because a connection whose peer does not read stops taking
    requests from it, and starts no handlers of those that it has taken (`dispatch.py`).
    """

    def __init__(
        self,
        limit: int = MAX_OUTBOUND_BYTES,
        *,
        send_now: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._limit = limit
        # Writes a frame at once if there is room for it; only while the queue is empty.
        self._send_now = send_now
        self._is_sending = False
        self._frames: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        # Whether `room` returns at once: an attribute, as every message asks for it.
        self.has_room = True
        self._closed = False

    def set_limit(self, limit: int) -> None:
        """Set how many bytes may wait to be sent."""
        self._limit = limit

    def put(self, frame: bytes) -> None:
        """Queue one frame; after `close` it is discarded."""
        if self._closed:
            return
        is_idle = not self._frames and not self._is_sending
        if is_idle and self._send_now is not None and self._send_now(frame):
            return
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= self._limit:
            self.has_room = False
            self._room.clear()
        self._wake.set()

    async def room(self) -> None:
        """Wait until the peer has read enough of the queue."""
        await self._room.wait()

    def close(self) -> None:
        """Accept no more frames; the writer ends once the queue is empty."""
        self._closed = True
        self._wake.set()
        self._grant_room()

    def _grant_room(self) -> None:
        self.has_room = True
        self._room.set()

    async def write_to(self, transport: Transport) -> None:
        """Write until closed.

        Raises:
            TransportError: the connection broke.
        """
        while self._frames or not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._frames:
                frames, size = self._frames, self._size
                self._frames = []
                self._is_sending = True
                await transport.send(frames)
                self._is_sending = False
                self._size -= size
                if self._size < self._limit:
                    self._grant_room()
