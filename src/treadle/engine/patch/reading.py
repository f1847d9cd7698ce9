"""Reads the files of a patch, and no file that commands may not read."""

from __future__ import annotations

import os
from collections.abc import Callable

from treadle.engine.patch.effort import Effort
from treadle.engine.patch.syntax import PatchError
from treadle.support.files.links import follow
from treadle.support.files.reading import NotRegularFile, open_regular, read_up_to


def read_file(
    path: str,
    limit: int,
    effort: Effort,
    may_read: Callable[[str], bool] = lambda _path: True,
) -> bytes:
    """Read a file; its size is checked first.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger than the limit.
        PatchError: commands may not read it, or the patch reads too much.
    """
    refusal = PatchError(f"the sandbox does not allow reading {path}")
    if not may_read(path):
        raise refusal
    try:
        descriptor = open_regular(path)
    except NotRegularFile as error:
        raise OSError(f"path `{path}` is not a file") from error
    if not _is_readable(path, descriptor, may_read):
        os.close(descriptor)
        raise refusal
    return read_content(descriptor, path, limit, effort)


def _is_readable(path: str, descriptor: int, may_read: Callable[[str], bool]) -> bool:
    """Return whether commands may read an open file, to which a link may have led meanwhile."""
    way = follow(path)
    try:
        is_same = os.path.samestat(os.fstat(descriptor), os.lstat(way.place))
    except OSError:
        return False
    return is_same and not way.is_too_long and may_read(way.place)


def read_content(descriptor: int, path: str, limit: int, effort: Effort) -> bytes:
    """Read an open file, and close it.

    Raises:
        OSError: it cannot be read, is larger than the limit, or is a file of the kernel.
        PatchError: the patch reads too much.
    """
    try:
        size = os.fstat(descriptor).st_size
        if size <= limit:
            effort.add_bytes(size)
            # It may grow meanwhile.
            data = read_up_to(descriptor, limit + 1)
            if data and not size:
                # Such a file describes the process that reads it: here the server.
                raise OSError(f"path `{path}` is a file of the kernel")
            effort.add_bytes(max(0, len(data) - size))
            if len(data) <= limit:
                return data
    finally:
        os.close(descriptor)
    raise OSError(f"path `{path}` is larger than {limit} bytes")
