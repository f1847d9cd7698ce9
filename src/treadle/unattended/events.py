"""The events of an unattended session and their delivery to its callback."""

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

MAX_PENDING: Final = 10_000
"""Maximum number of events pending for a slow callback before reading from the server stops."""

logger = logging.getLogger(__name__)


class EventKind(StrEnum):
    """The kinds of events."""

    SESSION_STARTED = "session_started"
    """A turn started; emitted once for each turn."""
    STARTUP_FAILED = "startup_failed"
    NOTIFICATION = "notification"
    """Any notification of the server, known or not, unchanged."""
    OTHER_MESSAGE = "other_message"
    """JSON that is not a message, or a response without a request."""
    MALFORMED = "malformed"
    """A line that is not JSON."""
    APPROVAL_AUTO_APPROVED = "approval_auto_approved"
    APPROVAL_DECLINED = "approval_declined"
    TOOL_INPUT_AUTO_ANSWERED = "tool_input_auto_answered"
    TOOL_CALL_COMPLETED = "tool_call_completed"
    TOOL_CALL_FAILED = "tool_call_failed"
    UNSUPPORTED_TOOL_CALL = "unsupported_tool_call"
    REQUEST_ANSWERED = "request_answered"
    """Any other server request was answered."""
    REQUEST_REFUSED = "request_refused"
    """A server request without a handler was refused."""
    TURN_COMPLETED = "turn_completed"
    TURN_ENDED_WITH_ERROR = "turn_ended_with_error"
    RETRYING = "retrying"
    SESSION_ENDED = "session_ended"


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event of a session; `payload` holds the wire's content where there is one."""

    event: EventKind
    at_ms: int
    session_id: str | None = None
    """`<thread>-<turn>`, once both are known."""
    thread_id: str | None = None
    turn_id: str | None = None
    method: str | None = None
    payload: JsonValue = None


OnEvent: TypeAlias = Callable[[SessionEvent], object | Awaitable[object]]


async def call_back(callback: OnEvent, event: SessionEvent) -> None:
    """Call the callback for one event; log its exceptions."""
    try:
        outcome = callback(event)
        if isawaitable(outcome):
            await outcome
    except Exception:  # user callback: later events are delivered all the same
        logger.exception("callback failed")


class Delivery:
    """Calls the callback for each event, in order, without blocking the connection's reader."""

    def __init__(self, callback: OnEvent | None, tasks: BackgroundTasks) -> None:
        self._callback = callback
        self._tasks = tasks
        self._pending: deque[SessionEvent] = deque()
        self._delivery_task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def put(self, event: SessionEvent) -> None:
        """Queue an event."""
        if self._callback is None or self._tasks.is_closed:
            return
        self._pending.append(event)
        if len(self._pending) >= MAX_PENDING:
            self._room.clear()
        if self._delivery_task is None:
            self._delivery_task = self._tasks.spawn(self._deliver(self._callback), "events")

    async def room(self) -> None:
        """Wait until the callback has caught up enough."""
        await self._room.wait()

    async def drain(self, seconds: float) -> None:
        """Wait until all events are delivered, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (
                    self._delivery_task is not None
                    and self._delivery_task is not asyncio.current_task()
                ):
                    await asyncio.wait({self._delivery_task})

    async def _deliver(self, callback: OnEvent) -> None:
        try:
            while self._pending:
                event = self._pending.popleft()
                if len(self._pending) < MAX_PENDING:
                    self._room.set()
                await call_back(callback, event)
        finally:
            self._delivery_task = None
