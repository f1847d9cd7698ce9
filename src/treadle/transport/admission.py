"""Limits on the peers of a listener, and stricter ones before `initialize`.

A peer is a stranger until it has sent a valid `initialize`. Strangers are few, short-lived and may
send little; when there are too many of them, the oldest one is dropped.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from treadle.support.files.descriptors import descriptor_limit
from treadle.support.incidents import Incident

MAX_STRANGERS: Final = 512
MAX_STRANGERS_PER_ADDRESS: Final = 128
INITIALIZE_SECONDS: Final = 60.0
STRANGER_MESSAGE_BYTES: Final = 64 * 1024
GRACE: Final = 1 / 12
"""The part of its time for which a stranger keeps its place although others wait.

A client sends `initialize` at once, but a thousand clients at the same time may take seconds.
"""

MAX_REFUSALS: Final = 32
"""How many peers beyond the limit get a response at the same time; the others are cut off."""

logger = logging.getLogger(__name__)


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The limits of a listener."""

    total: int
    strangers: int = MAX_STRANGERS
    strangers_per_address: int = MAX_STRANGERS_PER_ADDRESS
    initialize_seconds: float = INITIALIZE_SECONDS
    message_bytes: int = STRANGER_MESSAGE_BYTES

    @classmethod
    def default(
        cls,
        *,
        total: int | None = None,
        strangers: int | None = None,
        initialize_seconds: float | None = None,
    ) -> ConnectionLimits:
        """Return the usual limits, which leave descriptors for threads and commands."""
        descriptors = descriptor_limit()
        total = total or max(8, descriptors - max(64, descriptors // 4))
        return cls(
            total=total,
            strangers=min(strangers or MAX_STRANGERS, total),
            initialize_seconds=initialize_seconds or INITIALIZE_SECONDS,
        )


class Stranger(Struct, frozen=True):
    """The limits of a peer before `initialize`, and the callbacks that report its progress."""

    message_bytes: int
    seconds: float
    on_initialize: Callable[[], None]
    on_refusal: Callable[[str], None]


class Visitor:
    """One connection, from its acceptance to its end."""

    __slots__ = ("_admission", "_drop", "_is_dropped", "address", "arrived_at")

    def __init__(self, admission: Admission, address: str, arrived_at: float) -> None:
        self.address = address
        self.arrived_at = arrived_at
        self._admission = admission
        self._drop: Callable[[], None] | None = None
        self._is_dropped = False

    def on_drop(self, drop: Callable[[], None]) -> None:
        """Set the function that cuts off the connection."""
        self._drop = drop
        if self._is_dropped:
            drop()

    def drop(self, reason: str) -> None:
        """Cut off the connection."""
        self._is_dropped = True
        self._admission.log_refusal(self.address, reason)
        self._admission.mark_initialized(self)
        if self._drop is not None:
            self._drop()

    def leave(self) -> None:
        """Stop counting the connection: it has ended."""
        self._admission.remove(self)

    def log_refusal(self, reason: str) -> None:
        """Log why the connection is refused."""
        self._admission.log_refusal(self.address, reason)

    def mark_initialized(self) -> None:
        """Stop counting the connection as a stranger: it has sent a valid `initialize`."""
        self._drop = None
        self._admission.mark_initialized(self)


class Admission:
    """Counts the connections of one listener."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._loop = asyncio.get_running_loop()
        self._strangers: dict[Visitor, None] = {}  # in order of arrival
        self._total = 0
        self._refusing = 0
        self._refusals = Incident(logger, "connections refused", level=logging.INFO)

    def delay(self) -> float:
        """Make room for another stranger; return the seconds to wait until there is some."""
        if len(self._strangers) < self.limits.strangers:
            return 0.0
        oldest = next(iter(self._strangers))
        grace = self.limits.initialize_seconds * GRACE
        delay = oldest.arrived_at + grace - self._loop.time()
        if delay <= 0:
            oldest.drop("too many connections before `initialize`")
        return max(0.0, delay)

    def enter(self, address: str) -> Visitor | None:
        """Count an accepted connection; return `None` if there are too many."""
        if self._total >= self.limits.total:
            self.log_refusal(address, "too many connections")
            return None
        if not _is_local(address):
            same = [each for each in self._strangers if each.address == address]
            if len(same) >= self.limits.strangers_per_address:
                same[0].drop("too many connections of one address before `initialize`")
        visitor = Visitor(self, address, self._loop.time())
        self._strangers[visitor] = None
        self._total += 1
        return visitor

    def mark_initialized(self, visitor: Visitor) -> None:
        """Stop counting a visitor as a stranger."""
        self._strangers.pop(visitor, None)

    def remove(self, visitor: Visitor) -> None:
        """Stop counting a connection: it has ended."""
        self._strangers.pop(visitor, None)
        self._total -= 1

    def begin_refusal(self) -> bool:
        """Return whether one more peer can be sent a refusal."""
        # Each takes a descriptor too.
        if self._refusing >= min(MAX_REFUSALS, max(1, self.limits.total // 16)):
            return False
        self._refusing += 1
        return True

    def end_refusal(self) -> None:
        """Mark one refusal as sent."""
        self._refusing -= 1

    def log_refusal(self, address: str, reason: str) -> None:
        """Log that a peer was refused, at most once a minute."""
        self._refusals.happened(reason, address=address)


def _is_local(address: str) -> bool:
    """Return whether the address belongs to this machine."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:  # a unix socket
        return True
