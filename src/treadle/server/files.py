"""What clients do with files, one blocking function each; knows no wire.

Errors are `OSError`s as the system gives them, and `FileRefused` for what it would allow. Nothing
here follows a symbolic link out of a folder that is copied or removed.
"""

from __future__ import annotations

import errno
import heapq
import os
import shutil
import stat
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from treadle.protocol.fs import FsGetMetadataResponse, FsReadDirectoryEntry
from treadle.support.files import FileTooLarge as TooLarge
from treadle.support.files import (
    NotRegularFile,
    make_with_parents,
    open_regular,
    read_regular,
    sync_folder,
)
from treadle.support.folders import remove_folder
from treadle.support.ids import uuid7

SCRATCH: Final = ".treadle-scratch-"
"""How the names of files begin that exist only while another one is being written."""

MAX_ENTRIES: Final = 100_000
"""The largest folder that is listed: the answer is one message."""

# Writes all of a file's content; called again if the file could not be replaced at the end.
Fill: TypeAlias = Callable[[BinaryIO], object]

_CHUNK: Final = 1024 * 1024
_SORTED: Final = 4096
# Where a file cannot be replaced, for these reasons, it may still be possible to write into it.
_CANNOT_REPLACE: Final = frozenset(
    {errno.EACCES, errno.EBUSY, errno.ENOENT, errno.EPERM, errno.EROFS, errno.EXDEV}
)


class FileRefused(Exception):
    """The request is not one for this kind of file."""


class FileTooLarge(FileRefused):
    """The file does not fit into an answer."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"file is too large to read: limit is {limit} bytes")
        self.limit = limit


class FolderTooLarge(FileRefused):
    """The folder holds more than fits into an answer."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"directory is too large to list: limit is {limit} entries")
        self.limit = limit


def read(path: Path, limit: int) -> bytes:
    """All that a file holds.

    Raises:
        FileRefused: it is no regular file, or holds more than `limit` bytes.
    """
    try:
        return read_regular(path, limit)
    except NotRegularFile as error:
        raise FileRefused(f"path `{path}` is not a file") from error
    except TooLarge as error:
        raise FileTooLarge(limit) from error


def _opened(path: Path) -> BinaryIO:
    try:
        return os.fdopen(open_regular(path), "rb")
    except NotRegularFile as error:
        raise FileRefused(f"path `{path}` is not a file") from error


def write(path: Path, data: bytes) -> None:
    """Create a file, or replace all it holds; whoever reads it sees the old or the new whole.

    It is on the disk when this returns.

    Raises:
        FileRefused: something else than a file or a device is in its place.
    """

    def fill(file: BinaryIO) -> None:
        file.write(data)
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())

    _fill(path, fill)
    sync_folder(_real(path).parent)


def make_folder(path: Path, *, with_parents: bool) -> None:
    """Make a folder; with its parents, it may be there already."""
    if with_parents:
        make_with_parents(path)
    else:
        path.mkdir()


def describe(path: Path) -> FsGetMetadataResponse:
    """What a path leads to, and whether a link is on the way."""
    is_symlink = path.is_symlink()
    found = path.stat()
    return FsGetMetadataResponse(
        created_at_ms=max(0, int(getattr(found, "st_birthtime", 0) * 1000)),
        is_directory=stat.S_ISDIR(found.st_mode),
        is_file=stat.S_ISREG(found.st_mode),
        is_symlink=is_symlink,
        modified_at_ms=max(0, found.st_mtime_ns // 1_000_000),
    )


def children(path: Path) -> list[FsReadDirectoryEntry]:
    """What a folder holds, by name; links that lead nowhere are left out.

    Raises:
        FolderTooLarge: it holds more than fits into an answer.
    """
    found: list[FsReadDirectoryEntry] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(found) == MAX_ENTRIES:
                raise FolderTooLarge(MAX_ENTRIES)
            try:
                mode = entry.stat().st_mode
            except OSError:
                continue
            name = readable(entry.name)
            found.append(FsReadDirectoryEntry(name, stat.S_ISDIR(mode), stat.S_ISREG(mode)))
    return _sorted(found)


def _sorted(entries: list[FsReadDirectoryEntry]) -> list[FsReadDirectoryEntry]:
    """By name; in pieces, for sorting all of a large folder holds the interpreter for long."""
    by_name = attrgetter("file_name")
    pieces = [
        sorted(entries[start : start + _SORTED], key=by_name)
        for start in range(0, len(entries), _SORTED)
    ]
    if len(pieces) <= 1:
        return pieces[0] if pieces else []
    return [entry for entry in heapq.merge(*pieces, key=by_name)]  # noqa: C416 - a call of `list` would hold it as well


def readable(path: str) -> str:
    """A path as text that JSON can carry, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "replace")


def remove(path: Path, *, recursive: bool, force: bool) -> None:
    """Delete a file, a link or a folder; with `force`, it may be gone already.

    Raises:
        FileRefused: it is the root of all files.
    """
    if path == Path(path.anchor):
        raise FileRefused("fs/remove cannot remove the root directory")
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
        elif recursive:
            remove_folder(path)
        else:
            path.rmdir()
    except FileNotFoundError:
        # What vanished may have been something inside, by somebody else's hand.
        if not force or os.path.lexists(path):
            raise


def copy(source: Path, destination: Path, *, recursive: bool) -> None:
    """Copy a file, a link as a link, or a folder into what is at the destination already.

    Raises:
        FileRefused: it is a folder and may not be one, it would contain itself, or it is no file.
    """
    mode = source.lstat().st_mode
    if stat.S_ISLNK(mode):
        destination.symlink_to(source.readlink())
    elif stat.S_ISREG(mode):
        _copy_file(source, destination)
    elif not stat.S_ISDIR(mode):
        raise FileRefused("fs/copy only supports regular files, directories, and symlinks")
    elif not recursive:
        raise FileRefused("fs/copy requires recursive: true when sourcePath is a directory")
    elif _real(destination).is_relative_to(_real(source)):
        raise FileRefused("fs/copy cannot copy a directory to itself or one of its descendants")
    else:
        _copy_folder(source, destination)


def _copy_folder(source: Path, destination: Path) -> None:
    left = [(source, destination)]
    while left:
        folder, target = left.pop()
        # A private folder stays private; ours it must be, or nothing could be put into it.
        mode = stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU
        make_with_parents(target, mode)
        for child in folder.iterdir():
            child_mode = child.lstat().st_mode
            if stat.S_ISDIR(child_mode):
                left.append((child, target / child.name))
            elif stat.S_ISLNK(child_mode):
                (target / child.name).symlink_to(child.readlink())
            elif stat.S_ISREG(child_mode):
                _copy_file(child, target / child.name)


def _copy_file(source: Path, destination: Path) -> None:
    with _opened(source) as original:
        found = os.fstat(original.fileno())
        try:
            if os.path.samestat(found, destination.stat()):
                return  # emptying the destination first would empty the source
        except FileNotFoundError:
            pass

        def fill(copied: BinaryIO) -> None:
            original.seek(0)
            shutil.copyfileobj(original, copied, _CHUNK)

        _fill(destination, fill, stat.S_IMODE(found.st_mode))


def _fill(path: Path, fill: Fill, mode: int | None = None) -> None:
    """Have a file's content written, beside it where possible; `mode` is kept if none is given."""
    target = _real(path)
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
            raise FileRefused(f"path `{path}` is not a file")
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


def _real(path: Path) -> Path:
    # Not Path.resolve, which before Python 3.13 does not take links that lead to themselves.
    return Path(os.path.realpath(path))
