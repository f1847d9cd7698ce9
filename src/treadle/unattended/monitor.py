"""Follows the line of a session: what is told, what it costs, when something was last heard."""

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
from treadle.unattended.usage import RateLimit, Usage, UsageLedger, rate_limits_in, tells_limits

logger = logging.getLogger(__name__)


class Monitor:
    """Knows what has happened in a session so far, and tells it on."""

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
        self.heard_at = 0.0
        self._delivery = delivery
        self._tools = tools
        self._max_tokens = max_tokens
        self._is_shared = is_shared
        self._block = block

    @property
    def session_id(self) -> str | None:
        """`<thread>-<turn>`, once both are known."""
        known = self.thread_id is not None and self.turn_id is not None
        return f"{self.thread_id}-{self.turn_id}" if known else None

    @property
    def used(self) -> Usage:
        """What the session used so far."""
        return self.ledger.used

    def seconds_silent(self) -> float:
        """How long nothing was heard of the thread while the server owed us something."""
        if self.tap.open_questions:
            # The server waits for us: for an answer, or for a tool that runs here.
            self.heard_at = _now()
        return _now() - self.heard_at

    def begin_turn(self) -> None:
        """A turn is asked for; the clock starts anew."""
        self.turn_id = None
        self.heard_at = _now()

    def turn_is(self, turn_id: str) -> None:
        """The turn that was asked for is this one."""
        is_news = self.turn_id != turn_id
        self.turn_id = turn_id
        if is_news:
            self.emit(EventKind.SESSION_STARTED)

    def retry_at(self) -> float | None:
        """When a limit that is used up begins anew."""
        known = [limit.retry_at for limit in self.rate_limits.values()]
        return max((at for at in known if at is not None), default=None)

    def emit(
        self, event: EventKind, *, method: str | None = None, payload: JsonValue = None
    ) -> None:
        """Tell an event."""
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

    # -- what the tap hears

    def noticed(self, method: str, params: JsonValue) -> None:
        """Keep accounts, and tell it on."""
        if self._is_ours(params):
            self.heard_at = _now()
            self._note_start(method, params)
            self._note_work(method, params)
        if self.ledger.note(method, params):
            self._check_budget()
        if tells_limits(method):
            self.rate_limits |= {limit.limit_id: limit for limit in rate_limits_in(params)}
        self.emit(EventKind.NOTIFICATION, method=method, payload=params)
        if needs_input(method, params):
            self._block(TurnInputRequired({"method": method, "params": params}))

    def answered(self, question: ObservedRequest, result: JsonValue, error: JsonValue) -> None:
        """Tell what was answered, from what really went out."""
        self.heard_at = _now()
        if error is not None:
            kind = EventKind.REQUEST_REFUSED
            logger.warning("refused a request", extra={"method": question.method})
        else:
            kind = self._kind_of(question, result)
        payload = {"id": question.id, "params": question.params, "result": result, "error": error}
        self.emit(kind, method=question.method, payload=payload)

    def strayed(self, text: str, *, is_json: bool) -> None:
        """Tell of a line that is no message; it counts as no sign of life."""
        logger.debug("dropped a line", extra={"is_json": is_json})  # the event says it
        kind = EventKind.OTHER_MESSAGE if is_json else EventKind.MALFORMED
        self.emit(kind, payload=text)

    async def room(self) -> None:
        """Wait until whoever is told things has caught up."""
        await self._delivery.room()

    # --

    def _is_ours(self, params: JsonValue) -> bool:
        """Whether a message is a sign of life of our thread; on a shared server not all are."""
        if not self._is_shared or not isinstance(params, dict):
            return True
        named = params.get("threadId") or params.get("conversationId")
        thread = params.get("thread")
        if named is None and isinstance(thread, dict):
            named = thread.get("id")
        if named is None:
            # About no thread at all: only the oldest servers tell of turns in this way.
            return "turn" in params or "turnId" in params or "msg" in params or not params
        return bool(named == self.thread_id)

    def _note_start(self, method: str, params: JsonValue) -> None:
        """A turn may be told of before the request for it is answered."""
        if method != "turn/started" or self.turn_id is not None or not isinstance(params, dict):
            return
        turn = params.get("turn")
        turn_id = turn.get("id") if isinstance(turn, dict) else None
        if isinstance(turn_id, str) and params.get("threadId") == self.thread_id:
            self.turn_is(turn_id)

    def _note_work(self, method: str, params: JsonValue) -> None:
        """The model has begun: what it uses from now on is ours."""
        if not method.startswith("item/") or not isinstance(params, dict):
            return
        item = params.get("item")
        if not (isinstance(item, dict) and item.get("type") == "userMessage"):
            self.ledger.work(str(params.get("threadId")))

    def _check_budget(self) -> None:
        used = self.used.total_tokens
        if self._max_tokens is not None and used > self._max_tokens:
            self._block(SessionBudgetExceeded(used, self._max_tokens))

    def _kind_of(self, question: ObservedRequest, result: JsonValue) -> EventKind:
        method = question.method
        fields = result if isinstance(result, dict) else {}
        if method == wire.ITEM_TOOL_CALL.method:
            params = question.params if isinstance(question.params, dict) else {}
            if params.get("tool", params.get("name")) not in self._tools:
                return EventKind.UNSUPPORTED_TOOL_CALL
            is_good = fields.get("success") is True
            return EventKind.TOOL_CALL_COMPLETED if is_good else EventKind.TOOL_CALL_FAILED
        if method == wire.ITEM_TOOL_REQUEST_USER_INPUT.method:
            if _lets_tools_run(fields):
                return EventKind.APPROVAL_AUTO_APPROVED
            return EventKind.TOOL_INPUT_AUTO_ANSWERED
        if method in _APPROVALS:
            is_good = _is_yes(fields)
            return EventKind.APPROVAL_AUTO_APPROVED if is_good else EventKind.APPROVAL_DECLINED
        return EventKind.REQUEST_ANSWERED


def _now() -> float:
    """The loop's own clock, which is monotonic: the timers of a session go by it."""
    return asyncio.get_running_loop().time()


def _is_yes(fields: dict[str, JsonValue]) -> bool:
    if isinstance(granted := fields.get("permissions"), dict):
        return any(granted.values())
    word = fields.get("decision", fields.get("action"))
    return isinstance(word, dict) or word in _YES


def _lets_tools_run(fields: dict[str, JsonValue]) -> bool:
    """Whether these answers are approvals of tools, in the form of answers of the user."""
    answers = fields.get("answers")
    if not isinstance(answers, dict) or not answers:
        return False
    said = [text for each in answers.values() for text in each.get("answers", ())]
    return UNAVAILABLE not in said and all(id_.startswith(TOOL_APPROVAL) for id_ in answers)


_YES: Final = frozenset({"accept", "acceptForSession", "approved", "approved_for_session"})
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
