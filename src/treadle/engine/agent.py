"""The loop: ask the model, carry out what it calls, ask again, until it has nothing left to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from treadle.engine import instructions
from treadle.engine.budget import BudgetExceeded
from treadle.engine.compaction import compacted
from treadle.engine.input import message
from treadle.engine.items import ItemStream, text_of
from treadle.engine.tools.registry import Output, ToolCall, output_item, read_call
from treadle.model.base import (
    Completed,
    ItemDone,
    ModelError,
    ModelEvent,
    ModelRequest,
    RateLimits,
    Rerouted,
)
from treadle.model.retry import Retry, stream_with_retries
from treadle.model.schema import validate
from treadle.protocol import notifications as n
from treadle.protocol.error import ErrorNotification, TurnError
from treadle.protocol.item import ContextCompactionThreadItem, UserMessageThreadItem
from treadle.protocol.model import ModelReroutedNotification
from treadle.protocol.status import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
)
from treadle.protocol.thread import ContextCompactedNotification
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import Thread
    from treadle.engine.turn import Turn

MAX_REPAIRS: Final = 1

logger = logging.getLogger(__name__)


class TurnFailed(Exception):
    """The turn cannot go on; `error` is what clients are told."""

    def __init__(self, error: TurnError) -> None:
        super().__init__(error.message)
        self.error = error


class Agent:
    """Runs one turn of a thread to its end."""

    def __init__(self, thread: Thread, turn: Turn) -> None:
        self._thread = thread
        self._turn = turn
        self._repairs = 0
        self._needs_more = False

    def begin(self) -> None:
        """Tell that the turn runs."""
        self._thread.set_status(ActiveThreadStatus(active_flags=[]))
        self._turn.begin()

    def ensure_ended(self) -> None:
        """End the turn if nothing else has."""
        # A task that is cancelled before its first step does not even run its `finally`.
        if not self._turn.is_over:
            self._end("interrupt", None)

    async def run(self) -> None:
        """Run the turn; however it ends, it ends with one terminal event."""
        step: Literal["complete", "fail", "interrupt"] = "interrupt"
        error: TurnError | None = None
        try:
            async with self._time_limit():
                await (self._compact() if self._turn.kind == "compact" else self._converse())
            step = "complete"
        except TurnFailed as failure:
            step, error = "fail", failure.error
        except (ModelError, BudgetExceeded) as failure:
            step, error = "fail", to_turn_error(failure)
        except Exception:
            logger.exception("turn failed", extra={"turn": self._turn.id})
            step, error = "fail", TurnError("internal error", codex_error_info="other")
        finally:
            self._end(step, error)

    def _end(self, step: Literal["complete", "fail", "interrupt"], error: TurnError | None) -> None:
        if step != "complete":
            self._settle_calls(step)
        if error is not None:
            self._thread.set_status(SystemErrorThreadStatus())
            self._turn.log.tell(n.ERROR, self._error(error, will_retry=False))
        else:
            self._thread.set_status(IdleThreadStatus())
        self._turn.end(step, error)
        self._thread.turn_ended(self._turn)

    def _settle_calls(self, step: str) -> None:
        """Leave nothing half-said in the model's view, and nothing unheard of the user's."""
        ItemStream(self._turn).abandon()
        history = self._thread.history
        text = "aborted by user" if step == "interrupt" else "not carried out: the turn failed"
        calls = [read_call(item) for item in history.open_calls()]
        self._thread.remember(
            self._turn, *(output_item(call, text) for call in calls if call is not None)
        )
        self._take_input()
        if step == "interrupt":
            self._thread.remember(self._turn, message("user", instructions.INTERRUPTED))

    async def _converse(self) -> None:
        self._thread.tell_context(self._turn)
        needs_more = True
        while needs_more or self._turn.waiting or self._asks_for_repair():
            self._take_input()
            if self._thread.is_nearly_full():
                await self._compact()
            needs_more = await self._sample()

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        left = [meter.seconds_left() for meter in self._thread.meters(self._turn)]
        limits = [seconds for seconds in left if seconds is not None]
        limit = asyncio.timeout(min(limits) if limits else None)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise BudgetExceeded(f"the turn's budget of {min(limits):g} s is used") from error

    def _asks_for_repair(self) -> bool:
        """Whether the last message misses the schema it had to fit, and may be written anew."""
        schema, last = self._turn.output_schema, self._turn.last_message
        if schema is None or last is None or self._repairs >= MAX_REPAIRS:
            return False
        faults = validate(last.text, schema)
        if not faults:
            return False
        self._repairs += 1
        wish = "The last message does not fit the required JSON Schema. Send it again, corrected, "
        self._thread.remember(
            self._turn, message("user", f"{wish}and nothing else:\n" + "\n".join(faults))
        )
        return True

    async def _compact(self) -> None:
        """Replace the model's view by its own notes; when that fails, nothing has changed."""
        thread, turn = self._thread, self._turn
        item = ContextCompactionThreadItem(uuid7())
        turn.start_item(item)
        request = self._request()
        asked = [*request.input, message("user", instructions.COMPACTION_REQUEST)]
        asking = replace(request, input=asked, tools=(), output_schema=None, subagent="compact")
        notes = ""
        async with aclosing(self._stream(asking)) as events:
            async for event in events:
                if isinstance(event, ItemDone) and event.item.get("type") == "message":
                    notes = text_of(event.item)
                elif isinstance(event, Completed):
                    thread.count(turn, event)
        if not notes.strip():
            raise TurnFailed(TurnError("the model gave no notes to go on from"))
        context = thread.context_items()
        thread.history.replace(compacted(thread.history.items, context, notes), notes)
        turn.complete_item(item)
        turn.log.tell(n.THREAD_COMPACTED, ContextCompactedNotification(thread.id, turn.id))

    def _take_input(self) -> None:
        """Take up what the user said: at the start, and between two answers of the model."""
        waiting, self._turn.waiting = self._turn.waiting, []
        for said in waiting:
            item = UserMessageThreadItem(content=said.content, id=uuid7(), client_id=said.client_id)
            self._thread.remember(self._turn, *said.items)
            self._thread.said(said)
            self._turn.start_item(item)
            self._turn.complete_item(item)

    async def _sample(self) -> bool:
        """Ask the model once; true if it has to be asked again."""
        thread, turn = self._thread, self._turn
        calls: list[tuple[ToolCall, asyncio.Task[Output]]] = []
        failure: ModelError | None = None
        wants_more = False
        items = ItemStream(turn)
        async with asyncio.TaskGroup() as tools:
            try:
                async with aclosing(self._stream(self._request())) as events:
                    async for event in events:
                        items.take(event)
                        if isinstance(event, ItemDone):
                            thread.remember(turn, event.item)
                            call = read_call(event.item)
                            if call is not None:
                                run = tools.create_task(thread.tools.run(call, turn))
                                calls.append((call, run))
                        elif isinstance(event, Completed):
                            wants_more = event.end_turn is False
                            thread.count(turn, event)
                        else:
                            self._notice(event)
            except ModelError as error:
                # Raised outside the group: inside, it would come out wrapped, its type hidden.
                failure = error
        thread.remember(turn, *(output_item(call, run.result()) for call, run in calls))
        if failure is not None:
            raise failure
        return bool(calls) or wants_more

    def _request(self) -> ModelRequest:
        thread, turn = self._thread, self._turn
        settings = thread.settings
        return ModelRequest(
            model=settings.model,
            instructions=settings.base_instructions or instructions.BASE_INSTRUCTIONS,
            input=tuple(thread.history.items),
            tools=thread.tools.specs(),
            effort=settings.effort,
            summary=settings.summary,
            verbosity=settings.verbosity,
            output_schema=turn.output_schema,
            service_tier=settings.service_tier,
            thread_id=thread.id,
            turn_id=turn.id,
            originator=thread.meta.originator or "treadle",
        )

    def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        for meter in self._thread.meters(self._turn):
            meter.admit()
        model, policy = self._thread.model()
        return stream_with_retries(model, request, policy=policy, on_retry=self._on_retry)

    def _notice(self, event: ModelEvent) -> None:
        """Pass on what the provider says beside its answer."""
        if isinstance(event, RateLimits):
            self._thread.on_rate_limits(event.snapshot)
        elif isinstance(event, Rerouted):
            self._turn.log.tell(
                n.MODEL_REROUTED,
                ModelReroutedNotification(
                    from_model=self._thread.settings.model,
                    reason="highRiskCyberActivity",
                    thread_id=self._thread.id,
                    to_model=event.to_model,
                    turn_id=self._turn.id,
                ),
            )

    def _on_retry(self, retry: Retry) -> None:
        """Say that we try again, and why."""
        error = TurnError(
            f"Reconnecting... {retry.attempt}/{retry.max}",
            codex_error_info=retry.error.info,
            additional_details=retry.error.message,
        )
        self._turn.log.tell(n.ERROR, self._error(error, will_retry=True))

    def _error(self, error: TurnError, *, will_retry: bool) -> ErrorNotification:
        return ErrorNotification(
            error=error, thread_id=self._thread.id, turn_id=self._turn.id, will_retry=will_retry
        )


def to_turn_error(failure: ModelError | BudgetExceeded) -> TurnError:
    """Why a turn failed, in the protocol's words."""
    if isinstance(failure, BudgetExceeded):
        return TurnError(str(failure), codex_error_info="sessionBudgetExceeded")
    return TurnError(
        failure.message, additional_details=failure.details, codex_error_info=failure.info
    )
