"""A launched command, as seen by its launcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from treadle.sandbox.limits import Bounds


class Descriptors(Struct, frozen=True):
    """The descriptors that a command is started with, and its limits."""

    stdin: int
    stdout: int
    stderr: int
    # All three are one terminal, which becomes the command's controlling terminal.
    is_terminal: bool = False
    # The socket over which the command passes the listener of its egress proxy.
    proxy: int | None = None
    # The limits of the command, if it has any.
    bounds: Bounds | None = None


class RunningCommand(Struct, frozen=True):
    """A running command: its exit code, and a way to kill it."""

    pid: int
    exited: asyncio.Future[int]
    kill: Callable[[], None]
    # Returns the limit that it exceeded, if any; valid after `exited`.
    limit_hit: Callable[[], str | None] = lambda: None
    # Returns whether `kill` has nothing left to end.
    is_gone: Callable[[], bool] = lambda: False
