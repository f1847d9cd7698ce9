"""Other names of a path: a folder can be mounted in several places."""

# Paths are text here, as everywhere in the sandbox.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.sandbox.paths import is_within

_TABLE: Final = Path("/proc/self/mountinfo")
# Files in these are settings of the kernel, or of programs that it runs.
_OF_KERNEL: Final = frozenset(
    b"binfmt_misc bpf cgroup cgroup2 configfs debugfs efivarfs fusectl proc pstore resctrl "
    b"securityfs selinuxfs smackfs sysfs tracefs".split()
)
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


class _Mount(Struct, frozen=True):
    device: bytes
    # The part of the file system that is mounted, and the mount point.
    root: str
    point: str
    kind: bytes


class Mounts:
    """The mounts of this process, as the kernel lists them."""

    def __init__(self, table: bytes) -> None:
        self.table = table
        self._all = [_mount(line) for line in table.splitlines()]
        devices = [mount.device for mount in self._all]
        # Most file systems are mounted once and have no second name.
        self._repeated = [mount for mount in self._all if devices.count(mount.device) > 1]

    def of_kernel(self) -> list[str]:
        """Return the places of the kernel's own file systems, without those inside another one."""
        points = [mount.point for mount in self._all if mount.kind in _OF_KERNEL]
        return [
            point
            for point in dict.fromkeys(points)
            if not any(point != other and is_within(point, other) for other in points)
        ]

    def other_names(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield the other places of a path without links, each with the part visible there.

        The part is empty for the path itself, and relative where only part of it is mounted.
        """
        if not self._repeated:
            return
        # Of two mounts at one point, the later one hides the other.
        holders = [mount for mount in self._all if is_within(path, mount.point)]
        holder = max(reversed(holders), key=lambda mount: len(mount.point), default=None)
        if holder is None:
            return
        place = _moved(path, holder.point, holder.root)
        for mount in self._repeated:
            if mount.device != holder.device or mount is holder:
                continue
            if is_within(place, mount.root):
                yield _moved(place, mount.root, mount.point), ""
            elif is_within(mount.root, place):
                yield mount.point, mount.root[len(place.rstrip("/")) + 1 :]


def read_mounts(known: Mounts) -> Mounts:
    """Return the current mounts; cached while nothing changed."""
    try:
        table = _TABLE.read_bytes()
    except OSError:
        table = b""  # this system has no such list
    return known if table == known.table else Mounts(table)


def _mount(line: bytes) -> _Mount:
    fields = line.split(b" ")
    root, point = (_ESCAPE.sub(_unescaped, field) for field in fields[3:5])
    kind = line.partition(b" - ")[2].split(b" ", 1)[0]
    return _Mount(fields[2], os.fsdecode(root), os.fsdecode(point), kind)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


def _moved(path: str, old: str, new: str) -> str:
    """Translate a path in one folder to the same path in another one."""
    rest = path[len(old.rstrip("/")) + 1 :]
    return os.path.join(new, rest) if rest else new
