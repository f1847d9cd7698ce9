"""The server's side of the supervisor: sends it commands and receives their results."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from treadle.sandbox.backends.placeholders import Placeholder
from treadle.sandbox.limits import Bounds
from treadle.sandbox.supervisor.launched import Descriptors, RunningCommand
from treadle.support.code_guard import CodeChanged, read_code
from treadle.support.files.descriptors import inherited_limit

_SCRIPT: Final = Path(__file__).with_name("program.py")
_BESIDE: Final = ("command_cgroup.py", "ending.py", "enforcement.py", "resource_use.py")
# The maximum number of descriptors per message, on both sides.
MOST_AT_ONCE: Final = 250
_MORE_FOLLOW: Final = b"+"
_FORGET: Final = b"0"
_LOST: Final = 137
_END_SECONDS: Final = 1.0
_PAUSES: Final = (0.01, 0.05, 0.2, 0.5, *[1.0] * 20)


class Confined(Struct, frozen=True):
    """What a command applies to itself before it runs: a Landlock ruleset and a seccomp program."""

    ruleset: int
    program: bytes


class SupervisorGone(ConnectionError):
    """The supervisor ended before it started the command."""


class Supervisor:
    """A supervisor process; it ends with this process."""

    def __init__(self, cgroup: Path | None = None) -> None:
        """Start it; below a cgroup, if there is one, each command gets its own."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            limit = str(inherited_limit())
            below = [] if cgroup is None else [str(cgroup)]
            options = ["-I", "-S", *_checked_code()]
            arguments = [sys.executable, *options, str(_SCRIPT), limit, *below]
            # stdout belongs to the protocol; errors of the supervisor go to the logs.
            actions = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ]
            # Some interpreters do not find their library without this.
            env = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
            try:
                self.pid: Final = os.posix_spawn(
                    sys.executable, arguments, env, file_actions=actions
                )
            except BaseException:
                ours.close()
                raise
        # A plain number: it stays open until this process ends, without a resource warning.
        self._fd = ours.detach()
        self._is_closed = False
        # Held for a command that takes several messages, so that they are not interleaved. One lock
        # per loop: a process may run several, one after the other.
        self._sending: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        # Whether the last command was interrupted between its messages.
        self._is_unfinished = False
        self._room: asyncio.Future[None] | None = None

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        fds: Descriptors,
        confined: Confined | None = None,
        inherited: Sequence[int] = (),
        placeholders: Sequence[Placeholder] = (),
        ends: bool = False,
    ) -> RunningCommand:
        """Start a command under a guard; inherited descriptors are numbered from 3.

        The guard releases the placeholders at its end, even if this process is gone by then. If it
        `ends`, everything that it leaves behind is killed, as in a separate namespace.

        Raises:
            SupervisorGone: the supervisor has ended, and the command was not started.
            OSError: the command or its folder is missing or inaccessible.
        """
        options = {"terminal": fds.is_terminal, "confined": confined is not None, "ends": ends}
        chosen = " ".join(name for name, is_on in options.items() if is_on)
        names = [holder.order for holder in placeholders]
        bounds = fds.bounds
        words = "" if bounds is None else bounds.limits.words()
        folders = () if bounds is None else bounds.folders
        head = [chosen, cwd, confined.program.hex() if confined else "", words]
        counts = [str(len(argv)), str(len(names)), str(len(folders))]
        entries = [f"{name}={value}" for name, value in env.items()]
        taken = [holder.fd for holder in placeholders]
        extra = [*inherited, *([confined.ruleset] if confined else [])]
        line = await self._send_when_possible(
            _joined([*head, *counts, *argv, *names, *folders, *entries]),
            [fds.stdin, fds.stdout, fds.stderr, *taken, *extra],
            {"cwd": cwd, "exec": argv[0]},
            bounds,
        )
        try:
            pid = await line.started
        except BaseException:
            line.hang_up()
            raise
        return RunningCommand(pid, line.exited, line.hang_up, line.limit_hit, line.is_closed)

    async def _send_when_possible(
        self, order: bytes, fds: Sequence[int], places: Mapping[str, str], bounds: Bounds | None
    ) -> _Line:
        """Send a command; retry while too many descriptors are in flight.

        The kernel counts those of all processes of the user, so others may be the cause.
        """
        for pause in _PAUSES:
            try:
                return await self._send(order, fds, places, bounds)
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
            await asyncio.sleep(pause)
        return await self._send(order, fds, places, bounds)

    async def _send(
        self, order: bytes, fds: Sequence[int], places: Mapping[str, str], bounds: Bounds | None
    ) -> _Line:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        line = _Line(ours.detach(), places, bounds)
        try:
            with theirs, _memory(order) as memory:
                sent = [theirs.fileno(), memory, *fds]
                loop = asyncio.get_running_loop()
                async with self._sending.setdefault(loop, asyncio.Lock()):
                    await self._pass_all(_signs(bounds), sent)
        except BrokenPipeError as error:
            line.close()
            raise SupervisorGone(str(error)) from error
        except BaseException:
            line.close()
            raise
        return line

    async def _pass_all(self, word: bytes, fds: list[int]) -> None:
        if self._is_unfinished:
            # Otherwise the next command would get the descriptors of an abandoned one.
            await self._pass(_FORGET, [])
            self._is_unfinished = False
        while len(fds) > MOST_AT_ONCE:
            self._is_unfinished = True
            await self._pass(_MORE_FOLLOW, fds[:MOST_AT_ONCE])
            fds = fds[MOST_AT_ONCE:]
        await self._pass(word, fds)
        self._is_unfinished = False

    async def _pass(self, word: bytes, fds: Sequence[int]) -> None:
        """Send one message; wait without blocking the event loop while the supervisor is busy."""
        while True:
            if self._is_closed:
                raise BrokenPipeError(errno.EPIPE, "the supervisor has ended")
            try:
                # Not `send_fds`, which ignores its flags.
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))
                with _borrowed(self._fd) as supervisor:
                    supervisor.sendmsg([word], [rights] if fds else [], socket.MSG_DONTWAIT)
            except BlockingIOError:
                await self._has_room()
            else:
                return

    async def _has_room(self) -> None:
        loop = asyncio.get_running_loop()
        room = self._room = loop.create_future()
        loop.add_writer(self._fd, _settle, room)
        try:
            await room
        finally:
            self._room = None
            if not self._is_closed:
                loop.remove_writer(self._fd)

    async def end(self) -> None:
        """Disconnect, and wait for the process, which ends then; not for longer than a second."""
        self._disconnect()
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            loop.add_reader(pidfd, _settle, ended)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended, _END_SECONDS)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        """Disconnect; running commands stay under their guards."""
        self._disconnect()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _disconnect(self) -> None:
        self._is_closed = True
        if self._room is not None:
            self._room.get_loop().remove_writer(self._fd)
            _settle(self._room)
        os.close(self._fd)


class _Line:
    """Receives the reports of a guard about one command."""

    def __init__(self, fd: int, places: Mapping[str, str], bounds: Bounds | None) -> None:
        os.set_blocking(fd, False)
        self._bounds = bounds
        self._limit_hit: str | None = None
        self._fd = fd
        # The file name for an error in this stage.
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._text = b""
        self.started: asyncio.Future[int] = self._loop.create_future()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(fd, self._read)

    def hang_up(self) -> None:
        """Make the guard kill everything; it still reports the exit code."""
        if self._is_open:
            with contextlib.suppress(OSError), _borrowed(self._fd) as line:
                line.shutdown(socket.SHUT_WR)

    def is_closed(self) -> bool:
        """Return whether the guard has ended, which outlives all that the command started."""
        return not self._is_open

    def limit_hit(self) -> str | None:
        """The limit for which the guard killed the command, if any."""
        if self._limit_hit is None and self._bounds is not None and self.exited.done():
            return self._bounds.reason_of_exit(self.exited.result())
        return self._limit_hit

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        *lines, self._text = (self._text + chunk).split(b"\n")
        for line in lines:
            self._hear(line.decode())
        if not chunk:
            self.close()
            if not self.started.done():
                self.started.set_exception(SupervisorGone("the supervisor has ended"))
            if not self.exited.done():
                self.exited.set_result(_LOST)

    def _hear(self, line: str) -> None:
        word, value, *rest = line.split()
        if word == "started" and not self.started.done():
            self.started.set_result(int(value))
        elif word == "limit" and self._bounds is not None:
            self._limit_hit = self._bounds.reason(value, *map(int, rest))
        elif word == "exited" and not self.exited.done():
            self.exited.set_result(int(value))
        elif word == "failed" and not self.started.done():
            number = int(value)
            place = self._places.get(rest[0], rest[0])
            self.started.set_exception(OSError(number, os.strerror(number), place))


def _settle(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)


def _signs(bounds: Bounds | None) -> bytes:
    """Return what the supervisor monitors on the machine while a command with limits runs."""
    if bounds is None:
        return b"!"
    limits = bounds.limits
    found = [limits.processes, limits.memory, limits.open_files]
    return " ".join("-" if value is None else str(value) for value in found).encode()


def _checked_code() -> list[str]:
    """Check the supervisor's code as imports are checked; return the interpreter's options.

    Raises:
        OSError: a file changed after the server started.
    """
    beside = [str(_SCRIPT.with_name(name)) for name in _BESIDE]
    try:
        for source in (str(_SCRIPT), *beside):
            read_code(__spec__, source)
    except CodeChanged as error:
        raise OSError(str(error)) from error
    for source in beside:
        try:
            read_code(__spec__, cache_from_source(source))
        except FileNotFoundError:
            continue
        except OSError:
            return ["-X", f"pycache_prefix={os.devnull}"]
    return []


def _joined(words: list[str]) -> bytes:
    encoded = [os.fsencode(word) for word in words]
    if any(b"\0" in word for word in encoded):
        raise ValueError("embedded null byte")
    return b"\0".join(encoded)


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """Return a socket object for a descriptor, for the duration of a call."""
    borrowed = socket.socket(fileno=fd)
    try:
        yield borrowed
    finally:
        borrowed.detach()


@contextlib.contextmanager
def _memory(data: bytes) -> Iterator[int]:
    fd = os.memfd_create("command")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield fd
    finally:
        os.close(fd)
