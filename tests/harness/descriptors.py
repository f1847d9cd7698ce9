"""Processes with few file descriptors, or with none left."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def with_limit(soft: int, hard: int, command: Sequence[str]) -> list[str]:
    """Return a command that runs another one with these limits of open files."""
    script = f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$@"'
    return ["sh", "-c", script, "sh", *command]


def open_descriptors(pid: int) -> list[str]:
    """Return what each open descriptor of a process refers to."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:  # closed since the folder was read
            continue
    return found


def descriptor_limits(pid: int) -> tuple[int, int]:
    """Return the soft and the hard limit of open files of a process."""
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


@contextmanager
def no_descriptors(pid: int = 0) -> Iterator[None]:
    """Let a process, by default this one, open nothing until the block ends."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
