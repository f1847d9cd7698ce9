"""Finds a cgroup below which this server may create others, and prepares it.

It must be delegated: by systemd (`Delegate=yes`), or as the root cgroup of a container. The kernel
enables controllers only below a cgroup without processes, so the server moves into a leaf if it is
alone in the cgroup.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

CONTROLLERS: Final = frozenset({"memory", "pids"})
_USEFUL: Final = frozenset({"cpu"})
_PREFIX: Final = "treadle-"
_LEAF: Final = "server"
_MARKS: Final = ("user.delegate", "trusted.delegate")


def delegated_group(needed: frozenset[str] = CONTROLLERS) -> Path | None:
    """Return a cgroup for this server's commands, with controllers enabled below it, or `None`."""
    try:
        base = own_cgroup()
        if base is None or not _is_delegated(base) or not os.access(base.path, os.W_OK):
            return None
        available = frozenset((base.path / "cgroup.controllers").read_text("ascii").split())
        if not needed <= available:
            return None
        _remove_stale(base.path)
        return _prepare(base.path, needed, available & _USEFUL)
    except (OSError, ValueError) as error:
        logger.debug("cgroups not available for commands: %s", error)
        return None


class OwnCgroup:
    """The cgroup of this process as a folder."""

    def __init__(self, path: Path, *, is_top: bool) -> None:
        self.path = path
        # Whether nothing above it is visible, as in a container.
        self.is_top = is_top


def own_cgroup() -> OwnCgroup | None:
    """Find the cgroup (version 2) of this process; `None` if it is not visible."""
    lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None or ".." in Path(own).parts:
        return None
    for root, mount in _mounts():
        if Path(own).is_relative_to(root):
            inner = Path(own).relative_to(root)
            return OwnCgroup(Path(mount) / inner, is_top=inner == Path())
    return None


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield where cgroups of version 2 are mounted: the mounted part, and the mount point."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            yield fields.split()[3], fields.split()[4]


def _is_delegated(base: OwnCgroup) -> bool:
    if base.is_top:
        return True
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(base.path, mark) == b"1":
                return True
    return False


def _prepare(base: Path, needed: frozenset[str], useful: frozenset[str]) -> Path:
    group = base / f"{_PREFIX}{os.getpid()}-{_started(os.getpid())}"
    group.mkdir(exist_ok=True)
    try:
        _open(base, group, needed)
    except OSError:
        with contextlib.suppress(OSError):
            (base / "cgroup.procs").write_text("0", "ascii")
        _remove(group)
        raise
    for controller in useful:
        # An equal CPU share for each command, however many processes it has.
        _ = _enable(base, {controller}) and _enable(group, {controller})
    return group


def _open(base: Path, group: Path, needed: frozenset[str]) -> None:
    """Enable controllers for child cgroups; the server moves into a leaf if necessary."""
    if not _enable(base, needed):
        if (base / "cgroup.procs").read_text("ascii").split() != [str(os.getpid())]:
            raise OSError("the cgroup of the server contains other processes")
        leaf = group / _LEAF
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text("0", "ascii")
        if not _enable(base, needed):
            raise OSError("controllers cannot be enabled")
    if not _enable(group, needed):
        raise OSError("controllers cannot be enabled for commands")


def _enable(folder: Path, controllers: frozenset[str] | set[str]) -> bool:
    """Enable controllers for child cgroups; return False if the kernel refuses."""
    file = folder / "cgroup.subtree_control"
    if controllers <= set(file.read_text("ascii").split()):
        return True
    try:
        file.write_text(" ".join(f"+{name}" for name in sorted(controllers)), "ascii")
    except OSError:
        return False
    return True


def _remove_stale(base: Path) -> None:
    """Remove the cgroups of servers that have ended."""
    for group in base.glob(f"{_PREFIX}*-*"):
        pid, _, started = group.name.removeprefix(_PREFIX).partition("-")
        if pid.isdigit() and _started(int(pid)) != started:
            _remove(group)


def _remove(group: Path) -> None:
    """Remove a cgroup and its children, unless guards of a killed server still use it."""
    with contextlib.suppress(OSError):
        for inner in group.iterdir():
            if inner.is_dir():
                with contextlib.suppress(OSError):
                    inner.rmdir()
        group.rmdir()


def _started(pid: int) -> str | None:
    """Return the start time of a process in ticks, which differs if its number is reused."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None
