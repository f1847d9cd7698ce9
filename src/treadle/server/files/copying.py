"""Copies files and folders of any depth while commands may change both ends.

Below the two paths that the client names, no link is followed: a command could have put it there,
to write to a folder outside its sandbox, or to have one copied.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path
from threading import Event
from typing import BinaryIO, Final

from msgspec import Struct

from treadle.support.files.reading import FileTooLarge, open_regular
from treadle.support.files.writing import fill_file, make_with_parents

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK
_INNER: Final = _FOLDER | os.O_NOFOLLOW
_CHUNK: Final = 1024 * 1024
MAX_UNSIZED: Final = 64 * 1024 * 1024
"""What is copied of a file that reports no size: some of the kernel's files never end."""


class CopyStopped(OSError):
    """The client that asked for the copy has left."""

    def __init__(self) -> None:
        super().__init__(errno.ECANCELED, os.strerror(errno.ECANCELED))


class _Level(Struct):
    """A folder on the way down: the identity of both copies, and the folders still to copy."""

    source: os.stat_result
    target: os.stat_result
    folders: list[str]


class _Pair(Struct):
    """The current folder at both ends."""

    source: int
    target: int
    stop: Event

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)


def copy_file(
    source: Path,
    destination: Path,
    stop: Event,
    *,
    folder: int | None = None,
    target: int | None = None,
) -> None:
    """Copy a regular file; with descriptors, both are names in these folders.

    Raises:
        CopyStopped: `stop` was set meanwhile.
        FileTooLarge: the source reports no size, and does not end.
        NotRegularFile: the source is not a regular file.
        OSError: the source is a link by now, or with descriptors the destination is one.
    """
    descriptor = open_regular(source, dir_fd=folder, follow_symlinks=False)
    with FileIO(descriptor) as original:
        status = os.fstat(descriptor)
        with suppress(FileNotFoundError):
            there = os.stat(destination, dir_fd=target, follow_symlinks=target is None)
            if os.path.samestat(status, there):
                return  # emptying the destination first would empty the source

        def fill(copied: BinaryIO) -> None:
            original.seek(0)
            if status.st_size == 0:
                if _copy_bytes(original, copied, MAX_UNSIZED, stop) == 0:
                    raise FileTooLarge(source, MAX_UNSIZED)
            elif stat.S_ISREG(os.fstat(copied.fileno()).st_mode):
                _copy_data(original, copied, status.st_size, stop)
            else:
                _copy_bytes(original, copied, status.st_size, stop)

        fill_file(destination, fill, stat.S_IMODE(status.st_mode), folder=target)


def _copy_data(original: FileIO, copied: BinaryIO, size: int, stop: Event) -> None:
    """Copy a file up to its size at the start; what is not on the disk stays a hole."""
    at = 0
    while (at := _seek(original, at, os.SEEK_DATA, size)) < size:
        end = _seek(original, at, os.SEEK_HOLE, size)
        original.seek(at)
        copied.seek(at)
        if _copy_bytes(original, copied, end - at, stop) > 0:
            return  # it became shorter, or is a file of the kernel
        at = end
    copied.truncate(size)


def _seek(original: FileIO, at: int, whence: int, size: int) -> int:
    """Return where the next data or the next hole begins, at most the size."""
    try:
        return min(original.seek(at, whence), size)
    except OSError as error:
        if error.errno != errno.ENXIO and whence == os.SEEK_DATA:
            return at  # a file system that knows no holes
        return size


def _copy_bytes(original: FileIO, copied: BinaryIO, size: int, stop: Event) -> int:
    """Copy at most so many bytes from here on; return how many the file did not have."""
    while size > 0:
        if stop.is_set():
            raise CopyStopped
        piece = original.read(min(size, _CHUNK))
        if not piece:
            break
        copied.write(piece)
        size -= len(piece)
    return size


def copy_folder(source: Path, destination: Path, stop: Event) -> None:
    """Copy a folder and its content into an existing or new one, with a few descriptors.

    Raises:
        CopyStopped: `stop` was set meanwhile.
        OSError: something cannot be copied, is in the way, or was moved meanwhile.
    """
    here = os.open(source, _INNER)
    try:
        make_with_parents(destination, _mode(os.fstat(here)))
        pair = _Pair(here, os.open(destination, _FOLDER), stop)
    except BaseException:
        os.close(here)
        raise
    try:
        levels = [_copy_entries(pair)]
        while len(levels) > 1 or levels[0].folders:
            _move(pair, _down(levels, pair) if levels[-1].folders else _up(levels, pair))
    finally:
        pair.close()


def _move(pair: _Pair, following: _Pair) -> None:
    pair.close()
    pair.source, pair.target = following.source, following.target


def _down(levels: list[_Level], pair: _Pair) -> _Pair:
    """Enter the next folder, and create it at the other end."""
    name = levels[-1].folders.pop()
    source = os.open(name, _INNER, dir_fd=pair.source)
    try:
        status = os.fstat(source)
        _check_differs(status, levels[0].target, name)
        with suppress(FileExistsError):
            os.mkdir(name, _mode(status), dir_fd=pair.target)
        below = _Pair(source, os.open(name, _INNER, dir_fd=pair.target), pair.stop)
    except BaseException:
        os.close(source)
        raise
    try:
        levels.append(_copy_entries(below))
    except BaseException:
        below.close()
        raise
    return below


def _check_differs(source: os.stat_result, target: os.stat_result, name: str) -> None:
    if os.path.samestat(source, target):
        raise OSError(errno.EINVAL, "the destination was moved into the source", name)


def _up(levels: list[_Level], pair: _Pair) -> _Pair:
    levels.pop()
    source = _above(pair.source, levels[-1].source)
    try:
        return _Pair(source, _above(pair.target, levels[-1].target), pair.stop)
    except BaseException:
        os.close(source)
        raise


def _above(folder: int, status: os.stat_result) -> int:
    above = os.open("..", _INNER, dir_fd=folder)
    if not os.path.samestat(os.fstat(above), status):
        os.close(above)
        raise OSError(errno.EBUSY, "the folder was moved while it was copied")
    return above


def _copy_entries(pair: _Pair) -> _Level:
    """Copy everything but the folders in a folder; special files are left out."""
    folders: list[str] = []
    with os.scandir(pair.source) as entries:
        children = list(entries)
    for entry in children:
        if pair.stop.is_set():
            raise CopyStopped
        mode = entry.stat(follow_symlinks=False).st_mode
        name = Path(entry.name)
        if stat.S_ISDIR(mode):
            folders.append(entry.name)
        elif stat.S_ISLNK(mode):
            link = os.readlink(entry.name, dir_fd=pair.source)
            os.symlink(link, entry.name, dir_fd=pair.target)
        elif stat.S_ISREG(mode):
            copy_file(name, name, pair.stop, folder=pair.source, target=pair.target)
    return _Level(os.fstat(pair.source), os.fstat(pair.target), folders)


def _mode(status: os.stat_result) -> int:
    """Return the mode of the copy: a private folder stays private, but has to be filled."""
    return stat.S_IMODE(status.st_mode) | stat.S_IRWXU
