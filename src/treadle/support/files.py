"""Reads files that others put there, whatever they are."""

from __future__ import annotations

import errno
import os
import stat


def read_file(path: str | os.PathLike[str], size: int = -1) -> bytes:
    """What a file holds, or its first bytes; a device holds nothing, and nobody is waited for.

    Raises:
        OSError: it cannot be read, or is no file: a folder, a pipe, a socket.
    """
    # Opening a pipe waits for its other end, and with it would wait all who share the loop.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            return file.read(size)
    os.close(descriptor)
    # /dev/null is how some say "none"; other devices never end.
    if stat.S_ISCHR(mode):
        return b""
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    reason = os.strerror(number) if stat.S_ISDIR(mode) else "not a file"
    raise OSError(number, reason, os.fspath(path))
