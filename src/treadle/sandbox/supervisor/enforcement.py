"""How a guard enforces limits on its command, and how the supervisor decides when to check.

The kernel enforces limits per process where it can. The rest applies to everything that a command
started: the guard adds it up from /proc. It checks when the supervisor has seen the machine's use
grow, and rarely otherwise, so that an idle command costs nothing.
"""

# Part of the supervisor program: few imports, and nothing of this package.
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import contextlib
import os
import resource
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
if TYPE_CHECKING or __package__:
    from treadle.sandbox.supervisor import resource_use
else:
    import resource_use

TICK_SECONDS = 0.2
"""How often the supervisor checks the machine while commands with limits run."""

# A limit is checked when the machine's use has grown by this part of it.
_PART = 8
# A command that has written less than this did not fill the file system.
_WROTE = 16 * 1024**2
# Faster than any disk: bounds how soon the free space could be used up.
_BYTES_PER_SECOND = 4 * 1024**3
_SOONEST, _LATEST, _LATEST_LOW = 0.1, 30.0, 1.0
# Scanning a large process tree takes time: use at most a fifth of it for that.
_REST = 4
_CPU_GRACE, _OOM_SCORE, _SPARE = 5, 500, 2048
_CORES = os.cpu_count() or 1
_IN_MEMORY = (b"tmpfs", b"ramfs", b"fuse")
_UNREADABLE, _read = resource_use.UNREADABLE, resource_use.read


class Signs:
    """The machine's total use: cheap to read, and it grows whenever a command's use grows."""

    def __init__(self) -> None:
        self._steps: list[int | None] = [None, None, None]
        self._lowest: list[int] = []

    def expect(self, order: bytes) -> bool:
        """Monitor for a command; return False if it has no limits."""
        words = order.split()
        if len(words) != len(self._steps):
            return False
        for place, word in enumerate(words):
            if word != b"-":
                step, before = max(1, int(word) // _PART), self._steps[place]
                self._steps[place] = step if before is None else min(before, step)
        if not self._lowest:
            self._lowest = _machine()
        return True

    def forget(self) -> None:
        """Stop monitoring: no command with limits runs."""
        self._steps, self._lowest = [None, None, None], []

    def have_grown(self) -> bool:
        """Return whether use has grown by a part of a limit since this was last true."""
        now = _machine()
        for step, before, after in zip(self._steps, self._lowest, now, strict=True):
            if step is not None and after - before >= step:
                self._lowest = now
                return True
        self._lowest = list(map(min, self._lowest, now))
        return False


def _machine() -> list[int]:
    """Return the threads, the bytes of memory and the open files of the whole machine.

    A value that cannot be read, because /proc is incomplete, is 0 and never grows.
    """
    found = [0, 0, 0]
    with contextlib.suppress(*_UNREADABLE):
        found[0] = int(_read("/proc/loadavg").split()[3].partition(b"/")[2])
    with contextlib.suppress(*_UNREADABLE):
        memory = _read("/proc/meminfo").partition(b"MemAvailable:")[2]
        found[1] = -1024 * int(memory.split(None, 1)[0])
    with contextlib.suppress(*_UNREADABLE):
        found[2] = int(_read("/proc/sys/fs/file-nr").split()[0])
    return found


class LimitEnforcer:
    """The limits of one command, on the guard's side."""

    def __init__(
        self, words: str, folders: list[bytes], poll: Callable[[int], object] = lambda _: None
    ) -> None:
        # Returns something if the command is to be killed anyway.
        self._poll = poll
        given = dict(word.split("=") for word in words.split())
        self.values = {key: int(value) for key, value in given.items()}
        # Those that the guard checks.
        self._limits = dict(self.values)
        self._folders = folders if "reserve" in self._limits else []
        self._wait = 1.0
        self._next_walk = self._earliest = time.monotonic() + self._wait
        # Delayed: most commands have ended by then.
        self._next_disk = time.monotonic() + _SOONEST if self._folders else float("inf")
        self._disk_wait = _SOONEST
        self._free: list[int] = []
        # The values before the command: hidden use is estimated from their change.
        self._free_before = [_free(folder) for folder in self._folders]
        self._shared_before = resource_use.shared() if "memory" in self._limits else 0

    def leave_out(self, keys: set[str]) -> None:
        """Do not check these: the kernel enforces them for the whole command."""
        for key in keys:
            self._limits.pop(key, None)

    # -- in the command's own process

    def apply(self) -> None:
        """Set the limits that the kernel enforces per process; refused ones are checked anyway."""
        if not self.values:
            return
        # With 0 the kernel still starts the program that handles core dumps, if there is one.
        _limit(resource.RLIMIT_CORE, 1)
        get = self.values.get
        if files := get("open_files"):
            # The soft limit stays: programs that use select() fail with larger numbers.
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            lower = files if soft == resource.RLIM_INFINITY else min(soft, files)
            _limit(resource.RLIMIT_NOFILE, lower, files)
        if size := get("file_size"):
            _limit(resource.RLIMIT_FSIZE, size)
        if seconds := get("cpu_seconds"):
            _limit(resource.RLIMIT_CPU, seconds, seconds + _CPU_GRACE)
        if (processes := get("processes")) and os.getuid() != 0 and (threads := _machine()[0]):
            # The kernel counts all processes of the user, which are fewer than those of the
            # machine. It gives the command no reason, so the guard should act first.
            _limit(resource.RLIMIT_NPROC, threads + max(_SPARE, 2 * processes))
        with contextlib.suppress(OSError):
            os.nice(get("nice", 0))
        with contextlib.suppress(*_UNREADABLE), open("/proc/self/oom_score_adj", "r+b", 0) as file:
            file.write(str(max(_OOM_SCORE, int(file.read()))).encode())

    # -- in the guard

    def due(self) -> int | None:
        """Return the milliseconds until the next check; `None` if there is nothing to check."""
        if not self._limits:
            return None
        return max(0, round((min(self._next_walk, self._next_disk) - time.monotonic()) * 1000)) + 1

    def look(self, *, is_urgent: bool) -> str | None:
        """Return the limit that the command has exceeded, if any, in the form for the server."""
        if not self._limits:
            return None
        now = time.monotonic()
        if is_urgent:
            self._wait, self._next_walk = 1.0, max(self._earliest, now)
        hit = None
        # A failing guard would leave the command's processes behind.
        with contextlib.suppress(*_UNREADABLE):
            if now >= self._next_disk:
                self._next_disk = now + _LATEST_LOW
                hit = self._look_at_disks(now)
        with contextlib.suppress(*_UNREADABLE, resource_use.Stopped):
            if hit is None and now >= self._next_walk:
                self._next_walk = now + _LATEST
                hit = self._look_at_processes()
        return hit

    def _look_at_processes(self) -> str | None:
        began = time.monotonic()
        limits = self._limits
        use = resource_use.Use(limits, self._shared_before, lambda: bool(self._poll(0)))
        use.add_up()
        now = time.monotonic()
        self._wait = min(2 * self._wait, _LATEST)
        self._earliest = now + _REST * (now - began)
        self._next_walk = max(self._earliest, now + self._wait)
        if "cpu_seconds" in limits:
            left = max(0.0, limits["cpu_seconds"] - use.cpu_seconds)
            self._next_walk = min(self._next_walk, now + max(_SOONEST, left / _CORES))
        for key, limit in limits.items():
            if use.is_over(key, limit):
                return key
        return None

    def _look_at_disks(self, now: float) -> str | None:
        before, self._free, wait = self._free, [], _LATEST
        for place, folder in enumerate(self._folders):
            with contextlib.suppress(OSError):
                disk = os.statvfs(folder)
                share = disk.f_blocks * disk.f_frsize * self._limits["permille"] // 1000
                free = disk.f_bavail * disk.f_frsize - min(self._limits["reserve"], share)
                self._free.append(free)
                if free >= 0:
                    wait = min(wait, max(_SOONEST, free / _BYTES_PER_SECOND))
                    continue
                if self._written(place, folder) >= _WROTE:
                    return f"disk_reserve {place}"
                wait = _SOONEST
        # If nothing is written, the free space stays the same: check less and less often.
        if before == self._free:
            wait = max(wait, min(2 * self._disk_wait, _LATEST_LOW))
        self._disk_wait = wait
        self._next_disk = now + wait
        return None

    def _written(self, place: int, folder: bytes) -> int:
        """Return the bytes that the guard's descendants wrote to disks, including dead ones."""
        # The kernel counts writes to disks. For other file systems, use all writes.
        counted = b"\nwchar:" if _is_in_memory(os.stat(folder).st_dev) else b"\nwrite_bytes:"
        total = 0
        for pid in (os.getpid(), *resource_use.descendants()):
            try:
                text = b"\n" + _read(f"/proc/{pid}/io")
                total += int(text.partition(counted)[2].split()[0])
            except PermissionError:
                # The process is unreadable: it may have written everything since the start.
                total = max(total, self._free_before[place] - _free(folder))
            except (OSError, IndexError):
                continue
        return total


def _free(folder: bytes) -> int:
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize
    return 0


def _is_in_memory(device: int) -> bool:
    name = f"{os.major(device)}:{os.minor(device)}".encode()
    for line in _read("/proc/self/mountinfo").splitlines():
        if line.split()[2] == name:
            return line.partition(b" - ")[2].startswith(_IN_MEMORY)
    return False


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, or keep the one in force if it is lower."""
    most = resource.getrlimit(kind)[1]
    wanted = soft if hard is None else hard
    hard = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (min(soft, hard), hard))
