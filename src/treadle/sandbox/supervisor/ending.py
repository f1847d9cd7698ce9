"""How a guard ends everything that its command has started.

A process that forks and ends at once, again and again, is gone when its number is known. In
a Landlock domain, the guard signals all processes of the domain by one call, during which none can
fork. Without one it must be faster than they are: it spends no time on those that have ended.
"""

# Part of the supervisor program: few imports, and nothing of this package.

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from treadle.sandbox.supervisor import resource_use
else:
    import resource_use

_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_SCOPE_SIGNALS = 2
_SWEEP_SECONDS, _LOOK_SECONDS = 5.0, 0.02
# So many rounds wait for the kernel's signals; a tree that still grows then is outrun.
_PATIENT_ROUNDS = 10
# So many ended processes are reaped before the guard attends to anything else.
_BATCH = 1024

_libc = ctypes.CDLL(None, use_errno=True)


def _enter_domain() -> bool:
    """Enter a Landlock domain out of which neither this process nor its children can signal.

    Returns False where Linux is older than 6.12, or does not enforce it.
    """
    attributes = struct.pack("=QQQ", 0, 0, _SCOPE_SIGNALS)
    ruleset = _libc.syscall(
        _LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0
    )
    if ruleset < 0:
        return False
    try:
        if _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0) != 0:
            return False
        if _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            return False
    finally:
        os.close(ruleset)
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


class Descendants:
    """The processes below this guard: its command and all that was started by it."""

    def __init__(self) -> None:
        # Whether all processes that the guard may signal are among these.
        self._are_contained = False
        self._is_behind = False
        self.wakeups, self._writer = os.pipe()
        os.set_blocking(self.wakeups, False)
        os.set_blocking(self._writer, False)

    def contain(self) -> None:
        """Let this process and the descendants signal each other only, where Linux can."""
        self._are_contained = _enter_domain()

    def watch(self) -> None:
        """Write the numbers of signals to `wakeups`."""
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def drain(self) -> bytes:
        """Return the numbers of the received signals."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.wakeups, 4096)
        return b""

    def reap(self, pid: int) -> tuple[int | None, bool]:
        """Reap ended children; return the command's exit code if it ended, and whether more run."""
        code, self._is_behind = None, False
        for _ in range(_BATCH):
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code, False
            if ended == 0:
                return code, True
            if ended == pid:
                code = _exit_code(status)
        # There may be more; no further signal announces them.
        self._is_behind = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"\0")
        return code, True

    def kill(self, known: list[int] | None = None) -> list[int]:
        """Kill all processes; return those directly below this one.

        `known`: they are looked through only if they are still the same.
        """
        if self._are_contained:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return []
        found = resource_use.children(os.getpid())[0]
        # The newest first: most of the others have ended in a tree that grows.
        for pid in reversed(found):
            _kill(pid)
        # What a killed process leaves is found here next time, but some cannot be killed.
        if known is None or found == known:
            below = list(found)
            for pid in below:
                new = resource_use.children(pid)[0]
                for child in new:
                    _kill(child)
                below += new
        return found

    def sweep(self, pid: int) -> int:
        """Kill every descendant until none is left; return the exit code of the command.

        A set-user-id program may survive, so this has a time limit.
        """
        code = 128 + signal.SIGKILL
        known: list[int] = []
        rounds, deadline = 0, time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < deadline:
            ended, has_more = self.reap(pid)
            code = code if ended is None else ended
            if not has_more:
                break
            rounds += 1
            is_growing = rounds > _PATIENT_ROUNDS or self._is_behind
            if is_growing and not self._are_contained:
                self._leave_to_the_kernel()
            found = self.kill(known)
            if found != known:
                # Continue while there are new ones, as in a fork bomb.
                known, deadline = found, time.monotonic() + _SWEEP_SECONDS
                if is_growing:
                    continue
            # The next exit wakes us; the next scan finds processes forked meanwhile.
            select.select([self.wakeups], [], [], _LOOK_SECONDS)
            self.drain()
        return code

    def _leave_to_the_kernel(self) -> None:
        """Let the kernel reap what ends from now on: a list without ended processes is short."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
