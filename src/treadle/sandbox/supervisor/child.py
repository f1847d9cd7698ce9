"""What a launched process is to the one that launched it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from treadle.sandbox.limits import Bounds


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The descriptors that a command gets as its stdin, stdout and stderr."""

    stdin: int
    stdout: int
    stderr: int
    # All three are one terminal, which is to be the command's own.
    is_terminal: bool = False
    # Where a command that has a gate hands its listener out.
    gate: int | None = None
    # What the command may use; `None` for one that has no limits.
    bounds: Bounds | None = None


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A running command: how it ends, and how to end it."""

    pid: int
    exited: asyncio.Future[int]
    kill: Callable[[], None]
    # Why it was killed, if it was for a limit; known when it has ended.
    limit_hit: Callable[[], str | None] = lambda: None
