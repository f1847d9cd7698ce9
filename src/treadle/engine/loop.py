"""The agent loop: request a response, run its tool calls, and repeat until none are left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from treadle.engine.accounting.budget import BudgetExceeded, Meter
from treadle.engine.conversation import instructions
from treadle.engine.conversation.compaction import without_older_half
from treadle.engine.conversation.input import message
from treadle.engine.conversation.items import ItemStream, text_of
from treadle.engine.conversation.repair import ask_for_repair
from treadle.engine.conversation.request import request_of
from treadle.engine.conversation.sources import without_sources
from treadle.engine.ending import end_turn
from treadle.engine.errors import TurnCancelled
from treadle.engine.hooks.turn_hooks import TurnHooks
from treadle.engine.step_logs import log_request, log_response, log_retry, log_start
from treadle.engine.tools.call_limits import limit_call
from treadle.engine.tools.registry import ToolCall, ToolRegistry, output_item, read_call
from treadle.engine.turn_ids import TurnIds
from treadle.engine.turn_limits import TurnLimits
from treadle.model.base import (
    Completed,
    ItemDone,
    ModelError,
    ModelEvent,
    ModelItem,
    ModelRequest,
    RateLimits,
    Rerouted,
)
from treadle.model.retry import Retry, stream_with_retries
from treadle.protocol import notifications as n
from treadle.protocol.error import ErrorNotification, TurnError
from treadle.protocol.item import ContextCompactionThreadItem
from treadle.protocol.model import ModelReroutedNotification
from treadle.protocol.status import ActiveThreadStatus
from treadle.protocol.thread import ContextCompactedNotification
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn, EndStep

MAX_REPAIRS: Final = 1
# A shorter history is not halved: one of its items is too long by itself.
MIN_HALVED: Final = 4
INTERNAL_ERROR: Final = TurnError("internal error", codex_error_info="other")

logger = logging.getLogger(__name__)


class TurnFailure(Exception):
    """The turn cannot continue; `error` is published to clients."""

    def __init__(self, error: TurnError) -> None:
        super().__init__(error.message)
        self.error = error


class AgentLoop:
    """Runs one turn of a thread to its end."""

    def __init__(
        self, thread: LoadedThread, turn: ActiveTurn, left_calls: Sequence[ToolCall] = ()
    ) -> None:
        self._thread = thread
        self._turn = turn
        # Calls that an earlier server did not finish because they waited for clients.
        self._left_calls = left_calls
        self._ids = TurnIds(thread.context.used_ids(turn) if left_calls else ())
        self._limits = TurnLimits(thread.context, turn)
        self._hooks = TurnHooks(thread, turn)
        self._repairs = 0
        self._has_item = False
        self._start_lock = asyncio.Lock()

    def begin(self) -> None:
        """Publish `turn/started`."""
        self._thread.state.set_status(ActiveThreadStatus(active_flags=[]))
        self._thread.context.warn_unknown_model()
        self._turn.begin()
        log_start(self._turn, self._thread.settings_of(self._turn))

    def give_up(self) -> None:
        """End a turn that could not be started as failed."""
        if self._thread.turn is self._turn:
            end_turn(self._thread, self._turn, "fail", INTERNAL_ERROR)

    def ensure_ended(self) -> None:
        """End the turn if it has not ended."""
        # A task that is cancelled before its first step does not run its `finally`.
        if self._thread.turn is self._turn:
            end_turn(self._thread, self._turn, "interrupt", None)

    async def run(self) -> None:
        """Run the turn; it always ends with one terminal event."""
        step: EndStep = "interrupt"
        error: TurnError | None = None
        try:
            async with self._time_limit():
                await self._work()
            step = "complete"
        except TurnFailure as failure:
            step, error = "fail", failure.error
        except (ModelError, BudgetExceeded) as failure:
            step, error = "fail", to_turn_error(failure)
        except TurnCancelled:
            pass
        except Exception:  # task owner: clients get a generic error
            logger.exception("turn failed", extra={"turn": self._turn.id})
            step, error = "fail", INTERNAL_ERROR
        finally:
            end_turn(self._thread, self._turn, step, error)

    async def _work(self) -> None:
        await self._hooks.refresh()
        if self._turn.kind == "compact":
            await self._compact()
        elif self._turn.kind == "review":
            from treadle.engine.review.review import conduct

            await conduct(self._thread, self._turn, self._request_response)
        elif self._turn.kind == "shell":
            await self._thread.terminals.settled(self._turn)
            if self._turn.pending_input:
                await self._converse()
        else:
            await self._converse()

    async def _converse(self) -> None:
        self._thread.mcp.start()
        if self._left_calls:
            from treadle.engine.stored.recovery import end_orphans

            await self._wait_for_servers()
            end_orphans(self._turn, self._left_calls, self._tools)
            async with self._running_calls() as run_call:
                for call in self._left_calls:
                    run_call(call, None)
        else:
            context = self._thread.context
            await context.read_folder()
            context.add_context(self._turn)
            self._thread.mcp.add_instructions(self._turn, context)
        is_first, needs_more, goes_on = not self._left_calls, True, True
        while goes_on:
            while needs_more or self._turn.pending_input or await self._needs_repair():
                if self._thread.context.is_nearly_full():
                    await self._compact()
                if not await self._hooks.start_session():
                    return
                has_input = await self._hooks.take_input()
                if is_first and not has_input:
                    return
                is_first = False
                if needs_more or has_input:
                    await self._wait_for_servers()
                    await self._thread.context.describe_mentions(self._turn, self._thread.mcp)
                    needs_more = await self._request_response()
            needs_more = await self._hooks.goes_on()
            # Hooks take time, in which clients can send more.
            goes_on = needs_more or bool(self._turn.pending_input)

    async def _wait_for_servers(self) -> None:
        """Wait once for MCP servers to start, up to their timeouts; later ones join when ready."""
        calls = [call.flat_name for call in self._left_calls]
        needs_apps = self._thread.context.mentions.has_ids
        reason = await self._thread.mcp.before_request(self._turn, calls, needs_apps=needs_apps)
        if reason is not None:
            raise TurnFailure(TurnError(reason))
        self._thread.mcp.add_instructions(self._turn, self._thread.context)

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        timed = [meter for meter in self._thread.usage.meters if meter.is_timed]
        tightest = min(timed, key=Meter.seconds_left, default=None)
        limit = asyncio.timeout(tightest.seconds_left() if tightest else None)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired() or tightest is None:
                raise
            raise tightest.out_of_time() from error

    async def _needs_repair(self) -> bool:
        """Ask for a corrected message if the last one violates the output schema."""
        if self._repairs >= MAX_REPAIRS or not await ask_for_repair(self._thread, self._turn):
            return False
        self._repairs += 1
        return True

    async def _compact(self) -> None:
        """Replace the history with the model's own summary; a failure changes nothing."""
        thread, turn = self._thread, self._turn
        await self._hooks.compact("preCompact")
        item = ContextCompactionThreadItem(uuid7())
        turn.start_item(item)
        summary = await self._summarize(list(thread.context.history.items))
        if not summary.strip():
            raise TurnFailure(TurnError("compaction failed: the model returned an empty summary"))
        await thread.context.read_folder()
        thread.context.compact(summary)
        turn.complete_item(item)
        turn.log.publish(n.THREAD_COMPACTED, ContextCompactedNotification(thread.id, turn.id))
        await self._hooks.compact("postCompact")

    async def _summarize(self, history: list[ModelItem]) -> str:
        """Ask the model for a summary; without its older half if the history does not fit."""
        request = replace(
            self._request(),
            input=[
                *without_sources(history),
                message("user", instructions.COMPACTION_REQUEST),
            ],
            tools=(),
            parallel_tool_calls=False,
            output_schema=None,
            subagent="compact",
        )
        summary = ""
        try:
            async with aclosing(await self._stream(request)) as events:
                async for event in events:
                    if isinstance(event, ItemDone) and event.item.get("type") == "message":
                        summary = text_of(event.item)
                    elif isinstance(event, Completed):
                        self._thread.state.count(self._turn, event)
        except ModelError as error:
            if error.info != "contextWindowExceeded" or len(history) < MIN_HALVED:
                raise
            return await self._summarize(without_older_half(history))
        return summary

    async def _request_response(self) -> bool:
        """Request a response, and retry if the stream breaks after a finished item."""
        for attempt in count(1):
            self._has_item = False
            try:
                return await self._sample()
            except ModelError as error:
                if error.info == "contextWindowExceeded":
                    self._thread.context.mark_full(self._turn)
                # Without a finished item, `stream_with_retries` has already retried the request.
                _, policy = self._thread.state.model(self._turn)
                is_last = attempt > policy.stream_max_retries
                if not error.is_retryable or not self._has_item or is_last:
                    raise
                ItemStream(self._turn).abandon()
                delay = min(policy.first_delay_s * 2 ** (attempt - 1), policy.max_delay_s)
                self._on_retry(Retry(attempt, policy.stream_max_retries, delay, error))
                await asyncio.sleep(delay)
        raise AssertionError  # unreachable: the loop never ends by itself

    async def _sample(self) -> bool:
        """Request one response; true if the model needs another request."""
        thread, turn = self._thread, self._turn
        has_calls = False
        failure: ModelError | None = None
        wants_more = False
        items = self._item_stream()
        self._ids.begin_response()
        self._limits.check_context()
        # Opened outside the task group, which would wrap its exceptions and hide their types.
        stream = await self._stream(self._request())
        async with self._running_calls() as run_call:
            try:
                turn.is_streaming = True
                async with aclosing(stream) as events:
                    async for received in events:
                        event, refusal = limit_call(self._ids.apply(received))
                        items.take(event)
                        if isinstance(event, ItemDone):
                            self._has_item = True
                            thread.context.add_response_item(turn, event.item, items)
                            if event.item.get("type") == "web_search_call":
                                await self._hooks.check_search(event.item)
                            call = read_call(event.item)
                            if call is not None:
                                has_calls = True
                                run_call(call, refusal)
                        elif isinstance(event, Completed):
                            wants_more = event.end_turn is False
                            log_response(turn, event)
                            thread.state.count(turn, event, fills_context=turn.side is None)
                        else:
                            self._publish_provider_event(event)
            except ModelError as error:
                failure = error
            finally:
                turn.is_streaming = False
        if failure is not None:
            raise failure
        self._limits.count_response(has_item=self._has_item, wants_more=wants_more)
        return has_calls or wants_more

    def _item_stream(self) -> ItemStream:
        if self._turn.side is not None:
            return self._turn.side.stream(self._turn)
        return ItemStream(self._turn, finds_plans=self._thread.settings.mode().mode == "plan")

    @property
    def _tools(self) -> ToolRegistry:
        return self._thread.tools if self._turn.side is None else self._turn.side.tools

    @asynccontextmanager
    async def _running_calls(self) -> AsyncIterator[Callable[[ToolCall, str | None], object]]:
        """Run calls concurrently and add their outputs to the history as they finish.

        Outputs wait for the end of the response, so that its items stay together.
        """
        response_ended = asyncio.Event()
        is_cancelled = False
        try:
            async with asyncio.TaskGroup() as tools:
                yield lambda call, refusal: tools.create_task(
                    self._run_call(call, refusal, response_ended)
                )
                response_ended.set()
        except* TurnCancelled:
            is_cancelled = True
        if is_cancelled:
            raise TurnCancelled

    async def _run_call(
        self, call: ToolCall, refusal: str | None, response_ended: asyncio.Event
    ) -> None:
        turn = self._turn
        turn.running_calls.add(call.id)
        try:
            # Calls start one after the other: starting a thousand at once blocks for seconds.
            async with self._start_lock:
                await asyncio.sleep(0)
            result = output_item(call, refusal or await self._hooks.run_tool(self._tools, call))
            with self._limits.holding(call, result) as output:
                try:
                    if not response_ended.is_set():
                        self._thread.context.record_output(turn, output)
                        await response_ended.wait()
                finally:
                    # Even if the turn was stopped meanwhile: the call did run.
                    self._thread.context.remember(turn, output)
        finally:
            turn.running_calls.discard(call.id)

    def _request(self) -> ModelRequest:
        history = self._thread.context.history_of(self._turn).items
        return request_of(self._thread.state, self._turn, history, self._tools)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        for meter in self._thread.usage.meters:
            meter.admit()
        model, policy = self._thread.state.model(self._turn)
        self._turn.use_model(model)
        log_request(self._turn, request)
        stream = stream_with_retries(model, request, policy=policy, on_retry=self._on_retry)
        return await self._thread.hooks.around(self._turn, stream)

    def _publish_provider_event(self, event: ModelEvent) -> None:
        """Publish what the provider sends besides its response."""
        if isinstance(event, RateLimits):
            self._thread.services.on_rate_limits(event.snapshot)
        elif isinstance(event, Rerouted):
            self._turn.log.publish(
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
        """Publish the retry and its reason."""
        log_retry(self._turn, retry)
        error = TurnError(
            f"Reconnecting... {retry.attempt}/{retry.max}",
            codex_error_info=retry.error.info,
            additional_details=retry.error.message,
        )
        self._turn.log.publish(n.ERROR, self._error(error, will_retry=True))

    def _error(self, error: TurnError, *, will_retry: bool) -> ErrorNotification:
        return ErrorNotification(
            error=error, thread_id=self._thread.id, turn_id=self._turn.id, will_retry=will_retry
        )


def to_turn_error(failure: ModelError | BudgetExceeded) -> TurnError:
    """Convert the cause of a failed turn to the protocol's type."""
    if isinstance(failure, BudgetExceeded):
        return TurnError(str(failure), codex_error_info="sessionBudgetExceeded")
    return TurnError(
        failure.message, additional_details=failure.details, codex_error_info=failure.info
    )
