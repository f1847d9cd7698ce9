"""The evaluation of one prompt: its thread, turns, events and limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import msgspec
from weakincentives import BudgetExceededError
from weakincentives.adapters import PromptEvaluationError
from weakincentives.prompt import RenderedPrompt
from weakincentives.runtime import TokenUsage

from treadle.client.errors import ClientError, Disconnected
from treadle.client.events import Event, ItemCompleted, ItemStarted, TokenUsageUpdated
from treadle.client.thread import AsyncThread
from treadle.client.tools import Tool
from treadle.client.turn import AsyncTurn
from treadle.protocol.base import JsonValue
from treadle.protocol.input import TextUserInput, UserInput
from treadle.protocol.item import (
    CollabAgentToolCallThreadItem,
    DynamicToolCallThreadItem,
    SubAgentActivityThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.tool import DynamicToolCallParams, DynamicToolCallResponse
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.unattended.usage import UsageLedger
from treadle.wink.context import EvaluationContext
from treadle.wink.errors import STDERR_CHARACTERS, PromptDeadlineExceeded, evaluation_error
from treadle.wink.events import activity_of, token_usage, tool_invoked
from treadle.wink.guardrails import missing_work
from treadle.wink.loop import LoopThread
from treadle.wink.server import ServerHandle, Servers
from treadle.wink.spec import EvaluationSpec, Outcome
from treadle.wink.thread import open_thread
from treadle.wink.tools import Bridge
from treadle.wink.transcript import Transcript
from treadle.wink.turn import RunningTurn
from treadle.wink.worker import Worker

_DRAIN_SECONDS = 0.25

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Ending:
    """The end of a turn."""

    text: str = ""
    failure: ClientError | None = None

    async def follow(self, turn: AsyncTurn) -> None:
        """Wait for the turn's result."""
        try:
            self.text = (await turn.result()).agent_message
        except ClientError as error:
            self.failure = error


class PromptRun:
    """One evaluation on the adapter's loop, with a worker for user code."""

    def __init__(
        self,
        context: EvaluationContext,
        spec: EvaluationSpec,
        rendered: RenderedPrompt[JsonValue],
        loop: LoopThread,
    ) -> None:
        self._context = context
        self._spec = spec
        self._config = spec.config
        self._rendered = rendered
        self._loop = loop
        self._bridge = Bridge(context, rendered)
        self._transcript = Transcript(context, spec.config)
        self.tools: list[Tool] = self._bridge.client_tools(self._serve)
        self._id = f"{context.prompt_name}#{uuid4()}"
        self._ledger = UsageLedger()
        self._usage: TokenUsage | None = None
        self._tasks = BackgroundTasks()
        self._server: ServerHandle | None = None
        self._thread_id: str | None = None
        self._is_begun = False
        self._is_followed = asyncio.Event()

    async def run(self, servers: Servers) -> Outcome:
        """Evaluate the prompt.

        Raises:
            PromptEvaluationError: the evaluation failed.
            VisibilityExpansionRequired: a tool requests another rendering of the prompt.
        """
        self._halted: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._worker = Worker()
        self._context.set_worker(self._worker)
        self._worker.post(self._context.beat)
        self._worker.post(self._transcript.start)
        try:
            return await self._evaluate(servers)
        except ClientError as error:
            raise evaluation_error(error, self._context.prompt_name, self._stderr()) from error
        finally:
            await self._leave(servers)

    async def _evaluate(self, servers: Servers) -> Outcome:
        async with self._limited():
            thread = await self._open(servers)
        text = await self._turn(thread, self._rendered.text)
        for _ in range(self._config.max_continuations):
            feedback = await self._missing_work(text)
            if feedback is None:
                break
            text = await self._turn(thread, feedback)
        return Outcome(text, self._usage)

    async def _missing_work(self, text: str) -> str | None:
        """Return what the completion checker finds missing, within deadline and budget."""
        check = partial(missing_work, self._context, self._spec.cwd, self._spec.tracker, text)
        async with self._limited():
            return await self._worker.run(check)

    async def _leave(self, servers: Servers) -> None:
        self._worker.post(self._transcript.stop)
        left = self._context.seconds_left()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if left is None else max(left, _DRAIN_SECONDS)):
                await self._worker.drain()
        self._worker.give_up()
        await self._tasks.close()
        if self._server is not None:
            keep = self._thread_id if self._config.reuse_thread else None
            self._server.release_threads(self, keep=keep)
            servers.release(self._server)

    # -- the thread

    async def _open(self, servers: Servers) -> AsyncThread:
        while True:
            self._server = server = await servers.acquire(self._spec.skills)
            was_fresh = server.is_fresh
            try:
                thread, is_resumed = await open_thread(
                    server, self._context, self._spec, self.tools
                )
            except Disconnected:
                # A warm server may have died while idle: try a new one.
                server.is_retired = True
                if was_fresh:
                    raise
                self._server = None
                servers.release(server)
            else:
                if is_resumed:
                    self._ledger.resume(thread.id)
                self._thread_id = thread.id
                server.register(thread.id, self)
                return thread

    # -- turns

    async def _turn(self, thread: AsyncThread, text: str) -> str:
        self._worker.post(partial(self._transcript.user, text))
        turn = await self._start(thread, text)
        ending = _Ending()
        ended = self._tasks.spawn(ending.follow(turn), "turn")
        futures: set[asyncio.Future[JsonValue]] = {ended, self._halted}
        try:
            await asyncio.wait(
                futures,
                timeout=self._context.seconds_left(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            # The thread stays registered until the turn is over, so that no other turn overlaps it.
            await self._stop(turn, ended)
            raise
        is_late = not ended.done() and not self._halted.done()
        if not ended.done():
            await self._stop(turn, ended)
        if self._halted.done():
            raise self._halted.result()
        if is_late:
            raise self._deadline_error(turn_id=turn.id)
        if ending.failure is not None:
            raise ending.failure
        return ending.text

    async def _start(self, thread: AsyncThread, text: str) -> AsyncTurn:
        """Start a turn, and deliver its events from the first one on."""
        self._is_followed.clear()
        try:
            async with self._limited():
                turn = await thread.start_turn(
                    self._input(text),
                    idle_timeout=self._config.turn_idle_timeout_s,
                    **self._turn_options(),
                )
            if self._spec.on_turn is not None:
                self._worker.post(partial(self._spec.on_turn, RunningTurn(self._loop, turn)))
            await turn.tap(self._on_event)
        finally:
            self._is_followed.set()
        return turn

    def _input(self, text: str) -> list[UserInput]:
        """Return the text, and in the first turn the skills that the server cannot find."""
        skills = [] if self._server is None or self._is_begun else self._server.skill_inputs
        self._is_begun = True
        return [TextUserInput(text=text), *skills]

    def _turn_options(self) -> JsonValue:
        model, config = self._spec.model, self._config
        options: JsonValue = {
            "model": model.model,
            "effort": model.effort,
            "summary": model.summary,
            "personality": model.personality,
            "output_schema": self._spec.output_schema,
            "sandbox_policy": config.sandbox_policy,
        }
        return {name: each for name, each in options.items() if each is not None}

    async def _stop(self, turn: AsyncTurn, ended: asyncio.Task[None]) -> None:
        """Interrupt the turn; kill a server that does not stop it in time."""
        is_confirmed = False
        with contextlib.suppress(TimeoutError, ClientError):
            async with asyncio.timeout(self._config.interrupt_grace_s):
                await turn.interrupt()
                is_confirmed = True
                await asyncio.wait({ended})
        server = self._server
        if ended.done() or server is None:
            return
        server.is_retired = True
        # A server that still answers is not killed while it has other users.
        if not is_confirmed or server.users == 1:
            server.kill()

    # -- events

    def _on_event(self, event: Event | None) -> None:
        if event is None:
            return
        if isinstance(event, TokenUsageUpdated):
            self._note_usage(event)
        elif isinstance(event, ItemStarted | ItemCompleted):
            self._note_item(event)
        if self._needs_deltas or not type(event).__name__.endswith("DeltaNotification"):
            self._worker.post(partial(self._deliver, event))

    def _note_item(self, event: ItemStarted | ItemCompleted) -> None:
        match event.item:
            case UserMessageThreadItem():
                return
            case CollabAgentToolCallThreadItem(receiver_thread_ids=agents):
                pass
            case SubAgentActivityThreadItem(agent_thread_id=agent):
                agents = [agent]
            case _:
                agents = []
        self._ledger.work(event.thread_id)
        # Not every server publishes `thread/started` for sub-agents.
        if self._server is not None:
            for thread_id in agents:
                self._server.adopt(thread_id, self)

    @property
    def _needs_deltas(self) -> bool:
        return self._spec.on_event is not None or self._context.heartbeat is not None

    def _deliver(self, event: Event) -> None:
        """Deliver an event, on the worker's thread."""
        self._context.beat()
        self._transcript.record(event)
        if isinstance(event, ItemCompleted):
            item = event.item
            is_ours = isinstance(item, DynamicToolCallThreadItem) and item.id in self._bridge.served
            activity = None if is_ours else activity_of(item)
            if activity is not None:
                self._context.dispatch(tool_invoked(self._context, activity, item.id))
        if self._spec.on_event is not None:
            self._spec.on_event(event)

    async def _serve(self, params: DynamicToolCallParams) -> DynamicToolCallResponse:
        # The call may arrive together with the response that starts its turn.
        await self._is_followed.wait()
        self._worker.post(partial(self._transcript.call, params))
        response = await self._worker.run(partial(self._bridge.call, params))
        self._worker.post(partial(self._transcript.answer, params, response))
        if self._bridge.expansion is not None:
            self._halt(self._bridge.expansion)
        return response

    # -- limits

    def note_agent_usage(self, event: TokenUsageUpdated) -> None:
        """Count tokens of a sub-agent.

        The own thread's reports come with the events of its turn, in order: a report that
        arrives before its turn is followed would count as tokens of an earlier turn.
        """
        if event.thread_id != self._thread_id:
            self._note_usage(event)

    def _note_usage(self, event: TokenUsageUpdated) -> None:
        """Count tokens, and stop when the budget is exceeded."""
        self._ledger.note("thread/tokenUsage/updated", msgspec.to_builtins(event))
        self._usage = token_usage(self._ledger.used)
        tracker = self._spec.tracker
        if tracker is None:
            return
        tracker.record_cumulative(self._id, self._usage)
        try:
            tracker.check()
        except BudgetExceededError as error:
            if error.exceeded_dimension != "deadline":
                self._halt(self._budget_error(error))

    def _budget_error(self, error: BudgetExceededError) -> PromptEvaluationError:
        spent = error.consumed
        failure = PromptEvaluationError(
            f"{error} ({spent.input_tokens} in, {spent.output_tokens} out)",
            prompt_name=self._context.prompt_name,
            phase="budget",
            provider_payload={
                "exceeded": error.exceeded_dimension,
                "input_tokens": spent.input_tokens,
                "output_tokens": spent.output_tokens,
                "thread_id": self._thread_id,
            },
        )
        failure.__cause__ = error
        return failure

    def _halt(self, reason: Exception) -> None:
        if not self._halted.done():
            self._halted.set_result(reason)

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Apply the deadline to the block."""
        try:
            async with asyncio.timeout(self._context.seconds_left()):
                yield
        except TimeoutError:
            server = self._server
            if server is not None and server.users == 1:
                server.kill()
            raise self._deadline_error() from None

    def _deadline_error(self, turn_id: str | None = None) -> PromptDeadlineExceeded:
        return PromptDeadlineExceeded(
            "the deadline passed before the prompt was evaluated",
            prompt_name=self._context.prompt_name,
            phase="request",
            provider_payload={
                "thread_id": self._thread_id,
                "turn_id": turn_id,
                "stderr": self._stderr(),
            },
        )

    def _stderr(self) -> str:
        return "" if self._server is None else self._server.stderr[-STDERR_CHARACTERS:]
