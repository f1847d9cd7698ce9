"""Path functions for policies and backends."""

# Paths are strings here: they become arguments of other programs.
# ruff: noqa: PTH113, PTH115, PTH116, PTH118, PTH119, PTH120, PTH207

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from treadle.support.files.links import follow
from treadle.support.files.reading import NotRegularFile, read_file

_MATCHES: Final = 10_000
_POINTER: Final = "gitdir:"
_POINTER_BYTES: Final = 16 * 1024


def real(path: str, name: str | None = None) -> str:
    """Resolve the links of a path; with a name, resolve the folder and append the name.

    A path with too many links leads nowhere: its last part keeps them.
    """
    resolved = follow(path).place
    return resolved if name is None else os.path.join(resolved, os.path.basename(name))


def find_program(name: str, *, cwd: str, path: str) -> str | None:
    """Find a program as a command started in a folder would."""
    folders = [""] if "/" in name else path.split(os.pathsep)
    for folder in folders:
        place = os.path.join(cwd, folder, name)
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return None


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it; both are absolute and without `..`."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


Identity: TypeAlias = tuple[int, int]
"""The device and inode of a file or folder, which identify it under any name."""


def identity(path: str) -> Identity | None:
    """Return the identity of what a path leads to now; `None` if nothing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def parents(path: str) -> Iterator[str]:
    """Yield the folders above an absolute path without `..`, nearest first."""
    while path != "/":
        path = path[: path.rfind("/")] or "/"
        yield path


def open_place(path: str) -> int:
    """Open a path without links, as a descriptor that can be mounted.

    Raises:
        OSError: it is missing, or contains a link by now.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # With these flags the last link itself is opened, which has the name that was asked for.
        is_link = stat.S_ISLNK(os.fstat(descriptor).st_mode)
        place = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        os.close(descriptor)
        raise
    if is_link or place != path:
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return descriptor


def is_out_of_reach(path: str) -> bool:
    """Return whether another user owns a path in a sticky folder, so that we cannot replace it."""
    try:
        found, parent = os.lstat(path), os.lstat(os.path.dirname(path))
    except OSError:
        return False
    is_ours = os.geteuid() in (found.st_uid, parent.st_uid)
    is_open = not stat.S_ISLNK(found.st_mode) and os.access(path, os.W_OK)
    return bool(parent.st_mode & stat.S_ISVTX) and not is_ours and not is_open


def is_irreplaceable(path: str) -> bool:
    """Return whether the user may neither rename nor remove a path."""
    holder = os.path.dirname(path)
    try:
        found, parent = os.lstat(path), os.lstat(holder)
    except OSError:
        return False
    if parent.st_uid == os.geteuid():
        return False
    is_kept = bool(parent.st_mode & stat.S_ISVTX) and found.st_uid != os.geteuid()
    return is_kept or not os.access(holder, os.W_OK)


def change_time(path: str) -> int | None:
    """Return the change time of a path, without following links; `None` if it is missing."""
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return None


def links(path: str) -> tuple[str, ...]:
    """Return the links on the way to what a path names."""
    return follow(path).links


def resolve(path: str, may_follow: Callable[[str], bool]) -> str:
    """Return a path without links; `may_follow` judges each link on the way.

    Links that the kernel follows by itself, such as `/proc/self/fd/1`, stay as they are.

    Raises:
        OSError: the path has a link that may not be followed, or too many links.
    """
    way = follow(path)
    if way.is_too_long or not all(map(may_follow, way.links)):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return way.place


def between(folder: str, path: str) -> Iterator[str]:
    """Yield the folders between a folder and a path below it."""
    inner = path[len(folder.rstrip("/")) + 1 :].split("/")[:-1]
    for name in inner:
        folder = os.path.join(folder, name)
        yield folder


def matches(pattern: str) -> list[str]:
    """Return the current matches of a pattern: a sandbox consists of paths, not patterns."""
    return list(islice(glob.iglob(pattern, recursive=True, include_hidden=True), _MATCHES))


def git_folders(root: str) -> list[str]:
    """Return the actual repository folder if `.git` is a file that points to it.

    Raises:
        OSError: there is such a file, and it cannot be read.
    """
    text = _text(root, ".git")
    if not text.startswith(_POINTER):
        return []
    folder = real(os.path.join(root, text[len(_POINTER) :].strip()))
    common = _text(folder, "commondir").strip()
    return [folder, real(os.path.join(folder, common))] if common else [folder]


def _text(folder: str, name: str) -> str:
    """Return the start of a file; nothing if there is none."""
    try:
        data = read_file(os.path.join(folder, name), _POINTER_BYTES)
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return ""
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return ""
    return data.partition(b"\0")[0].decode("utf-8", "replace")
