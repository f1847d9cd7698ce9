"""A server as a child process, connected over its stdin and stdout.

The child leads its own process group, and closing the transport ends every process in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from treadle.jsonrpc.framing import Frame, LineSplitter
from treadle.support.files.programs import find_on_path
from treadle.transport.base import TransportError
from treadle.transport.fd_streams import PolledReader, reopen
from treadle.transport.stdio import LineTransport

STDERR_LINES: Final = 400
EXIT_SECONDS: Final = 2.0


class SubprocessTransport:
    """A child's stdin and stdout, its exit code, and the last lines of its stderr."""

    def __init__(self, process: subprocess.Popen[bytes], lines: LineTransport) -> None:
        self.peer = lines.peer
        self._process = process
        self._lines = lines
        self._stderr = _Tail(process)
        self._exited = _watch_exit(process)
        self._exited.add_done_callback(lambda _exited: lines.drain())

    @property
    def pid(self) -> int:
        """The child's process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The child's exit code, negative for a signal; `None` while it runs."""
        return self._process.poll()

    @property
    def stderr_tail(self) -> str:
        """The last lines that the child wrote to stderr."""
        return self._stderr.text()

    async def receive(self) -> Sequence[Frame]:
        """Wait for the child's next lines; empty when it has closed its output or exited."""
        return await self._lines.receive()

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Pass lines on as they arrive; `receive` then only reports the end."""
        self._lines.pour_into(sink)

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write to the child's stdin."""
        await self._lines.send(frames)

    def send_now(self, frame: bytes) -> bool:
        """Write a frame at once if it is short and there is room; return whether it was written."""
        return self._lines.send_now(frame)

    async def close(self) -> None:
        """End the child: close its input, then send signals, each with a timeout."""
        self._lines.close_output()
        if not await self._exits():
            self._signal(signal.SIGTERM)
            await self._exits()
        # Also when the child itself has exited: processes that it left in its group are killed.
        self._signal(signal.SIGKILL)
        await self._exited
        await self._lines.close()
        self._stderr.close()

    async def _exits(self) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._exited), EXIT_SECONDS)
        return self._exited.done()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def spawn(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> SubprocessTransport:
    """Start a program that speaks the protocol on its stdin and stdout.

    A path is relative to our own folder, not to `cwd`, which others may be able to write; a name
    is searched for in the folders of `PATH` outside `cwd` first.

    Raises:
        TransportError: it could not be started.
    """
    try:
        process = subprocess.Popen(
            rooted(command, cwd=cwd, env=env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise TransportError(f"could not start {command[0]!r}: {error.strerror}") from error
    if process.stdin is None or process.stdout is None:
        raise TransportError(f"{command[0]!r} has no pipes")
    lines = LineTransport(
        process.stdout.fileno(), process.stdin.fileno(), peer=f"process {process.pid}"
    )
    # The transport has reopened the pipes; our descriptors would keep them alive.
    process.stdin.close()
    process.stdout.close()
    return SubprocessTransport(process, lines)


def rooted(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Return a command that works from any folder, with the path of its program.

    Raises:
        TransportError: the program is not on `PATH`.
    """
    program, *rest = command
    if os.sep in program:
        return [os.path.abspath(program), *rest]  # noqa: PTH100 - links stay
    path = (os.environ if env is None else env).get("PATH")
    executable = find_on_path(program, path, workspace=None if cwd is None else os.fspath(cwd))
    if executable is None:
        raise TransportError(f"could not start {program!r}: {os.strerror(errno.ENOENT)}")
    return [executable, *rest]


class _Tail:
    """The last lines of a child's stderr, read so that the child never blocks on us."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._splitter = LineSplitter(limit=64 * 1024)
        if process.stderr is None:
            raise TransportError("the child has no stderr")
        self._reader = PolledReader(reopen(process.stderr.fileno(), os.O_RDONLY), self._feed)
        process.stderr.close()

    def text(self) -> str:
        return "\n".join(self._lines)

    def close(self) -> None:
        self._reader.drain()

    def _feed(self, chunk: bytes) -> None:
        for frame in self._splitter.feed(chunk) if chunk else self._splitter.finish():
            line = frame if isinstance(frame, bytes) else frame.head
            self._lines.append(line.decode("utf-8", "replace"))


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()


def _watch_exit(process: subprocess.Popen[bytes]) -> asyncio.Future[None]:
    """Return a future that is done when the child has exited and was reaped."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return loop.run_in_executor(None, _reap, process)
    exited: asyncio.Future[None] = loop.create_future()
    pidfd = os.pidfd_open(process.pid)

    def reap() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        process.wait()
        if not exited.done():
            exited.set_result(None)

    loop.add_reader(pidfd, reap)
    return exited
