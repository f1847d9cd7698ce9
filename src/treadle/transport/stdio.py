"""One JSON document per line over two descriptors: a server's own stdin and stdout."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from treadle.jsonrpc.framing import MAX_MESSAGE_BYTES, Frame, LineSplitter
from treadle.transport.base import Inbox
from treadle.transport.fd_streams import PolledReader, ThreadedReader, Writer, is_pollable, reopen


class LineTransport:
    """Lines in, lines out; the output stays open after the end of input, for the last responses."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        peer: str,
        already_read: bytes = b"",
        limit: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.peer = peer
        self._splitter = LineSplitter(limit)
        self._inbox = Inbox(pause=self._pause, resume=self._resume)
        if is_pollable(read_fd):
            own = reopen(read_fd, os.O_RDONLY)
            self._reader: PolledReader | ThreadedReader = PolledReader(own, self._feed)
        else:
            self._reader = ThreadedReader(read_fd, self._feed)
        self._writer = Writer(write_fd, self._on_output_closed)
        if already_read:
            self._inbox.put(self._splitter.feed(already_read))

    @property
    def written(self) -> int:
        """How many bytes the system has taken so far."""
        return self._writer.written

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next lines."""
        return await self._inbox.take()

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Pass lines on as they arrive; `receive` then only reports the end."""
        self._inbox.pour_into(sink)

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write each frame as a line."""
        await self._writer.write([b"\n".join(frames), b"\n"])

    def send_now(self, frame: bytes) -> bool:
        """Write a frame at once if it is short and there is room; return whether it was written."""
        return self._writer.write_now(frame + b"\n")

    def drain(self) -> None:
        """Read what has already arrived and expect no more."""
        if isinstance(self._reader, PolledReader):
            self._reader.drain()

    def close_output(self) -> None:
        """Close the output, so that the other side sees its end; keep reading."""
        self._writer.close()

    async def close(self) -> None:
        """Stop reading and writing; the descriptors we were given stay open."""
        self._inbox.finish()
        self._reader.close()
        self._writer.close()

    def _feed(self, chunk: bytes) -> None:
        if chunk:
            self._inbox.put(self._splitter.feed(chunk))
        else:
            self._inbox.put(self._splitter.finish())
            self._inbox.finish()

    def _on_output_closed(self) -> None:
        """End the input too, after the lines received so far: the peer has stopped reading."""
        self.drain()
        self._inbox.finish()

    def _pause(self) -> None:
        self._reader.pause()

    def _resume(self) -> None:
        self._reader.resume()


def stdio(already_read: bytes = b"") -> LineTransport:
    """Return a transport over stdin and stdout; `already_read` is input read earlier."""
    return LineTransport(0, 1, peer="stdio", already_read=already_read)
