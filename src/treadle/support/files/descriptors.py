"""File descriptors as a resource: the limit of the process, and the errors of exhaustion."""

from __future__ import annotations

import errno
import resource
from typing import Final

SHORTAGES: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS}
)
"""Errors that do not depend on the request: a retry succeeds once resources are free."""

MAX_DESCRIPTORS: Final = 65536
"""The maximum soft limit to set; more would only make closing all descriptors slow."""

_original: list[int] = []


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means that descriptors or memory are exhausted for now."""
    if isinstance(error, OSError):
        return error.errno in SHORTAGES
    # The loader of extension modules reports everything as an ImportError without an errno.
    is_import = isinstance(error, ImportError) and "Too many open files" in str(error)
    return is_import or isinstance(error, MemoryError)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, at most to `MAX_DESCRIPTORS`.

    Returns the limit in force afterwards.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _original[:] = [soft]
    target = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def inherited_limit() -> int:
    """Return the soft limit for commands: the one that this process was started with.

    Programs that use `select` fail with descriptors from 1024 on, so they must not inherit a
    raised limit.
    """
    return _original[0] if _original else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
