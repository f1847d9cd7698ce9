"""The server's side of the keeper: hands it commands and hears how they end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from treadle.sandbox.backends.placeholders import Placeholder
from treadle.sandbox.limits import Bounds
from treadle.sandbox.supervisor.child import Descriptors, RunningCommand
from treadle.support.code_guard import CodeChanged, read_code
from treadle.support.files.descriptors import inherited_limit

_SCRIPT: Final = Path(__file__).with_name("program.py")
_BESIDE: Final = ("command_cgroup.py", "enforcement.py", "resource_use.py")
# As many descriptors as go with one message; the keeper takes as many.
MOST_AT_ONCE: Final = 250
_MORE_FOLLOW: Final = b"+"
_FORGET: Final = b"0"
_LOST: Final = 137
_PAUSES: Final = (0.01, 0.05, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Confined:
    """What a command puts on itself before it runs: a Landlock ruleset and a seccomp program."""

    ruleset: int
    program: bytes


class SupervisorGone(ConnectionError):
    """The keeper ended before it had started the command."""


class Supervisor:
    """A keeper process; it ends with this one."""

    def __init__(self, cgroup: Path | None = None) -> None:
        """Start it; with a cgroup, each command gets one below that."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            limit = str(inherited_limit())
            below = [] if cgroup is None else [str(cgroup)]
            options = ["-I", "-S", *_checked_code()]
            arguments = [sys.executable, *options, str(_SCRIPT), limit, *below]
            # stdout belongs to the protocol; what goes wrong in there is for the logs.
            actions = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ]
            # Some interpreters do not find their own library without this.
            env = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
            try:
                self.pid: Final = os.posix_spawn(
                    sys.executable, arguments, env, file_actions=actions
                )
            except BaseException:
                ours.close()
                raise
        # Held as a number: it stays open until this process ends, which is no leak to warn of.
        self._fd = ours.detach()
        self._is_closed = False
        # Held for an order of several parts, which no other order may come between. One for each
        # loop: a process may run several, one after the other.
        self._sending: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        # Whether the last order broke off between its parts.
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
        """Start a command under a guard; what it inherits is numbered from 3 on.

        The guard releases the placeholders at its end, also if this process is gone by then.
        If it `ends`, whatever it leaves behind ends with it, as in a namespace of its own.

        Raises:
            KeeperGone: there is no keeper any more, and the command was not started.
            OSError: the command or its folder is not there or may not be used.
        """
        options = {"terminal": fds.is_terminal, "confined": confined is not None, "ends": ends}
        chosen = " ".join(name for name, is_on in options.items() if is_on)
        names = [holder.path for holder in placeholders]
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
        return RunningCommand(pid, line.exited, line.hang_up, line.limit_hit)

    async def _send_when_possible(
        self, order: bytes, fds: Sequence[int], places: Mapping[str, str], bounds: Bounds | None
    ) -> _Line:
        """Send an order, and again if too many descriptors are on their way.

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
            # Else the next command would get the descriptors of one that was given up.
            await self._pass(_FORGET, [])
            self._is_unfinished = False
        while len(fds) > MOST_AT_ONCE:
            self._is_unfinished = True
            await self._pass(_MORE_FOLLOW, fds[:MOST_AT_ONCE])
            fds = fds[MOST_AT_ONCE:]
        await self._pass(word, fds)
        self._is_unfinished = False

    async def _pass(self, word: bytes, fds: Sequence[int]) -> None:
        """Send one message; waits beside the event loop while the keeper has others to read."""
        while True:
            if self._is_closed:
                raise BrokenPipeError(errno.EPIPE, "the keeper of commands is gone")
            try:
                # Not `send_fds`, which ignores its flags.
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))
                with _borrowed(self._fd) as keeper:
                    keeper.sendmsg([word], [rights] if fds else [], socket.MSG_DONTWAIT)
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

    def close(self) -> None:
        """Let it go; commands that run stay under their guards."""
        self._is_closed = True
        if self._room is not None:
            self._room.get_loop().remove_writer(self._fd)
            _settle(self._room)
        os.close(self._fd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class _Line:
    """What a guard says about one command."""

    def __init__(self, fd: int, places: Mapping[str, str], bounds: Bounds | None) -> None:
        os.set_blocking(fd, False)
        self._bounds = bounds
        self._limit_hit: str | None = None
        self._fd = fd
        # What to name when the step of this name fails.
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._text = b""
        self.started: asyncio.Future[int] = self._loop.create_future()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(fd, self._read)

    def hang_up(self) -> None:
        """Have the guard end everything; it still tells how the command ended."""
        if self._is_open:
            with contextlib.suppress(OSError), _borrowed(self._fd) as line:
                line.shutdown(socket.SHUT_WR)

    def limit_hit(self) -> str | None:
        """Why the guard killed the command, if it did for a limit."""
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
                self.started.set_exception(SupervisorGone("the keeper of commands is gone"))
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
    """What the keeper looks for on the machine while a command with these limits runs."""
    if bounds is None:
        return b"!"
    limits = bounds.limits
    found = [limits.processes, limits.memory, limits.open_files]
    return " ".join("-" if value is None else str(value) for value in found).encode()


def _checked_code() -> list[str]:
    """Check the keeper's code as imports are checked; gives what the interpreter has to pass over.

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
    """A socket as an object, for as long as a call takes."""
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
