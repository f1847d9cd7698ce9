"""Resource limits for commands: their values, their configuration and their messages.

`supervisor/enforcement.py` enforces them.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field

from treadle.support.files.descriptors import descriptor_limit

Setting: TypeAlias = int | str
"""A value in `[sandbox.limits]`: a number, a size, a percentage, or "none"."""

_MIB: Final = 1024**2
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?) ?%")
_OFF: Final = "none"
_MAX: Final = 2**62
# Most commands need at least this many processes.
_FEWEST: Final = 64
# For all programs of a user; the server's own connections are among them.
_WATCHES: Final = "/proc/sys/fs/epoll/max_user_watches"
_WATCHES_PART, _FEWEST_WATCHES = 8, 1024
# A shell reports these when the kernel kills a program for its CPU time or file size.
_OUT_OF_CPU, _FILE_TOO_LARGE = 128 + 24, 128 + 25


class BadLimit(ValueError):
    """A limit in the configuration has an invalid value."""

    def __init__(self, key: str, value: Setting, expected: str) -> None:
        super().__init__(f"sandbox.limits.{key} is {value!r}, expected {expected}")
        self.key = key


class Reserve(Struct, frozen=True):
    """Free space that commands must leave on a file system: the smaller of both."""

    size: int
    permille: int = 1000

    def on(self, total: int) -> int:
        """Return the bytes to leave free on a file system of this size."""
        return min(self.size, total * self.permille // 1000)


class CommandLimits(Struct, frozen=True, kw_only=True):
    """What one command and everything that it starts may use; `None` means unlimited."""

    processes: int | None = None
    memory: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    disk_reserve: Reserve | None = None
    nice: int = 0
    output_file: int | None = None

    @property
    def epoll_watches(self) -> int | None:
        """The files registered with epoll: a part of what all programs of the user may have."""
        most = None if self.open_files is None else _first_number([_WATCHES])
        return None if most is None else max(_FEWEST_WATCHES, most // _WATCHES_PART)

    def words(self) -> str:
        """The limits in the form that the guard reads."""
        values = {
            "processes": self.processes,
            "memory": self.memory,
            "cpu_seconds": self.cpu_seconds,
            "open_files": self.open_files,
            "epoll_watches": self.epoll_watches,
            "file_size": self.file_size,
            "nice": self.nice or None,
        }
        if self.disk_reserve is not None:
            values["reserve"] = self.disk_reserve.size
            values["permille"] = self.disk_reserve.permille
        return " ".join(f"{key}={value}" for key, value in values.items() if value is not None)


class Bounds(Struct, frozen=True):
    """The limits of one command, and the folders whose file systems it could fill."""

    limits: CommandLimits = field(default_factory=CommandLimits)
    folders: tuple[str, ...] = ()

    def reason(self, key: str, place: int = 0) -> str:
        """Describe the limit that a command was killed for."""
        limits = self.limits
        match key:
            case "processes":
                fault = f"more than {limits.processes:,} processes and threads"
            case "memory":
                fault = f"more than {shown(limits.memory)} of memory"
            case "cpu_seconds":
                fault = f"more than {limits.cpu_seconds:,} seconds of CPU time"
            case "open_files":
                fault = f"far more than {limits.open_files:,} open files in all its processes"
            case "epoll_watches":
                fault, key = f"more than {limits.epoll_watches:,} epoll watches", "open_files"
            case "file_size":
                fault = f"a file larger than {shown(limits.file_size)}"
            case _:
                folder = self.folders[place] if place < len(self.folders) else "the workspace"
                fault = f"too little space left on the file system of {folder}"
        return f"killed: {fault} (sandbox.limits.{key})"

    def reason_of_exit(self, code: int) -> str | None:
        """Return the description of a kernel-enforced limit that an exit code indicates, if any."""
        if code == _FILE_TOO_LARGE and self.limits.file_size is not None:
            return self.reason("file_size")
        if code == _OUT_OF_CPU and self.limits.cpu_seconds is not None:
            return self.reason("cpu_seconds")
        return None


def shown(size: int | None) -> str:
    """Format a size for people."""
    value, unit = float(size or 0), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}".replace(".0 ", " ")


# -- the configuration

_COUNT: Final = 'a whole number of at least {}, or 0 or "none" for no limit'
_BYTES: Final = 'bytes, a size such as "4GiB", or 0 or "none" for no limit'
_PART: Final = 'bytes, a size such as "4GiB", a share such as "75%", or 0 or "none" for no limit'
_NICE: Final = "a whole number from 0 to 19"
_WORST: Final = 19


def read_limits(table: Mapping[str, Setting]) -> CommandLimits:
    """Read `[sandbox.limits]`; missing keys have their default.

    Raises:
        BadLimit: a value is invalid.
    """
    return CommandLimits(
        processes=_count(table, "processes", _default_processes()),
        memory=_size(table, "memory", memory_of_machine() * 3 // 4, whole=memory_of_machine()),
        cpu_seconds=_count(table, "cpu_seconds", None),
        open_files=_count(table, "open_files", descriptor_limit() // 2, least=16),
        file_size=_size(table, "file_size", None),
        disk_reserve=_reserve(table),
        nice=_nice(table),
        output_file=_size(table, "output_file", 1024 * _MIB),
    )


@cache
def default_limits() -> CommandLimits:
    """Return the default limits."""
    return read_limits({})


def _count(
    table: Mapping[str, Setting], key: str, default: int | None, *, least: int = 1
) -> int | None:
    value = table.get(key, default)
    if value is None or value in (_OFF, 0):
        return None
    if isinstance(value, str) or not least <= value < _MAX:
        raise BadLimit(key, value, _COUNT.format(least))
    return value


def _nice(table: Mapping[str, Setting]) -> int:
    value = table.get("nice", 5)
    if value == _OFF:
        return 0
    if isinstance(value, str) or not 0 <= value <= _WORST:
        raise BadLimit("nice", value, _NICE)
    return value


def _size(
    table: Mapping[str, Setting], key: str, default: int | None, *, whole: int | None = None
) -> int | None:
    value = table.get(key, default)
    if value is None or value == _OFF:
        return None
    size, expected = None, _BYTES if whole is None else _PART
    if isinstance(value, int):
        size = value
    elif match := _SIZE.fullmatch(value.strip().lower()):
        unit = _UNITS.get(match[2])
        size = None if unit is None else round(float(match[1]) * unit)
    elif whole is not None and (permille := _permille(value)) is not None:
        size = whole * permille // 1000
    if size is None or not 0 <= size < _MAX:
        raise BadLimit(key, value, expected)
    return size or None


def _reserve(table: Mapping[str, Setting]) -> Reserve | None:
    value = table.get("disk_reserve")
    if value is None:
        return Reserve(512 * _MIB, 20)
    if isinstance(value, str) and (permille := _permille(value)) is not None:
        return Reserve(_MAX, permille)
    # A percentage was attempted: the message lists what is expected.
    size = _size(table, "disk_reserve", None, whole=0)
    return None if size is None else Reserve(size)


def _permille(value: str) -> int | None:
    match = _SHARE.fullmatch(value.strip())
    permille = round(float(match[1]) * 10) if match else 0
    return permille if 0 < permille <= 1000 else None


# -- the machine


def _default_processes() -> int:
    """4096, more on a machine with many cores, and at most half of what the server may have."""
    wanted = max(4096, 256 * (os.cpu_count() or 1))
    # The server itself needs threads even while a command uses all that it may have.
    bounds = [_first_number(["/proc/sys/kernel/pid_max"]), _first_number(_cgroup_files("pids"))]
    if os.geteuid() != 0:  # the kernel does not enforce it for root
        bounds.append(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    least = min((bound for bound in bounds if bound is not None and bound > 0), default=2 * wanted)
    return max(_FEWEST, min(wanted, least // 2))


@cache
def memory_of_machine() -> int:
    """Return the maximum memory of this process: the machine's, or its cgroup's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = _first_number(_cgroup_files("memory"))
    return total if found is None else min(total, found)


def _cgroup_files(controller: str) -> Iterable[str]:
    """Return the files that may hold a limit: of our own cgroup if visible, else of the mount."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    top = "/sys/fs/cgroup"
    for path in (own.get(""), ""):
        if path is not None:
            yield f"{top}{path}/{controller}.max"
    older = {"memory": "memory.limit_in_bytes"}.get(controller, f"{controller}.max")
    for path in (own.get(controller), ""):
        if path is not None:
            yield f"{top}/{controller}{path}/{older}"


def _first_number(paths: Iterable[str]) -> int | None:
    """Read the first file that contains a number."""
    for path in paths:
        try:
            return int(Path(path).read_bytes())
        except (OSError, ValueError):  # missing, or "max"
            continue
    return None
