"""Copies a folder of a stranger: regular files only, within limits, and without following links."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.engine.plugins.ids import BadPlugin
from treadle.support.files.reading import open_regular, read_up_to

Keeps: TypeAlias = Callable[[str], bool]

MAX_DEPTH: Final = 32
_CHUNK: Final = 1024 * 1024
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_SKIPPED: Final = frozenset({".git"})
"""The history of a repository is not a part of a plugin."""


class CopyLimits(Struct):
    """How many entries and bytes may still be copied."""

    entries: int = 10_000
    size: int = 256 * 1024 * 1024

    def take(self, *, entries: int = 0, size: int = 0) -> None:
        """Count what is copied.

        Raises:
            BadPlugin: it is more than allowed.
        """
        self.entries -= entries
        self.size -= size
        if self.entries < 0 or self.size < 0:
            raise BadPlugin("the folder has too many files or bytes")


def copy_folder(
    source: Path,
    target: Path,
    limits: CopyLimits,
    *,
    keeps: Keeps | None = None,
) -> None:
    """Copy a folder to a new one, private to its owner; special files are left out.

    So are links, unless `keeps` is given: it returns whether to copy the file at a relative path,
    and links that lead to a place inside are copied as links.

    Raises:
        BadPlugin: it has more than the limits allow, or more than `MAX_DEPTH` levels.
        OSError: it cannot be copied.
    """
    # The folder itself may be reached through links; those inside it are not followed.
    descriptor = os.open(os.path.realpath(source), _FOLDER)
    try:
        _copy(descriptor, target, "", limits, keeps)
    finally:
        os.close(descriptor)


def _copy(source: int, top: Path, path: str, limits: CopyLimits, keeps: Keeps | None) -> None:
    if path.count("/") > MAX_DEPTH:
        raise BadPlugin(f"the folder has more than {MAX_DEPTH} levels")
    target = top / path
    target.mkdir(0o700)
    with os.scandir(source) as entries:
        names = [entry.name for entry in entries if _counted(limits)]
    for name in names:
        if name in _SKIPPED:
            continue
        below = f"{path}{name}"
        mode = os.lstat(name, dir_fd=source).st_mode
        if stat.S_ISDIR(mode):
            folder = os.open(name, _FOLDER, dir_fd=source)
            try:
                _copy(folder, top, f"{below}/", limits, keeps)
            finally:
                os.close(folder)
        elif keeps is not None and not keeps(below):
            continue
        elif stat.S_ISREG(mode):
            _copy_file(source, name, target / name, limits)
        elif stat.S_ISLNK(mode) and keeps is not None:
            _copy_link(os.readlink(name, dir_fd=source), target / name, path)


def _copy_link(text: str, target: Path, folder: str) -> None:
    """Copy a link in a folder, given by its relative path, if it leads to a place inside."""
    if not text.startswith("/") and not os.path.normpath(f"{folder}{text}").startswith(".."):
        target.symlink_to(text)


def _counted(limits: CopyLimits) -> bool:
    limits.take(entries=1)
    return True


def _copy_file(folder: int, name: str, target: Path, limits: CopyLimits) -> None:
    descriptor = open_regular(name, dir_fd=folder, follow_symlinks=False)
    try:
        is_program = os.fstat(descriptor).st_mode & stat.S_IXUSR
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags, 0o700 if is_program else 0o600), "wb") as copy:
            while piece := read_up_to(descriptor, _CHUNK):
                limits.take(size=len(piece))
                copy.write(piece)
    finally:
        os.close(descriptor)
