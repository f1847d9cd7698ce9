"""The supervisor program: starts commands that have no process namespace, and kills them.

The server sends it commands over a socket. For each it forks a guard, which adopts whatever the
command leaves behind: nothing that a command starts can escape its guard, neither by a new session
nor by a double fork. The guard kills all of it when the server closes the command's socket, which
also happens when the server dies.

It is run by its path with as few imports as possible, and imports nothing of this package except
the files beside it.
"""

# client.py is the other side of its messages. No pathlib and no subprocess: importing them takes
# longer than all the rest, and the first command waits for it.
# ruff: noqa: PTH100, PTH106, PTH120, PTH123

from __future__ import annotations

import contextlib
import ctypes
import errno
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

    from treadle.sandbox.supervisor import command_cgroup, ending, enforcement
else:
    # Last and only for this: no file beside this one may replace a standard module.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import command_cgroup
    import ending
    import enforcement

    sys.path.pop()

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_PR_CAPBSET_DROP, _CAPABILITIES = 24, 64
_LANDLOCK_RESTRICT_SELF = 446
_DESCRIPTORS, _MOST_FDS, _MORE_FOLLOW = 2**31 - 1, 250, b"+"
# The modes of placeholders, as in placeholders.py.
_PLACEHOLDER, _OPEN_PLACEHOLDER = 0o1555, 0o1755
# The command that these descriptors belong to was abandoned.
_FORGET = b"0"

# What Python or the guard has changed, and a command needs in its default state.
_DEFAULTS = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Fork a guard for each command, until the server disconnects."""
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
    # The parts of one command, which may take several messages.
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
                _guard(fds, cgroup)
            watch.add(guard, data)
        except OSError as error:
            # Out of processes: one command cannot start, the supervisor continues.
            os.write(fds[0], f"failed {error.errno} fork\n".encode())
        _close_all(fds)


def _guard(fds: list[int], cgroup: str | None) -> NoReturn:
    """Run a command in this process and exit; a fault is reported, because it ends the command."""
    line = fds[0]
    try:
        line = os.dup(line)
        _Guard(fds, cgroup).run()
    except Exception as error:  # noqa: BLE001 - nothing above handles it
        sys.excepthook(type(error), error, error.__traceback__)
        number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
        with contextlib.suppress(OSError):
            # The server ignores it for a command that has started.
            os.write(line, f"failed {number} fork\n".encode())
    finally:
        os._exit(0)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _leave(cgroup: str | None) -> None:
    """Remove the server's cgroup if possible; otherwise the next server does."""
    if cgroup is not None:
        with contextlib.suppress(OSError):
            os.rmdir(cgroup)


class _Watch:
    """The running guards; those with limits are woken when the machine's use grows."""

    def __init__(self) -> None:
        self._signs = enforcement.Signs()
        self._limited: set[int] = set()
        self._next = 0.0

    @property
    def milliseconds(self) -> int | None:
        """Return the maximum time to wait for the next command."""
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
    """Set the soft limit for commands: the server has raised its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Guard:
    """Starts one command, reports its exit, and kills what it leaves behind."""

    def __init__(self, fds: list[int], cgroup: str | None) -> None:
        self._line = socket.socket(fileno=fds[0])
        self._hang_up = select.poll()
        self._hang_up.register(self._line, select.POLLIN)
        with open(fds[1], "rb") as order:
            order.seek(0)
            fields = order.read().split(b"\0")
        self._options, self._cwd, self._filter = fields[0].decode().split(), fields[1], fields[2]
        words, names, folders = map(int, fields[4:7])
        self._argv, fields = fields[7 : 7 + words], [*fields[:4], *fields[7 + words :]]
        taken, watched = fields[4 : 4 + names], fields[4 + names : 4 + names + folders]
        self._env = fields[4 + names + folders :]
        self._limits = enforcement.LimitEnforcer(fields[3].decode(), watched, self._hang_up.poll)
        values = self._limits.values
        self._group = command_cgroup.Group(cgroup if values else None, values)
        self._limits.leave_out(self._group.enforced)
        self._streams, rest = fds[2:5], fds[5:]
        # Placeholders that are held until the command has ended, each with its lock.
        self._taken = list(zip(taken, rest, strict=False))
        # A Landlock ruleset to apply, or otherwise for the command to inherit.
        self._extra = rest[names:]
        self._descendants = ending.Descendants()

    def run(self) -> None:
        try:
            self._run()
        finally:
            self._group.remove()

    def _run(self) -> None:
        self._descendants.watch()
        _control(_PR_SET_CHILD_SUBREAPER, 1)
        if "confined" in self._options:
            self._descendants.contain()
        pid = self._start()
        if pid is None:
            return
        for fd in (*self._streams, *self._extra):
            os.close(fd)
        self._watch(pid)

    def _start(self) -> int | None:
        """Fork the command; return `None` after reporting that it could not start."""
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
            self._report("failed", message.decode())
            return None
        self._report("started", pid)
        return pid

    def _become(self, failure: int, guard: int) -> NoReturn:
        """Execute the command; report an error before that over a pipe."""
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
            # A variable without a name cannot be passed on.
            env = dict(entry.split(b"=", 1) for entry in self._env if entry[:1] != b"=")
            _execute(self._argv, env)
        except OSError as error:
            os.write(failure, f"{error.errno} {stage}".encode())
        finally:
            os._exit(127)

    def _close_others(self, failure: int) -> int:
        """Close all but stdio and what is inherited; received descriptors would stay open."""
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
        poll.register(self._descendants.wakeups, select.POLLIN)
        self._group.register(poll)
        is_urgent = False
        while True:
            code, has_more = self._descendants.reap(pid)
            hit = self._group.hit()
            if hit is None and has_more and code is None:
                hit = self._limits.look(is_urgent=is_urgent)
            if hit is not None:
                self._report("limit", hit)
            is_last = code is not None and "ends" in self._options
            if is_last and has_more:
                self._descendants.kill()
            if code is not None:
                # Killed processes no longer run; there is no need to wait for their end.
                self._release()
                self._report("exited", code)
            if not has_more:
                return
            if is_last or hit or self._line.fileno() in dict(poll.poll(self._limits.due())):
                break
            is_urgent = signal.SIGUSR1 in self._descendants.drain()
        self._group.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-pid, signal.SIGKILL)
        code = self._descendants.sweep(pid)
        self._release()
        self._report("exited", code)

    def _release(self) -> None:
        """Release the placeholders; the last of their users removes the folders."""
        while self._taken:
            order, fd = self._taken.pop()
            # An entry in a placeholder that a command had locked; see placeholders.py.
            path, _, entry = order.partition(b"//")
            with contextlib.suppress(OSError):
                if entry:
                    os.fchmod(fd, _OPEN_PLACEHOLDER)
                    os.unlink(entry, dir_fd=fd)
                    os.fchmod(fd, _PLACEHOLDER)
                # Fails while others hold it, and if the folder is not empty.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.lstat(path), os.fstat(fd)):
                    os.rmdir(path)
            os.close(fd)

    def _report(self, word: str, value: object) -> None:
        with contextlib.suppress(OSError):
            self._line.send(f"{word} {value}\n".encode())


def _confine(ruleset: int, steps: bytes) -> None:
    # Root drops its privileges for the coming exec; for other users the call fails.
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _control(_PR_SET_NO_NEW_PRIVS, 1)
    if _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    program = ctypes.create_string_buffer(bytes.fromhex(steps.decode()))
    pointed = struct.pack("HP", len(program) // 8, ctypes.addressof(program))
    if _libc.prctl(_PR_SET_SECCOMP, 2, pointed, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def _execute(argv: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    """Become a program, which is searched for in `PATH` if it is named without a folder.

    Relative and empty folders are skipped: they depend on where the command starts.
    """
    program, path = argv[0], env.get(b"PATH", os.defpath.encode())
    folders = [folder for folder in path.split(b":") if folder.startswith(b"/")]
    places = [program] if b"/" in program else [b"%s/%s" % (each, program) for each in folders]
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    refusal: OSError | None = None
    for place in places:
        try:
            os.execve(place, argv, env)  # noqa: S606 - no shell is the point
        except (FileNotFoundError, NotADirectoryError) as error:
            failure = error
        except OSError as error:
            refusal = refusal or error
    raise refusal or failure


def _control(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main()
