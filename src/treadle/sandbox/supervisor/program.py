"""A program of its own that starts commands which no namespace holds together, and ends them.

The server hands it commands over a socket. For each it forks a guard, which adopts whatever the
command leaves behind: nothing that a command starts can get away from its guard, neither by a new
session nor by a double fork. The guard ends all of it when the server says so by closing the
command's line, which is also what happens when the server dies, however it dies.

It is run by its path with as little of Python as possible, and imports nothing of this package but
the files beside it.
"""

# The other side of its messages is client.py. No pathlib and no subprocess: they cost more to
# import than all the rest, and the first command waits for it.
# ruff: noqa: PTH100, PTH106, PTH120, PTH123

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from treadle.sandbox.supervisor import command_cgroup, enforcement, resource_use
else:
    # Last and only for this: nothing beside this file takes the place of a module of Python's.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import command_cgroup
    import enforcement
    import resource_use

    sys.path.pop()

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_PR_CAPBSET_DROP, _CAPABILITIES = 24, 64
_LANDLOCK_RESTRICT_SELF = 446
_SWEEP_SECONDS, _LOOK_SECONDS = 5.0, 0.02
_DESCRIPTORS, _MOST_FDS, _MORE_FOLLOW = 2**31 - 1, 250, b"+"
# The order that these descriptors belong to was given up.
_FORGET = b"0"

# What Python or the guard has changed, and a command must find as usual.
_DEFAULTS = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Fork a guard for each command that comes, until the server hangs up."""
    os.setsid()
    os.chdir("/")
    os.closerange(3, _DESCRIPTORS)
    _limit_descriptors(int(sys.argv[1]))
    # For guards only, and ignored by those that have just been forked.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    server = socket.socket(fileno=0)
    poll = select.poll()
    poll.register(server, select.POLLIN)
    cgroup = sys.argv[2] if len(sys.argv) > 2 else None
    watch = _Watch()
    # Of one order, which can take several messages.
    fds: list[int] = []
    while True:
        has_order = poll.poll(watch.milliseconds)
        watch.tick()
        if not has_order:
            continue
        data, received, _flags, _address = socket.recv_fds(server, 64, _MOST_FDS)
        if not data:
            _leave(cgroup)
            return
        fds += received
        if data == _MORE_FOLLOW:
            continue
        if data == _FORGET:
            _close_all(fds)
            continue
        try:
            guard = os.fork()
            if guard == 0:
                server.close()
                try:
                    _Guard(fds, cgroup).run()
                finally:
                    os._exit(0)
            watch.add(guard, data)
        except OSError as error:
            # No more processes: one command cannot be started, the keeper goes on.
            os.write(fds[0], f"failed {error.errno} fork\n".encode())
        _close_all(fds)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _leave(cgroup: str | None) -> None:
    """Remove the server's cgroup if that can be done from here, and else leave it to the next."""
    if cgroup is not None:
        with contextlib.suppress(OSError):
            os.rmdir(cgroup)


class _Watch:
    """The guards that run; those whose commands have limits are woken when the machine fills."""

    def __init__(self) -> None:
        self._signs = enforcement.Signs()
        self._limited: set[int] = set()
        self._next = 0.0

    @property
    def milliseconds(self) -> int | None:
        """How long to wait for the next order at most."""
        return round(enforcement.TICK_SECONDS * 1000) if self._limited else None

    def add(self, guard: int, order: bytes) -> None:
        if self._signs.expect(order):
            self._limited.add(guard)

    def tick(self) -> None:
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + enforcement.TICK_SECONDS
        self._reap()
        if self._limited and self._signs.have_grown():
            for guard in self._limited:
                os.kill(guard, signal.SIGUSR1)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                self._limited.discard(ended)
        if not self._limited:
            self._signs.forget()


def _limit_descriptors(soft: int) -> None:
    """Set the soft limit that commands inherit: the server has raised its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Guard:
    """Starts one command, tells how it ended, and ends what it leaves behind."""

    def __init__(self, fds: list[int], cgroup: str | None) -> None:
        self._line = socket.socket(fileno=fds[0])
        with open(fds[1], "rb") as order:
            order.seek(0)
            fields = order.read().split(b"\0")
        self._options, self._cwd, self._filter = fields[0].decode().split(), fields[1], fields[2]
        words, names, folders = map(int, fields[4:7])
        self._argv, fields = fields[7 : 7 + words], [*fields[:4], *fields[7 + words :]]
        taken, watched = fields[4 : 4 + names], fields[4 + names : 4 + names + folders]
        self._env = fields[4 + names + folders :]
        self._limits = enforcement.LimitEnforcer(fields[3].decode(), watched)
        values = self._limits.values
        self._group = command_cgroup.Group(cgroup if values else None, values)
        self._limits.leave_out(self._group.enforced)
        self._streams, rest = fds[2:5], fds[5:]
        # Names that are taken until the command has ended, each with the lock on it.
        self._taken = list(zip(taken, rest, strict=False))
        # A Landlock ruleset to put on, or else for the command to inherit.
        self._extra = rest[names:]
        self._wakeups, self._writer = os.pipe()

    def run(self) -> None:
        try:
            self._run()
        finally:
            self._group.remove()

    def _run(self) -> None:
        os.set_blocking(self._wakeups, False)
        os.set_blocking(self._writer, False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        _control(_PR_SET_CHILD_SUBREAPER, 1)
        pid = self._start()
        if pid is None:
            return
        for fd in (*self._streams, *self._extra):
            os.close(fd)
        self._watch(pid)

    def _start(self) -> int | None:
        """Fork the command; `None` if it could not be started, which was told."""
        reader, writer = os.pipe()
        guard = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._become(writer, guard)
        os.close(writer)
        with open(reader, "rb") as failure:
            message = failure.read()
        if message:
            os.waitpid(pid, 0)
            self._release()
            self._tell("failed", message.decode())
            return None
        self._tell("started", pid)
        return pid

    def _become(self, failure: int, guard: int) -> NoReturn:
        """Turn into the command; what goes wrong before that is told over a pipe."""
        stage = "start"
        try:
            signal.set_wakeup_fd(-1)
            for number in _DEFAULTS:
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            self._group.enter()
            self._limits.apply()
            if "terminal" in self._options:
                fcntl.ioctl(self._streams[0], termios.TIOCSCTTY, 0)
            for target, fd in enumerate(self._streams):
                os.dup2(fd, target)
            stage = "cwd"
            os.chdir(self._cwd)
            stage = "confine"
            if "confined" in self._options:
                _confine(self._extra.pop(), self._filter)
            _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(1)
            failure = self._close_others(failure)
            stage = "exec"
            # A variable without a name cannot be handed on.
            env = dict(entry.split(b"=", 1) for entry in self._env if entry[:1] != b"=")
            os.execvpe(self._argv[0], self._argv, env)  # noqa: S606 - no shell is the point
        except OSError as error:
            os.write(failure, f"{error.errno} {stage}".encode())
        finally:
            os._exit(127)

    def _close_others(self, failure: int) -> int:
        """Close all but stdio and what is inherited; what came over a socket would stay open."""
        for _path, fd in self._taken:
            os.close(fd)
        wanted = (failure, *self._extra)
        # Above the numbers that the command expects; the limit may leave few others.
        kept = [fcntl.fcntl(fd, fcntl.F_DUPFD, 3 + len(wanted)) for fd in wanted]
        start = 3
        for fd in sorted(kept):
            os.closerange(start, fd)
            start = fd + 1
        os.closerange(start, _DESCRIPTORS)
        os.set_inheritable(kept[0], False)
        for target, fd in enumerate(kept[1:], start=3):
            os.dup2(fd, target)
            os.close(fd)
        return kept[0]

    def _watch(self, pid: int) -> None:
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._wakeups, select.POLLIN)
        self._group.register(poll)
        is_urgent = False
        while True:
            code, has_more = _reap(pid)
            hit = self._group.hit()
            if hit is None and has_more and code is None:
                hit = self._limits.look(is_urgent=is_urgent)
            if hit is not None:
                self._tell("limit", hit)
            is_last = code is not None and "ends" in self._options
            if is_last and has_more:
                for descendant in resource_use.descendants():
                    _signal(descendant)
            if code is not None:
                # What was signalled runs no more; its end need not be waited for.
                self._release()
                self._tell("exited", code)
            if not has_more:
                return
            if is_last or hit or self._line.fileno() in dict(poll.poll(self._limits.due())):
                break
            is_urgent = signal.SIGUSR1 in self._drain()
        self._group.kill()
        _signal(-pid)
        code = self._sweep(pid)
        self._release()
        self._tell("exited", code)

    def _release(self) -> None:
        """Give up names; the last of their users removes the folders that stand for them."""
        while self._taken:
            path, fd = self._taken.pop()
            with contextlib.suppress(OSError):
                # Refused while others hold it; a folder in which somebody put something stays.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rmdir(path)
            os.close(fd)

    def _sweep(self, pid: int) -> int:
        """Kill every descendant until there is none; gives the exit code of the command.

        A set-user-id program may refuse to go, so this ends at some time.
        """
        found = 128 + signal.SIGKILL
        known: set[int] = set()
        deadline = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < deadline:
            if not known >= (killed := _kill_descendants()):
                # As long as there are new ones, as in a fork bomb, this is not over.
                known |= killed
                deadline = time.monotonic() + _SWEEP_SECONDS
            code, has_more = _reap(pid)
            found = found if code is None else code
            if not has_more:
                break
            # The next one to end wakes us; one that was born meanwhile is found by looking again.
            select.select([self._wakeups], [], [], _LOOK_SECONDS)
            self._drain()
        return found

    def _drain(self) -> bytes:
        """Return the numbers of the signals that came."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._wakeups, 4096)
        return b""

    def _tell(self, word: str, value: object) -> None:
        with contextlib.suppress(OSError):
            self._line.send(f"{word} {value}\n".encode())


def _reap(pid: int) -> tuple[int | None, bool]:
    """Collect what has ended: the command's exit code if it was among them, and if more runs."""
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if ended == 0:
            return code, True
        if ended == pid:
            code = _exit_code(status)


def _kill_descendants() -> set[int]:
    """Kill every process below this one, each as soon as it is found: it could fork meanwhile."""
    found = resource_use.children(os.getpid())[0]
    for pid in found:
        found += resource_use.children(pid)[0]
        _signal(pid)
    return set(found)


def _confine(ruleset: int, steps: bytes) -> None:
    # Root keeps no privilege over the coming exec; others have none, and are told so.
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _control(_PR_SET_NO_NEW_PRIVS, 1)
    if _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    program = ctypes.create_string_buffer(bytes.fromhex(steps.decode()))
    pointed = struct.pack("HP", len(program) // 8, ctypes.addressof(program))
    if _libc.prctl(_PR_SET_SECCOMP, 2, pointed, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def _control(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
