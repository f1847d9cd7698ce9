"""Reads files that a client, a model or a repository names, of any type.

No call here waits for another process or reads without bound: only a regular file is read, the
check is made on the open descriptor, and the caller sets the limit.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

# O_NONBLOCK: opening a pipe waits for its other end. O_NOCTTY: a terminal must not become ours.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK: Final = 1024 * 1024


class NotRegularFile(OSError):
    """A folder, a pipe, a socket or a device was found instead of a file."""


class FileTooLarge(OSError):
    """The file is larger than the caller's limit."""

    def __init__(self, path: str | os.PathLike[str], limit: int) -> None:
        super().__init__(errno.EFBIG, f"larger than {limit} bytes", os.fspath(path))
        self.limit = limit


def open_regular(
    path: str | os.PathLike[str], *, dir_fd: int | None = None, follow_symlinks: bool = True
) -> int:
    """Open a regular file for reading and return its descriptor.

    Raises:
        OSError: it cannot be opened.
        NotRegularFile: it is not a regular file.
    """
    # Before opening: opening alone has effects on some devices.
    _check(os.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks).st_mode, path)
    flags = _READ if follow_symlinks else _READ | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    try:
        # And after: another file may have taken the name meanwhile.
        _check(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise NotRegularFile(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise NotRegularFile(errno.EINVAL, "not a file", os.fspath(path))


def read_up_to(descriptor: int, size: int) -> bytes:
    """Return the next bytes of an open file, at most `size`.

    The size that the system reports is a hint: files of the kernel have none, and others grow.

    Raises:
        OSError: it cannot be read, or only by waiting for its content.
    """
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(descriptor, min(size, _CHUNK))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def read_file(path: str | os.PathLike[str], size: int) -> bytes:
    """Return at most `size` bytes of a file; a character device such as /dev/null is empty.

    Raises:
        OSError: it cannot be read, or is not a file: a folder, a pipe, a socket.
    """
    try:
        descriptor = open_regular(path)
    except NotRegularFile:
        if stat.S_ISCHR(os.stat(path).st_mode):  # noqa: PTH116 - a path may be a plain string
            return b""
        raise
    try:
        return read_up_to(descriptor, size)
    finally:
        os.close(descriptor)


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a regular file; its size is checked before it is read.

    Raises:
        NotRegularFile: it is a folder, a pipe, a socket or a device.
        FileTooLarge: it has more than `limit` bytes.
        OSError: it cannot be read.
    """
    descriptor = open_regular(path)
    try:
        if os.fstat(descriptor).st_size > limit:
            raise FileTooLarge(path, limit)
        data = read_up_to(descriptor, limit + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise FileTooLarge(path, limit)
    return data


def read_whole(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a file; a character device such as /dev/null is empty.

    Raises:
        FileTooLarge: it has more than `limit` bytes.
        OSError: it cannot be read, or is not a file: a folder, a pipe, a socket.
    """
    data = read_file(path, limit + 1)
    if len(data) > limit:
        raise FileTooLarge(path, limit)
    return data
