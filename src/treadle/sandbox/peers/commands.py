"""The record of sandboxed commands that can reach the sockets of the server."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Final

SETTLE_SECONDS: Final = 10.0
"""How long the kernel may keep the sockets of a command that has ended.

It collects sockets in unreceived messages in the background.
"""


@dataclass
class NetworkedCommands:
    """The sandboxed commands of a server that share the network of the machine."""

    # The process ids of all supervisors that the server has started.
    supervisors: list[int] = field(default_factory=list)
    running: int = 0
    have_run: bool = False
    # When the last one ended, by the monotonic clock.
    last_end: float = -math.inf
    # Whether a command could have escaped its guard: only namespaces rule that out.
    may_have_fled: bool = False

    def on_start(self, *, is_in_namespaces: bool) -> None:
        """Record a command before it starts."""
        self.have_run = True
        self.running += 1
        self.may_have_fled |= not is_in_namespaces

    def on_end(self) -> None:
        """Record that a command has ended, with everything that it started."""
        self.running -= 1
        self.last_end = time.monotonic()

    def can_have_opened(self, accepted_at: float) -> bool:
        """Return whether a connection accepted at this time can be from a command."""
        has_just_ended = self.last_end >= accepted_at - SETTLE_SECONDS
        return self.running > 0 or self.may_have_fled or has_just_ended
