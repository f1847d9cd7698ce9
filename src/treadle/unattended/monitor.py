"""The monitor of a session's connection: events, token usage and the time of the last message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from treadle.protocol import server_requests as wire
from treadle.protocol.base import JsonValue
from treadle.support.clock import now_ms
from treadle.unattended.answers import TOOL_APPROVAL, UNAVAILABLE, needs_input
from treadle.unattended.errors import SessionBudgetExceeded, SessionError, TurnInputRequired
from treadle.unattended.events import Delivery, EventKind, SessionEvent
from treadle.unattended.tap import ObservedRequest, Tap
from treadle.unattended.usage import RateLimit, Usage, UsageLedger, rate_limits_in, reports_limits

logger = logging.getLogger(__name__)


class Monitor:
    """The state of a session as seen on its connection; emits an event for each message."""

    def __init__(
        self,
        delivery: Delivery,
        *,
        tools: frozenset[str],
        max_tokens: int | None,
        is_shared: bool,
        block: Callable[[SessionError], None],
    ) -> None:
        self.tap = Tap(self)
        self.ledger = UsageLedger()
        self.rate_limits: dict[str, RateLimit] = {}
        self.thread_id: str | None = None
        self.turn_id: str | None = None
        self.last_message_at = 0.0
        self._delivery = delivery
        self._tools = tools
        self._max_tokens = max_tokens
        self._is_shared = is_shared
        self._block = block

    def set_thread(self, thread_id: str) -> None:
        """Set the thread whose events the monitor reports."""
        self.thread_id = thread_id

    @property
    def session_id(self) -> str | None:
        """`<thread>-<turn>`, once both are known."""
        known = self.thread_id is not None and self.turn_id is not None
        return f"{self.thread_id}-{self.turn_id}" if known else None

    @property
    def used(self) -> Usage:
        """The tokens that the session has used so far."""
        return self.ledger.used

    def seconds_silent(self) -> float:
        """Return the seconds without a message of the thread while no server request was open."""
        if self.tap.open_requests:
            # The server waits for this client: for an answer, or for a tool that runs here.
            self.last_message_at = _now()
        return _now() - self.last_message_at

    def begin_turn(self) -> None:
        """Forget the previous turn and restart the idle timer."""
        self.turn_id = None
        self.last_message_at = _now()

    def turn_is(self, turn_id: str) -> None:
        """Record the id of the turn that was requested."""
        is_new = self.turn_id != turn_id
        self.turn_id = turn_id
        if is_new:
            self.emit(EventKind.SESSION_STARTED)

    def retry_at(self) -> float | None:
        """Return the time at which every exhausted rate limit has reset."""
        known = [limit.retry_at for limit in self.rate_limits.values()]
        return max((at for at in known if at is not None), default=None)

    def emit(
        self, event: EventKind, *, method: str | None = None, payload: JsonValue = None
    ) -> None:
        """Queue an event for the callback."""
        self._delivery.put(
            SessionEvent(
                event=event,
                at_ms=now_ms(),
                session_id=self.session_id,
                thread_id=self.thread_id,
                turn_id=self.turn_id,
                method=method,
                payload=payload,
            )
        )

    # -- called by the tap

    def noticed(self, method: str, params: JsonValue) -> None:
        """Count usage and rate limits, and emit the notification as an event."""
        if self._concerns_thread(params):
            self.last_message_at = _now()
            self._note_start(method, params)
            self._note_work(method, params)
        if self.ledger.note(method, params):
            self._check_budget()
        if reports_limits(method):
            self.rate_limits |= {limit.limit_id: limit for limit in rate_limits_in(params)}
        self.emit(EventKind.NOTIFICATION, method=method, payload=params)
        if needs_input(method, params):
            self._block(TurnInputRequired({"method": method, "params": params}))

    def answered(self, question: ObservedRequest, result: JsonValue, error: JsonValue) -> None:
        """Emit an event for the answer that was sent."""
        self.last_message_at = _now()
        if error is not None:
            kind = EventKind.REQUEST_REFUSED
            logger.warning("refused a request", extra={"method": question.method})
        else:
            kind = self._answer_kind(question, result)
        payload = {"id": question.id, "params": question.params, "result": result, "error": error}
        self.emit(kind, method=question.method, payload=payload)

    def strayed(self, text: str, *, is_json: bool) -> None:
        """Emit an event for a line that is not a message; it does not reset the idle timer."""
        logger.debug("dropped a line", extra={"is_json": is_json})  # the event carries the text
        kind = EventKind.OTHER_MESSAGE if is_json else EventKind.MALFORMED
        self.emit(kind, payload=text)

    async def room(self) -> None:
        """Wait until the event callback has caught up."""
        await self._delivery.room()

    # --

    def _concerns_thread(self, params: JsonValue) -> bool:
        """Return whether a message concerns this thread; a shared server has others."""
        if not self._is_shared or not isinstance(params, dict):
            return True
        thread_id = params.get("threadId") or params.get("conversationId")
        thread = params.get("thread")
        if thread_id is None and isinstance(thread, dict):
            thread_id = thread.get("id")
        if thread_id is None:
            # Without a thread: only the oldest servers report turns in this way.
            return "turn" in params or "turnId" in params or "msg" in params or not params
        return bool(thread_id == self.thread_id)

    def _note_start(self, method: str, params: JsonValue) -> None:
        """Take the turn's id from `turn/started`, which may come before the response."""
        if method != "turn/started" or self.turn_id is not None or not isinstance(params, dict):
            return
        turn = params.get("turn")
        turn_id = turn.get("id") if isinstance(turn, dict) else None
        if isinstance(turn_id, str) and params.get("threadId") == self.thread_id:
            self.turn_is(turn_id)

    def _note_work(self, method: str, params: JsonValue) -> None:
        """Count usage from the model's first item on."""
        if not method.startswith("item/") or not isinstance(params, dict):
            return
        item = params.get("item")
        if not (isinstance(item, dict) and item.get("type") == "userMessage"):
            self.ledger.work(str(params.get("threadId")))

    def _check_budget(self) -> None:
        used = self.used.total_tokens
        if self._max_tokens is not None and used > self._max_tokens:
            self._block(SessionBudgetExceeded(used, self._max_tokens))

    def _answer_kind(self, question: ObservedRequest, result: JsonValue) -> EventKind:
        method = question.method
        fields = result if isinstance(result, dict) else {}
        if method == wire.ITEM_TOOL_CALL.method:
            params = question.params if isinstance(question.params, dict) else {}
            if params.get("tool", params.get("name")) not in self._tools:
                return EventKind.UNSUPPORTED_TOOL_CALL
            is_good = fields.get("success") is True
            return EventKind.TOOL_CALL_COMPLETED if is_good else EventKind.TOOL_CALL_FAILED
        if method == wire.ITEM_TOOL_REQUEST_USER_INPUT.method:
            if _approves_tools(fields):
                return EventKind.APPROVAL_AUTO_APPROVED
            return EventKind.TOOL_INPUT_AUTO_ANSWERED
        if method in _APPROVALS:
            is_good = _is_approval(fields)
            return EventKind.APPROVAL_AUTO_APPROVED if is_good else EventKind.APPROVAL_DECLINED
        return EventKind.REQUEST_ANSWERED


def _now() -> float:
    """Return the time of the event loop, which is monotonic; session timers use it."""
    return asyncio.get_running_loop().time()


def _is_approval(fields: dict[str, JsonValue]) -> bool:
    if isinstance(granted := fields.get("permissions"), dict):
        return any(granted.values())
    decision = fields.get("decision", fields.get("action"))
    return isinstance(decision, dict) or decision in _APPROVING


def _approves_tools(fields: dict[str, JsonValue]) -> bool:
    """Return whether these user answers approve tools."""
    answers = fields.get("answers")
    if not isinstance(answers, dict) or not answers:
        return False
    texts = [text for each in answers.values() for text in each.get("answers", ())]
    return UNAVAILABLE not in texts and all(id_.startswith(TOOL_APPROVAL) for id_ in answers)


_APPROVING: Final = frozenset({"accept", "acceptForSession", "approved", "approved_for_session"})
_APPROVALS: Final = frozenset(
    each.method
    for each in (
        wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
        wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL,
        wire.ITEM_PERMISSIONS_REQUEST_APPROVAL,
        wire.MCP_SERVER_ELICITATION_REQUEST,
        wire.EXEC_COMMAND_APPROVAL,
        wire.APPLY_PATCH_APPROVAL,
    )
)
