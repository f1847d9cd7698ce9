"""A command as a process: its output, its input and its exit.

Everything that the command started is killed with it, and when this process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Self

from msgspec.structs import replace

from treadle.sandbox.limits import Bounds, CommandLimits
from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.launched import Descriptors, RunningCommand

if TYPE_CHECKING:
    from treadle.sandbox.network.proxy import EgressProxy
    from treadle.sandbox.sandbox import Sandbox

OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]

CHUNK: Final = 256 * 1024
# How long to wait for output after a command whose children still hold its pipes has ended.
LINGER_SECONDS: Final = 0.2


class Process:
    """A running command, confined or not."""

    def __init__(
        self,
        child: RunningCommand,
        readers: list[_Reader],
        stdin: _Writer | None,
        proxy: EgressProxy | None = None,
    ) -> None:
        self.pid: Final = child.pid
        self._child = child
        self._readers = readers
        self._stdin = stdin
        self._terminal = readers[0].fd if len(readers) == 1 else None
        self._proxy = proxy
        self._linger: asyncio.TimerHandle | None = None
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for reader in readers:
            reader.start(self._on_change)
        child.exited.add_done_callback(self._on_exit)

    @classmethod
    async def start(
        cls,
        sandbox: Sandbox,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        on_output: OnOutput,
        size: tuple[int, int] | None = None,
        has_stdin: bool = False,
        proxy: EgressProxy | None = None,
        limits: CommandLimits | None = None,
    ) -> Self:
        """Run a command in a sandbox; with a size of rows and columns, on its own terminal.

        A confinement with an egress proxy needs one, which is open while the command runs. Without
        limits, the command may use what this process may use.

        Raises:
            SandboxUnavailable: it should be confined, and no backend can do that.
            OSError: the command or its folder is missing or inaccessible.
        """
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            if size is None:
                descriptors, readers, stdin = _pipes(ours, theirs, on_output, has_stdin=has_stdin)
            else:
                descriptors, readers, stdin = _terminal(ours, theirs, on_output, size)
            if limits is not None:
                bounds = Bounds(limits, _fillable(confinement, cwd, env))
                descriptors = replace(descriptors, bounds=bounds)
            if proxy is not None:
                ours.callback(proxy.close)
                descriptors = replace(descriptors, proxy=proxy.descriptor)
            child = await sandbox.launch(
                argv, cwd=cwd, env=env, confinement=confinement, fds=descriptors
            )
            if proxy is not None:
                try:
                    proxy.open()
                except RuntimeError:
                    child.kill()
                    raise
            ours.pop_all()
        return cls(child, readers, stdin, proxy)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or 128 plus the number of a signal; `None` while it runs."""
        return self._child.exited.result() if self._child.exited.done() else None

    @property
    def limit_hit(self) -> str | None:
        """The limit for which it was killed, if any; `None` while it runs."""
        return self._child.limit_hit() if self._child.exited.done() else None

    @property
    def is_gone(self) -> bool:
        """Whether `kill` has nothing left to end."""
        return self._child.is_gone()

    async def wait(self) -> int:
        """Wait for the end of the command and of its output; return the exit code."""
        await asyncio.shield(self._finished)
        return self._child.exited.result()

    async def write(self, data: bytes) -> None:
        """Write to the command's input, as fast as it reads.

        Raises:
            OSError: it has no input, or no longer reads it.
        """
        if self._stdin is None:
            raise OSError(errno.EBADF, "the command has no input")
        await self._stdin.write(data)

    def close_stdin(self) -> None:
        """Close the command's input; on a terminal, like Ctrl-D."""
        if self._stdin is not None:
            self._stdin.end()

    def resize(self, rows: int, cols: int) -> None:
        """Resize the terminal.

        Raises:
            OSError: the command has no terminal, or has ended.
        """
        if self._terminal is None or self._finished.done():
            raise OSError(errno.ENOTTY, "the command has no terminal")
        _set_size(self._terminal, rows, cols)

    def pause(self) -> None:
        """Stop reading output, so that the command waits when its pipe is full."""
        for reader in self._readers:
            reader.pause()

    def resume(self) -> None:
        """Resume reading output."""
        for reader in self._readers:
            reader.resume()

    def kill(self) -> None:
        """Kill the command and everything that it started."""
        self._child.kill()
        if self._proxy is not None:
            self._proxy.close()
        # Earlier output is still delivered, unless the caller paused: it wants no more.
        self.resume()

    def _on_exit(self, _exited: asyncio.Future[int]) -> None:
        if self._proxy is not None:
            self._proxy.close()
        if self._stdin is not None:
            self._stdin.close()
        for reader in self._readers:
            reader.resume()
            reader.drain()
        loop = asyncio.get_running_loop()
        self._linger = loop.call_later(LINGER_SECONDS, self._abandon)
        self._on_change()

    def _abandon(self) -> None:
        for reader in self._readers:
            reader.close()

    def _on_change(self) -> None:
        is_over = self._child.exited.done() and all(reader.is_closed for reader in self._readers)
        if is_over and not self._finished.done():
            if self._linger is not None:
                self._linger.cancel()
            if self._stdin is not None:
                self._stdin.close()
            self._finished.set_result(None)


class _Reader:
    """Reads a descriptor whenever data is available, a chunk at a time."""

    def __init__(self, fd: int, deliver: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self.fd: Final = fd
        self.is_closed = False
        self._deliver = deliver
        self._is_paused = False
        self._on_close: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()

    def start(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close
        self._loop.add_reader(self.fd, self._read)

    def pause(self) -> None:
        if not self.is_closed and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self.fd)

    def resume(self) -> None:
        if not self.is_closed and self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self.fd, self._read)

    def drain(self) -> None:
        """Read the available data: at most the capacity of a pipe."""
        while not self.is_closed and self._read():
            pass

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self.fd)
        os.close(self.fd)
        self._on_close()

    def _read(self) -> bool:
        try:
            chunk = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""  # a terminal without open handles returns EIO instead of an end
        if chunk:
            self._deliver(chunk)
        else:
            self.close()
        return bool(chunk)


class _Writer:
    """Writes to a descriptor without blocking."""

    def __init__(self, fd: int, *, is_terminal: bool) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._is_terminal = is_terminal
        self._is_closed = False
        self._room: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        async with self._turn:
            view = memoryview(data)
            while view:
                if self._is_closed:
                    raise BrokenPipeError(errno.EPIPE, "the command does not read its input")
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    await self._has_room()

    def end(self) -> None:
        if not self._is_terminal:
            self.close()
        elif not self._is_closed:
            with contextlib.suppress(OSError):
                os.write(self._fd, b"\x04")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        asyncio.get_running_loop().remove_writer(self._fd)
        os.close(self._fd)

    async def _has_room(self) -> None:
        loop = asyncio.get_running_loop()
        self._room = loop.create_future()
        loop.add_writer(self._fd, self._room.set_result, None)
        try:
            await self._room
        finally:
            if not self._is_closed:
                loop.remove_writer(self._fd)


def _fillable(confinement: Confinement, cwd: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders whose file systems a command could fill."""
    if confinement.is_unrestricted:
        return tuple(dict.fromkeys((cwd, env.get("TMPDIR") or "/tmp")))  # noqa: S108 - only watched
    return tuple(root.path for root in confinement.writable)


_Ends = tuple[Descriptors, list[_Reader], _Writer | None]


def _pipes(
    ours: contextlib.ExitStack,
    theirs: contextlib.ExitStack,
    on_output: OnOutput,
    *,
    has_stdin: bool,
) -> _Ends:
    out_reader, out = os.pipe()
    ours.callback(os.close, out_reader)
    theirs.callback(os.close, out)
    err_reader, err = os.pipe()
    ours.callback(os.close, err_reader)
    theirs.callback(os.close, err)
    writer = None
    if has_stdin:
        inp, in_writer = os.pipe()
        ours.callback(os.close, in_writer)
        writer = _Writer(in_writer, is_terminal=False)
    else:
        inp = os.open(os.devnull, os.O_RDONLY)
    theirs.callback(os.close, inp)
    readers = [
        _Reader(out_reader, lambda chunk: on_output("stdout", chunk)),
        _Reader(err_reader, lambda chunk: on_output("stderr", chunk)),
    ]
    return Descriptors(inp, out, err), readers, writer


def _terminal(
    ours: contextlib.ExitStack,
    theirs: contextlib.ExitStack,
    on_output: OnOutput,
    size: tuple[int, int],
) -> _Ends:
    master, slave = os.openpty()
    ours.callback(os.close, master)
    theirs.callback(os.close, slave)
    _set_size(slave, *size)
    # Reading and writing end at different times.
    twin = os.dup(master)
    ours.callback(os.close, twin)
    reader = _Reader(master, lambda chunk: on_output("stdout", chunk))
    fds = Descriptors(slave, slave, slave, is_terminal=True)
    return fds, [reader], _Writer(twin, is_terminal=True)


def _set_size(fd: int, rows: int, cols: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
