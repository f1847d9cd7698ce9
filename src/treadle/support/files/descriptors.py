"""File descriptors as a resource: the limit of the process, and errors that say it is used up."""

from __future__ import annotations

import errno
import resource
from typing import Final

SHORTAGES: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS}
)
"""Errors that say nothing about the request: the same one succeeds once resources are free."""

MAX_DESCRIPTORS: Final = 65536
"""How far the soft limit is raised; more would only make closing all descriptors slow."""

_original: list[int] = []


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means that descriptors or memory are used up for now."""
    if isinstance(error, OSError):
        return error.errno in SHORTAGES
    # The loader of extension modules reports everything as an ImportError without a number.
    is_import = isinstance(error, ImportError) and "Too many open files" in str(error)
    return is_import or isinstance(error, MemoryError)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, at most to `MAX_DESCRIPTORS`.

    Returns the limit that is in force afterwards.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _original[:] = [soft]
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def inherited_limit() -> int:
    """Return the soft limit that commands get: the one that this process was started with.

    Programs that use `select` fail with descriptors from 1024 on, so they must not inherit a
    raised limit.
    """
    return _original[0] if _original else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
