"""Writes files so that no crash and no power cut leaves a part of one.

`replace_file` is for files of our own. `write_file` is for files of the user: it keeps owner, mode,
attributes, links and hard links.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from treadle.support.files.reading import NotRegularFile
from treadle.support.ids import uuid7

SCRATCH: Final = ".treadle-scratch-"
"""How the names of files begin that exist only while another one is being written."""

# Writes all of a file's content; called again if the file could not be replaced at the end.
Fill: TypeAlias = Callable[[BinaryIO], object]

# Where a file cannot be replaced, for these reasons, it may still be possible to write into it.
_CANNOT_REPLACE: Final = frozenset(
    {errno.EACCES, errno.EBUSY, errno.ENOENT, errno.EPERM, errno.EROFS, errno.EXDEV}
)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Give a file new content: after a crash or a power cut it has the old or the new whole.

    Its folder, and the names of new folders above it, are on the disk when this returns.

    Raises:
        OSError: it cannot be written, and is as it was.
    """
    folders = make_folders(path.parent)
    # Its own name, so that two writers do not share it; a hidden one, so that none reads it.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    for folder in folders:
        sync_folder(folder)


def make_folders(path: Path) -> list[Path]:
    """Make a folder that is its owner's alone; returns the folders to sync for what is in it."""
    folders = [path]
    for folder in (path, *path.parents):
        if folder.exists():
            break
        folders.append(folder.parent)
    make_with_parents(path, 0o700)
    return folders


def make_with_parents(path: Path, mode: int = 0o777) -> None:
    """Make a folder of that mode and the folders above it; all of them may be there already.

    Not as `Path.mkdir`, which goes one call deeper for each folder that is missing.

    Raises:
        OSError: it cannot be made.
    """
    missing = [path]
    while not _is_made(missing[-1], mode if len(missing) == 1 else 0o777):
        missing.append(missing[-1].parent)
    for folder in missing[-2:0:-1]:
        folder.mkdir(exist_ok=True)
    if len(missing) > 1:
        path.mkdir(mode, exist_ok=True)


def _is_made(folder: Path, mode: int) -> bool:
    """Make a folder if it is not there; false if the one above it is missing."""
    try:
        folder.mkdir(mode, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        return False
    return True


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Put the names in a folder on the disk: what was created, renamed or removed there.

    Raises:
        OSError: it cannot be synced.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # it may be entered and written, but only what can be read can be synced
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a folder; they have nothing better to offer.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Create a file, or replace all it holds; readers see the old or the new content whole.

    It is on the disk when this returns.

    Raises:
        NotRegularFile: a pipe is in its place.
    """

    def fill(file: BinaryIO) -> None:
        file.write(data)
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())

    fill_file(path, fill)
    sync_folder(real_path(path).parent)


def fill_file(path: Path, fill: Fill, mode: int | None = None) -> None:
    """Have a file's content written, beside it where possible; `mode` is kept if none is given."""
    target = real_path(path)
    try:
        # Replacing a file asks for no right to write to it, so that is asked for here.
        descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        _replace(target, fill, None, mode)
        return
    with os.fdopen(descriptor, "wb") as file:
        known = os.fstat(descriptor)
        if stat.S_ISFIFO(known.st_mode):
            # Whoever reads it may take its time, and a thread of the server would wait.
            raise NotRegularFile(errno.EINVAL, "not a file", os.fspath(path))
        is_file = stat.S_ISREG(known.st_mode)
        # Other names of the same file are to see the new content too.
        if is_file and known.st_nlink == 1 and _can_replace(target, fill, known, mode):
            return
        os.set_blocking(descriptor, True)
        if is_file:
            file.truncate()
        fill(file)
        if is_file and mode is not None:
            os.fchmod(descriptor, mode)


def _can_replace(target: Path, fill: Fill, known: os.stat_result, mode: int | None) -> bool:
    try:
        _replace(target, fill, known, mode)
    except OSError as error:
        if error.errno not in _CANNOT_REPLACE:
            raise
        return False
    return True


def _replace(target: Path, fill: Fill, known: os.stat_result | None, mode: int | None) -> None:
    scratch = target.with_name(f"{SCRATCH}{uuid7()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(scratch, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if known is not None:
                _make_alike(descriptor, scratch, target, known)
            fill(file)
            if mode is not None:
                os.fchmod(descriptor, mode)
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _make_alike(descriptor: int, scratch: Path, target: Path, known: os.stat_result) -> None:
    """Give a new file the owner, the mode and the attributes of the one that it replaces."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (known.st_uid, known.st_gid):
        os.fchown(descriptor, known.st_uid, known.st_gid)
    shutil.copystat(target, scratch)
    os.utime(scratch)  # but not its times


def real_path(path: Path) -> Path:
    """Follow every link of a path; one that leads to itself is left as it is."""
    # Not Path.resolve, which before Python 3.13 does not take links that lead to themselves.
    return Path(os.path.realpath(path))
