"""Copies a folder of a stranger: regular files only, within limits, and without following links."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from treadle.engine.plugins.documents import is_within
from treadle.engine.plugins.ids import BadPlugin
from treadle.support.files.reading import open_regular, read_up_to
from treadle.support.files.unlinked import open_folder

Keeps: TypeAlias = Callable[[str], bool]

MAX_DEPTH: Final = 32
_MAX_STEPS: Final = 500
"""How many names a link may lead through, with those of the links on its way."""

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
    root: Path,
    keeps: Keeps | None = None,
) -> None:
    """Copy a folder to a new one, private to its owner; special files are left out.

    So are links, unless `keeps` is given: it returns whether to copy the file at a relative path,
    and links that lead to a place inside are copied as links.

    Raises:
        BadPlugin: it is outside of `root`, has more than the limits allow, or more than `MAX_DEPTH`
            levels.
        OSError: it cannot be copied.
    """
    # The folder itself may be reached through links; those inside it are not followed.
    real = Path(os.path.realpath(source))
    if not is_within(real, root):
        raise BadPlugin("the path is a link that leads outside")
    place = open_folder(str(real))
    try:
        descriptor = os.open(".", _FOLDER, dir_fd=place)
    finally:
        os.close(place)
    links: list[Path] = []
    try:
        _Copy(target, limits, keeps, links).folder(descriptor, "")
    finally:
        os.close(descriptor)
    for link in links:
        if not _stays_inside(link, target):
            link.unlink()


class _Copy(NamedTuple):
    """One copy: where it goes, what it may still take, and the links that it has made."""

    top: Path
    limits: CopyLimits
    keeps: Keeps | None
    links: list[Path]

    def folder(self, source: int, path: str) -> None:
        """Copy an open folder to a relative path, which ends with a slash."""
        if path.count("/") > MAX_DEPTH:
            raise BadPlugin(f"the folder has more than {MAX_DEPTH} levels")
        target = self.top / path
        target.mkdir(0o700)
        with os.scandir(source) as entries:
            names = [entry.name for entry in entries if _counted(self.limits)]
        for name in names:
            if name not in _SKIPPED:
                self._entry(source, name, f"{path}{name}")

    def _entry(self, source: int, name: str, path: str) -> None:
        mode = os.lstat(name, dir_fd=source).st_mode
        if stat.S_ISDIR(mode):
            folder = os.open(name, _FOLDER, dir_fd=source)
            try:
                self.folder(folder, f"{path}/")
            finally:
                os.close(folder)
        elif self.keeps is not None and not self.keeps(path):
            return
        elif stat.S_ISREG(mode):
            _copy_file(source, name, self.top / path, self.limits)
        elif stat.S_ISLNK(mode) and self.keeps is not None:
            link = self.top / path
            link.symlink_to(os.readlink(name, dir_fd=source))
            self.links.append(link)


def _stays_inside(link: Path, top: Path) -> bool:
    """Return whether a link leads to a place below a folder and never leaves it on the way."""
    at, parts = link.parent, [link.name]
    for _ in range(_MAX_STEPS):
        if not parts:
            return True
        part = parts.pop(0)
        if part == "..":
            if at == top:
                return False
            at = at.parent
        elif (at / part).is_symlink():
            text = str((at / part).readlink())
            if text.startswith("/"):
                return False
            parts = [*_parts(text), *parts]
        else:
            at /= part
    return False


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


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
