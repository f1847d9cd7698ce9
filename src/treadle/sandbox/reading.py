"""Reads files for the model: those that its commands may read, and no others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from treadle.support.files.links import Way, follow
from treadle.support.files.reading import open_regular, read_up_to


class NotReadable(PermissionError):
    """Commands may not read the file."""


class Content(NamedTuple):
    """The first bytes of a file, and its size."""

    data: bytes
    size: int


def read_for_model(
    path: str,
    limit: int,
    may_read: Callable[[str], bool],
    may_follow: Callable[[str], bool] | None = None,
) -> Content:
    """Read at most `limit` bytes of a regular file that commands may read.

    The user may name any file. Then `may_follow` returns whether a link is the user's own; other
    links lead only to what commands may read.

    Files of the kernel are empty: they describe the process that reads them, here the server with
    its environment. They are the regular files that report no size and have content.

    Raises:
        NotReadable: commands may not read it.
        OSError: it cannot be read, or is not a regular file.
        ValueError: the path is invalid.
    """
    _check(path, follow(path), may_read, may_follow)
    descriptor = open_regular(path)
    try:
        status = os.fstat(descriptor)
        # A link in the path may have changed since the check: compare with the open file.
        way = follow(path)
        if not os.path.samestat(status, os.lstat(way.place)):
            raise _refusal(path)
        _check(path, way, may_read, may_follow)
        return Content(read_up_to(descriptor, min(limit, status.st_size)), status.st_size)
    finally:
        os.close(descriptor)


def _check(
    path: str,
    way: Way,
    may_read: Callable[[str], bool],
    may_follow: Callable[[str], bool] | None,
) -> None:
    if way.is_too_long:
        # Where it leads is unknown, also if the kernel follows more of it.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    is_named = may_follow is not None and all(map(may_follow, way.links))
    if not is_named and not may_read(way.place):
        raise _refusal(path)


def _refusal(path: str) -> NotReadable:
    return NotReadable(errno.EACCES, "the sandbox does not allow reading", path)
