"""Which file systems of this machine set reliable change times."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_DATING: Final = frozenset("bcachefs btrfs ext2 ext3 ext4 f2fs overlay ramfs tmpfs xfs zfs".split())


def dates_renames(path: str) -> bool:
    """Return whether a rename of this file or folder is known to set its change time.

    POSIX does not require it. Remote and userspace file systems (NFS, 9p, virtiofs, FUSE) also use
    another clock, so only those count that are known to use the clock of this kernel.
    """
    if sys.platform == "darwin":
        return True
    return _type_of(path) in _DATING


def _type_of(path: str) -> str | None:
    """Return the type of the file system of a path, without following links."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            about = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii")
        finally:
            os.close(descriptor)
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return None
    number = next((x.split()[1] for x in about.splitlines() if x.startswith("mnt_id:")), "")
    for mount in mounts:
        if mount.startswith(f"{number} ".encode()):
            return mount.partition(b" - ")[2].split()[0].decode("ascii", "replace")
    return None
