"""How a guard holds its command to its limits, and how the keeper notices that one should look.

The kernel enforces what it can per process. The rest is about everything that a command started:
the guard adds it up from /proc. It looks when the keeper has seen the machine fill up, and rarely
otherwise, so that a command that does nothing costs nothing.
"""

# Part of the keeper's program: as little of Python as possible, and nothing of this package.
# ruff: noqa: PTH110, PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import resource
import time

TICK_SECONDS = 0.2
"""How often the keeper looks at the machine while commands with limits run."""

# A limit is looked at when the machine has grown by this part of it.
_PART = 8
# Everything that a command starts may have this many times what one process may have open.
_FILES_IN_ALL = 16
# Who has written less than this is not why a file system is full.
_WROTE = 16 * 1024**2
# Faster than any disk: how soon the space that is left could be gone.
_BYTES_PER_SECOND = 4 * 1024**3
_SOONEST, _LATEST, _LATEST_LOW = 0.1, 30.0, 1.0
# A look at a large tree takes time; at most a fifth of it is spent looking.
_REST = 4
_CPU_GRACE, _OOM_SCORE, _SPARE = 5, 500, 2048
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_CORES = os.cpu_count() or 1
_IN_MEMORY = (b"tmpfs", b"ramfs", b"fuse")
# What reading /proc raises: it is not there, not for us, or has another form.
_UNREADABLE = (OSError, ValueError, IndexError)
# Not every kernel keeps lists of children; without them all processes are asked for their parents.
_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


class Signs:
    """What the whole machine uses: cheap to read, and no command grows without it."""

    def __init__(self) -> None:
        self._steps: list[int | None] = [None, None, None]
        self._lowest: list[int] = []

    def expect(self, order: bytes) -> bool:
        """Watch out for a command; false if it has no limits."""
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
        """No command with limits runs any more."""
        self._steps, self._lowest = [None, None, None], []

    def have_grown(self) -> bool:
        """Whether the machine has grown by a part of a limit since this was last true."""
        now = _machine()
        for step, before, after in zip(self._steps, self._lowest, now, strict=True):
            if step is not None and after - before >= step:
                self._lowest = now
                return True
        self._lowest = list(map(min, self._lowest, now))
        return False


def _machine() -> list[int]:
    """The threads, the bytes of memory in use and the open files of the whole machine.

    What cannot be read here, as where /proc is not all there, is 0 and never grows.
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


class Limits:
    """The limits of one command, on the guard's side."""

    def __init__(self, words: str, folders: list[bytes]) -> None:
        given = dict(word.split("=") for word in words.split())
        self.values = {key: int(value) for key, value in given.items()}
        # Those that the guard looks at.
        self._limits = dict(self.values)
        self._folders = folders if "reserve" in self._limits else []
        self._wait = 1.0
        self._next_walk = self._earliest = time.monotonic() + self._wait
        # Not at once: most commands are over by then.
        self._next_disk = time.monotonic() + _SOONEST if self._folders else float("inf")
        self._disk_wait = _SOONEST
        self._free: list[int] = []

    def leave_out(self, keys: set[str]) -> None:
        """Do not look at these: the kernel enforces them for the whole command."""
        for key in keys:
            self._limits.pop(key, None)

    # -- in the command's own process

    def apply(self) -> None:
        """Put on what the kernel enforces per process; what it refuses is looked at anyway."""
        if not self.values:
            return
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
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
            # The kernel counts all that the user runs, and that is less than what the machine runs.
            # It gives no reason to the command, so the guard should be there first.
            _limit(resource.RLIMIT_NPROC, threads + max(_SPARE, 2 * processes))
        with contextlib.suppress(OSError):
            os.nice(get("nice", 0))
        with contextlib.suppress(*_UNREADABLE), open("/proc/self/oom_score_adj", "r+b", 0) as file:
            file.write(str(max(_OOM_SCORE, int(file.read()))).encode())

    # -- in the guard

    def due(self) -> int | None:
        """Milliseconds until the next look; `None` if there is nothing to look at."""
        if not self._limits:
            return None
        return max(0, round((min(self._next_walk, self._next_disk) - time.monotonic()) * 1000)) + 1

    def look(self, *, is_urgent: bool) -> str | None:
        """Name the limit that the command has gone over, if it has, as the server reads it."""
        if not self._limits:
            return None
        now = time.monotonic()
        if is_urgent:
            self._wait, self._next_walk = 1.0, max(self._earliest, now)
        hit = None
        # A guard that fails would leave what it guards behind.
        with contextlib.suppress(*_UNREADABLE):
            if now >= self._next_disk:
                self._next_disk = now + _LATEST_LOW
                hit = self._look_at_disks(now)
        with contextlib.suppress(*_UNREADABLE):
            if hit is None and now >= self._next_walk:
                self._next_walk = now + _LATEST
                hit = self._look_at_processes()
        return hit

    def _look_at_processes(self) -> str | None:
        began = time.monotonic()
        limits, use = self._limits, _Use(self._limits)
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
                if _written(folder) >= _WROTE:
                    return f"disk_reserve {place}"
                wait = _SOONEST
        # Where nothing is written, the space stays the same: look less and less often.
        if before == self._free:
            wait = max(wait, min(2 * self._disk_wait, _LATEST_LOW))
        self._disk_wait = wait
        self._next_disk = now + wait
        return None


class _Use:
    """What the guard's descendants use, as far as there are limits to it."""

    def __init__(self, limits: dict[str, int]) -> None:
        self._limits = limits
        self.threads = self.memory = self.files = 0
        self.cpu_seconds = 0.0
        self._found: list[int] = []
        # What files without a name hold, by device and number: many may have one open.
        self._nameless: dict[tuple[int, int], int] = {}
        self._tables = 0

    def add_up(self) -> None:
        limits = self._limits
        most = limits.get("processes", 0)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds = used.ru_utime + used.ru_stime
        self._found = found = children(os.getpid())[0]
        for pid in found:
            below, threads = children(pid)
            found += below
            self.threads += threads
            if most and self.threads > most:
                return
            # It may end at any time, and another user's cannot be looked into.
            with contextlib.suppress(*_UNREADABLE):
                if "memory" in limits:
                    self.memory += int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
                    self._tables += _page_tables(pid)
                    self._add_nameless(pid)
                if "cpu_seconds" in limits:
                    times = _read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[11:15]
                    self.cpu_seconds += sum(map(int, times)) / _TICKS
                if "open_files" in limits:
                    self.files += os.stat(f"/proc/{pid}/fd").st_size
        if "memory" in limits:
            self.memory += self._tables + self._unmapped()

    def is_over(self, key: str, limit: int) -> bool:
        if key == "processes":
            return self.threads > limit
        if key == "cpu_seconds":
            return self.cpu_seconds > limit
        if key == "open_files":
            return self.files > _FILES_IN_ALL * limit
        # Pages that processes share were counted once for each of them.
        return key == "memory" and self.memory > limit and self._memory_shared_out() > limit

    def _memory_shared_out(self) -> int:
        """Add up what each process takes, with a page that several share divided among them.

        What is mapped of a file in memory is part of that file, and counts once.
        """
        total = shared = 0
        for pid in self._found:
            with contextlib.suppress(*_UNREADABLE):
                try:
                    rollup = _read(f"/proc/{pid}/smaps_rollup")
                    total += int(rollup.partition(b"\nPss:")[2].split()[0]) * 1024
                    shared += int(rollup.partition(b"\nPss_Shmem:")[2].split()[0]) * 1024
                except OSError:
                    sizes = _read(f"/proc/{pid}/statm").split()
                    total += (int(sizes[1]) - int(sizes[2])) * _PAGE
        return total + self._tables + max(0, self._unmapped() - shared)

    def _unmapped(self) -> int:
        """Memory that may not be mapped by any process: files that are stored in it."""
        return self._devices() + sum(self._nameless.values())

    def _add_nameless(self, pid: int) -> None:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                path = f"/proc/{pid}/fd/{name}"
                if os.readlink(path).startswith("/memfd:"):
                    about = os.stat(path)
                    self._nameless[about.st_dev, about.st_ino] = about.st_blocks * 512

    def _devices(self) -> int:
        """What is stored in the /dev of a sandbox, which is memory that no process has mapped."""
        with contextlib.suppress(OSError, IndexError):
            folder = f"/proc/{self._found[1]}/root/dev"
            if os.stat(folder).st_dev != os.stat("/dev").st_dev:
                disk = os.statvfs(folder)
                return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        return 0


def _page_tables(pid: int) -> int:
    """What the kernel keeps of where the memory of a process is: much, if that is sparse."""
    return int(_read(f"/proc/{pid}/status").partition(b"\nVmPTE:")[2].split()[0]) * 1024


def _written(folder: bytes) -> int:
    """How many bytes the guard's descendants have written to disks, the dead ones included."""
    # The kernel counts what goes to disks. For other file systems take what was written at all.
    counted = b"\nwchar:" if _is_in_memory(os.stat(folder).st_dev) else b"\nwrite_bytes:"
    total = 0
    for pid in (os.getpid(), *descendants()):
        with contextlib.suppress(OSError, IndexError):
            text = b"\n" + _read(f"/proc/{pid}/io")
            total += int(text.partition(counted)[2].split()[0])
    return total


def _is_in_memory(device: int) -> bool:
    name = f"{os.major(device)}:{os.minor(device)}".encode()
    for line in _read("/proc/self/mountinfo").splitlines():
        if line.split()[2] == name:
            return line.partition(b" - ")[2].startswith(_IN_MEMORY)
    return False


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, or the one that is in force if that is lower already."""
    most = resource.getrlimit(kind)[1]
    wanted = soft if hard is None else hard
    hard = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (min(soft, hard), hard))


# -- processes


def descendants() -> list[int]:
    """Every process below this one."""
    found = children(os.getpid())[0]
    for pid in found:
        found += children(pid)[0]
    return found


def children(pid: int) -> tuple[list[int], int]:
    """The children of a process and its number of threads; nothing if it has ended."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found, 0
    if not _LISTS_CHILDREN:
        return [child for child, parent in _parents() if parent == pid], len(threads)
    for thread in threads:
        with contextlib.suppress(OSError):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found, len(threads)


def _parents() -> list[tuple[int, int]]:
    """Every process and its parent."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = _read(f"/proc/{name}/stat")
                # The name of a program may hold anything, so count from its end.
                found.append((int(name), int(stat.rsplit(b")", 1)[1].split()[1])))
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", 0) as file:
        return file.read()
