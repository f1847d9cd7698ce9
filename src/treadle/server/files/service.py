"""File operations for clients, one blocking function each; independent of the protocol.

Errors are `OSError`s of the system, and `FileRefused` for operations that the system would allow.
Nothing here follows a symbolic link out of a folder that is copied or removed.
"""

from __future__ import annotations

import heapq
import os
import stat
from operator import attrgetter
from pathlib import Path
from threading import Event
from typing import Final

from treadle.protocol.fs import FsGetMetadataResponse, FsReadDirectoryEntry
from treadle.server.files.copying import copy_file, copy_folder
from treadle.support.files.birth_time import birth_time_ms
from treadle.support.files.folders import remove_folder
from treadle.support.files.reading import FileTooLarge as TooLarge
from treadle.support.files.reading import NotRegularFile, read_regular
from treadle.support.files.writing import make_with_parents, real_path, write_file

MAX_ENTRIES: Final = 100_000
"""Maximum number of entries in a listing: the answer is one message."""

_SORTED: Final = 4096


class FileRefused(Exception):
    """The operation is not available for this kind of file."""


class FileTooLargeToSend(FileRefused):
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
    """Return the content of a file.

    Raises:
        FileRefused: the path is not a regular file, or holds more than `limit` bytes.
    """
    try:
        return read_regular(path, limit)
    except NotRegularFile as error:
        raise FileRefused(f"path `{path}` is not a file") from error
    except TooLarge as error:
        raise FileTooLargeToSend(limit) from error


def write(path: Path, data: bytes) -> None:
    """Create a file or replace its content; readers see the old or the new content in full.

    The content is on disk when this returns.

    Raises:
        FileRefused: the path is neither a file nor a device.
    """
    try:
        write_file(path, data)
    except NotRegularFile as error:
        raise FileRefused(f"path `{path}` is not a file") from error


def make_folder(path: Path, *, with_parents: bool) -> None:
    """Create a folder; with its parents, it may already exist."""
    if with_parents:
        make_with_parents(path)
    else:
        path.mkdir()


def describe(path: Path) -> FsGetMetadataResponse:
    """Return the metadata of a path's target, and whether the path is a link."""
    is_symlink = path.is_symlink()
    status = path.stat()
    return FsGetMetadataResponse(
        created_at_ms=birth_time_ms(path, status),
        is_directory=stat.S_ISDIR(status.st_mode),
        is_file=stat.S_ISREG(status.st_mode),
        is_symlink=is_symlink,
        modified_at_ms=max(0, status.st_mtime_ns // 1_000_000),
    )


def children(path: Path) -> list[FsReadDirectoryEntry]:
    """Return the entries of a folder by name; dangling links are omitted.

    Raises:
        FolderTooLarge: the folder holds more entries than fit into an answer.
    """
    listing: list[FsReadDirectoryEntry] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(listing) == MAX_ENTRIES:
                raise FolderTooLarge(MAX_ENTRIES)
            try:
                mode = entry.stat().st_mode
            except OSError:
                continue
            name = readable(entry.name)
            listing.append(FsReadDirectoryEntry(name, stat.S_ISDIR(mode), stat.S_ISREG(mode)))
    return _sorted(listing)


def _sorted(entries: list[FsReadDirectoryEntry]) -> list[FsReadDirectoryEntry]:
    """Sort by name, in pieces: sorting a large folder in one call blocks the interpreter."""
    by_name = attrgetter("file_name")
    pieces = [
        sorted(entries[start : start + _SORTED], key=by_name)
        for start in range(0, len(entries), _SORTED)
    ]
    if len(pieces) <= 1:
        return pieces[0] if pieces else []
    return [entry for entry in heapq.merge(*pieces, key=by_name)]  # noqa: C416 - a call of `list` would block it as well


def readable(path: str) -> str:
    """Return a path as text that JSON can carry, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "replace")


def remove(path: Path, *, recursive: bool, force: bool) -> None:
    """Delete a file, a link or a folder; with `force`, it may already be gone.

    Raises:
        FileRefused: the path is the root directory.
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
        # Another program may have removed only an entry inside the folder.
        if not force or os.path.lexists(path):
            raise


def copy(source: Path, destination: Path, stop: Event, *, recursive: bool) -> None:
    """Copy a file, a link as a link, or a folder into an existing or new destination.

    Raises:
        OSError: it cannot be copied, or `stop` was set meanwhile.
        FileRefused: a folder without `recursive` or into itself, or a special file.
    """
    mode = source.lstat().st_mode
    if stat.S_ISLNK(mode):
        destination.symlink_to(source.readlink())
    elif stat.S_ISREG(mode):
        copy_file(source, destination, stop)
    elif not stat.S_ISDIR(mode):
        raise FileRefused("fs/copy only supports regular files, directories, and symlinks")
    elif not recursive:
        raise FileRefused("fs/copy requires recursive: true when sourcePath is a directory")
    elif real_path(destination).is_relative_to(real_path(source)):
        raise FileRefused("fs/copy cannot copy a directory to itself or one of its descendants")
    else:
        copy_folder(source, destination, stop)
