"""What an unattended session tells whoever started it, and how it reaches them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from inspect import isawaitable
from typing import Final, TypeAlias

import msgspec

from treadle.protocol.base import JsonValue
from treadle.support.concurrency.tasks import BackgroundTasks

MAX_UNTOLD: Final = 10_000
"""Events that wait for a slow callback before the server is read no further."""

logger = logging.getLogger(__name__)


class EventKind(StrEnum):
    """What an event is about."""

    SESSION_STARTED = "session_started"
    """A turn was begun; told once for each."""
    STARTUP_FAILED = "startup_failed"
    NOTIFICATION = "notification"
    """Whatever the server tells, known or not, as it came."""
    OTHER_MESSAGE = "other_message"
    """JSON that is no message, or an answer to nothing that was asked."""
    MALFORMED = "malformed"
    """A line that is no JSON."""
    APPROVAL_AUTO_APPROVED = "approval_auto_approved"
    APPROVAL_DECLINED = "approval_declined"
    TOOL_INPUT_AUTO_ANSWERED = "tool_input_auto_answered"
    TOOL_CALL_COMPLETED = "tool_call_completed"
    TOOL_CALL_FAILED = "tool_call_failed"
    UNSUPPORTED_TOOL_CALL = "unsupported_tool_call"
    REQUEST_ANSWERED = "request_answered"
    """Any other question of the server got its answer."""
    REQUEST_REFUSED = "request_refused"
    """A question that nobody here can answer was refused."""
    TURN_COMPLETED = "turn_completed"
    TURN_ENDED_WITH_ERROR = "turn_ended_with_error"
    RETRYING = "retrying"
    SESSION_ENDED = "session_ended"


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened in a session; `payload` is what the wire carried, where it did."""

    event: EventKind
    at_ms: int
    session_id: str | None = None
    """`<thread>-<turn>`, once both are known."""
    thread_id: str | None = None
    turn_id: str | None = None
    method: str | None = None
    payload: JsonValue = None


OnEvent: TypeAlias = Callable[[SessionEvent], object | Awaitable[object]]


async def tell(callback: OnEvent, event: SessionEvent) -> None:
    """Call back for one event; whatever goes wrong there stays there."""
    try:
        outcome = callback(event)
        if isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("callback failed")


class Delivery:
    """Calls back for each event, in order, beside the reader of the line; loses none."""

    def __init__(self, callback: OnEvent | None, tasks: BackgroundTasks) -> None:
        self._callback = callback
        self._tasks = tasks
        self._untold: deque[SessionEvent] = deque()
        self._teller: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def put(self, event: SessionEvent) -> None:
        """Tell this next."""
        if self._callback is None or self._tasks.is_closed:
            return
        self._untold.append(event)
        if len(self._untold) >= MAX_UNTOLD:
            self._room.clear()
        if self._teller is None:
            self._teller = self._tasks.spawn(self._tell(self._callback), "events")

    async def room(self) -> None:
        """Wait until the callback has caught up enough."""
        await self._room.wait()

    async def drain(self, seconds: float) -> None:
        """Wait until everything was told, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._teller is not None and self._teller is not asyncio.current_task():
                    await asyncio.wait({self._teller})

    async def _tell(self, callback: OnEvent) -> None:
        try:
            while self._untold:
                event = self._untold.popleft()
                if len(self._untold) < MAX_UNTOLD:
                    self._room.set()
                await tell(callback, event)
        finally:
            self._teller = None
