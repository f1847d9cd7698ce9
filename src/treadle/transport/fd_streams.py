"""Reads and writes raw file descriptors without ever blocking the event loop.

Not asyncio's pipe transports: those reject regular files, and they switch descriptors that other
processes share to non-blocking mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import threading
from collections.abc import Callable, Sequence
from typing import Final

from treadle.transport.base import TransportError

# The capacity of a pipe. The system maps and unmaps a larger buffer for every read.
READ_BYTES: Final = 64 * 1024


def is_pollable(fd: int) -> bool:
    """Return whether the event loop can poll this descriptor, unlike files and /dev/null."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


def reopen(fd: int, flags: int) -> int:
    """Return a separate descriptor for the same pipe, to make only ours non-blocking.

    Sockets cannot be reopened, and other systems have no `/proc`: there a duplicate is used.
    """
    with contextlib.suppress(OSError):
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    copy = os.dup(fd)
    os.set_blocking(copy, False)
    return copy


class PolledReader:
    """Calls `feed` with the chunks that arrive on a pipe; an empty chunk is the end."""

    def __init__(self, fd: int, feed: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._is_done = False
        self.resume()

    def pause(self) -> None:
        """Stop reading for now."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Continue reading."""
        if not self._is_reading and not self._is_done:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def close(self) -> None:
        """Stop permanently."""
        self.pause()
        if not self._is_done:
            self._is_done = True
            os.close(self._fd)

    def drain(self) -> None:
        """Read what has already arrived and expect no more."""
        while not self._is_done and self._on_readable():
            pass
        if not self._is_done:
            self.close()
            self._feed(b"")

    def _on_readable(self) -> bool:
        try:
            chunk = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""  # a terminal or a pipe that was closed has ended
        if not chunk:
            self.close()
        self._feed(chunk)
        return True


class ThreadedReader:
    """The same for descriptors that cannot be polled: a thread reads, one chunk ahead."""

    def __init__(self, fd: int, feed: Callable[[bytes], None]) -> None:
        self._fd = os.dup(fd)
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._turns = threading.Semaphore(1)
        self._awaits_turn = False
        self._is_paused = False
        self._is_done = False
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def pause(self) -> None:
        """Stop reading for now."""
        self._is_paused = True

    def resume(self) -> None:
        """Continue reading."""
        self._is_paused = False
        self._give_turn()

    def close(self) -> None:
        """Stop permanently."""
        self._is_done = True
        self._turns.release()

    def _give_turn(self) -> None:
        if self._awaits_turn and not self._is_paused:
            self._awaits_turn = False
            self._turns.release()

    def _deliver(self, chunk: bytes) -> None:
        self._feed(chunk)
        self._awaits_turn = True
        self._give_turn()

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            self._turns.acquire()
            if self._is_done:
                break
            chunk = os.read(self._fd, READ_BYTES)
            with contextlib.suppress(RuntimeError):  # the loop may be closed before the file ends
                self._loop.call_soon_threadsafe(self._deliver, chunk)
        os.close(self._fd)


class Writer:
    """Writes to a descriptor, waiting in the event loop while it is full."""

    def __init__(self, fd: int, on_hang_up: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_pollable = is_pollable(fd)
        self._fd = reopen(fd, os.O_WRONLY) if self._is_pollable else os.dup(fd)
        self._on_hang_up = on_hang_up
        self._waiting: asyncio.Future[None] | None = None
        self._is_done = False
        self.written = 0
        # Polling a pipe for reading reports an error once its reader is gone.
        self._is_watched = self._is_pollable and stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        if self._is_watched:
            self._loop.add_reader(self._fd, self._on_reader_gone)

    async def write(self, parts: Sequence[bytes]) -> None:
        """Write everything.

        Raises:
            TransportError: the reader of the output is gone.
        """
        rest = memoryview(b"".join(parts))
        while rest:
            if self._is_done:
                raise TransportError("the output is closed")
            try:
                written = os.write(self._fd, rest)
            except BlockingIOError:
                await self._writable()
                continue
            except OSError as error:
                raise TransportError(f"the output has no reader: {error.strerror}") from error
            self.written += written
            rest = rest[written:]

    def write_now(self, data: bytes) -> bool:
        """Write all of it at once and return true, or write nothing if that cannot be ensured."""
        if not self._is_watched or self._is_done or len(data) > select.PIPE_BUF:
            return False
        try:
            os.write(self._fd, data)
        except OSError:
            return False  # full, or the reader is gone: the next `write` finds out which
        return True

    def close(self) -> None:
        """Stop permanently."""
        if self._is_done:
            return
        self._is_done = True
        self._unwatch()
        if self._waiting is not None:
            self._loop.remove_writer(self._fd)
            if not self._waiting.done():
                self._waiting.set_result(None)
        os.close(self._fd)

    async def _writable(self) -> None:
        self._waiting = self._loop.create_future()
        self._loop.add_writer(self._fd, self._on_writable)
        try:
            await self._waiting
        finally:
            self._waiting = None
            if not self._is_done:
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _on_reader_gone(self) -> None:
        self._unwatch()
        self._on_hang_up()

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._fd)
