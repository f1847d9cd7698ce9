"""One prompt on its way: a thread, its turns, what is told of them, and the limits that hold."""

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
from treadle.wink.events import deed_of, token_usage, tool_invoked
from treadle.wink.guardrails import unfinished
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
    """How a turn ends."""

    text: str = ""
    failure: ClientError | None = None

    async def follow(self, turn: AsyncTurn) -> None:
        """Wait for it."""
        try:
            self.text = (await turn.result()).agent_message
        except ClientError as error:
            self.failure = error


class PromptRun:
    """Everything here runs on the adapter's loop, but for what the worker does."""

    def __init__(
        self,
        scene: EvaluationContext,
        order: EvaluationSpec,
        rendered: RenderedPrompt[JsonValue],
        loop: LoopThread,
    ) -> None:
        self._scene = scene
        self._order = order
        self._config = order.config
        self._rendered = rendered
        self._loop = loop
        self._bridge = Bridge(scene, rendered)
        self._transcript = Transcript(scene, order.config)
        self.tools: list[Tool] = self._bridge.offered(self._serve)
        self._id = f"{scene.prompt_name}#{uuid4()}"
        self._ledger = UsageLedger()
        self._usage: TokenUsage | None = None
        self._tasks = BackgroundTasks()
        self._host: ServerHandle | None = None
        self._thread_id: str | None = None
        self._is_begun = False

    async def run(self, servers: Servers) -> Outcome:
        """Evaluate the prompt.

        Raises:
            PromptEvaluationError: it could not be done.
            VisibilityExpansionRequired: a tool wants the prompt to be rendered anew.
        """
        self._halted: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._worker = Worker()
        self._scene.is_over = lambda: self._worker.is_given_up
        self._worker.post(self._scene.beat)
        self._worker.post(self._transcript.start)
        try:
            return await self._evaluate(servers)
        except ClientError as error:
            raise evaluation_error(error, self._scene.prompt_name, self._stderr()) from error
        finally:
            await self._leave(servers)

    async def _evaluate(self, servers: Servers) -> Outcome:
        async with self._limited():
            thread = await self._open(servers)
        text = await self._turn(thread, self._rendered.text)
        for _ in range(self._config.max_continuations):
            wish = await self._wish(text)
            if wish is None:
                break
            text = await self._turn(thread, wish)
        return Outcome(text, self._usage)

    async def _wish(self, text: str) -> str | None:
        """What the prompt's completion checker still wants, if there is time and money for it."""
        check = partial(unfinished, self._scene, self._order.cwd, self._order.tracker, text)
        async with self._limited():
            return await self._worker.run(check)

    async def _leave(self, servers: Servers) -> None:
        self._worker.post(self._transcript.stop)
        left = self._scene.seconds_left()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if left is None else max(left, _DRAIN_SECONDS)):
                await self._worker.drain()
        self._worker.give_up()
        await self._tasks.close()
        if self._host is not None:
            keeps = self._thread_id if self._config.reuse_thread else None
            self._host.dismiss(self, keeps=keeps)
            servers.release(self._host)

    # -- the thread

    async def _open(self, servers: Servers) -> AsyncThread:
        while True:
            self._host = host = await servers.acquire(self._order.skills)
            was_fresh = host.is_fresh
            try:
                thread, is_resumed = await open_thread(host, self._scene, self._order, self.tools)
            except Disconnected:
                # A server that was kept warm may have died in its sleep; a new one is no worse.
                host.is_retired = True
                if was_fresh:
                    raise
                self._host = None
                servers.release(host)
            else:
                if is_resumed:
                    self._ledger.resume(thread.id)
                self._thread_id = thread.id
                host.enrol(thread.id, self)
                return thread

    # -- its turns

    async def _turn(self, thread: AsyncThread, text: str) -> str:
        self._worker.post(partial(self._transcript.user, text))
        async with self._limited():
            turn = await thread.start_turn(
                self._input(text), silence=self._config.turn_silence_s, **self._turn_options()
            )
        if self._order.on_turn is not None:
            self._worker.post(partial(self._order.on_turn, RunningTurn(self._loop, turn)))
        await turn.tap(self._take)
        ending = _Ending()
        ended = self._tasks.spawn(ending.follow(turn), "turn")
        awaited: set[asyncio.Future[JsonValue]] = {ended, self._halted}
        try:
            await asyncio.wait(
                awaited,
                timeout=self._scene.seconds_left(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            # The thread stays ours until the turn is over: the next one must not run into it.
            await self._stop(turn, ended)
            raise
        is_late = not ended.done() and not self._halted.done()
        if not ended.done():
            await self._stop(turn, ended)
        if self._halted.done():
            raise self._halted.result()
        if is_late:
            raise self._too_late(turn_id=turn.id)
        if ending.failure is not None:
            raise ending.failure
        return ending.text

    def _input(self, text: str) -> list[UserInput]:
        """The text, and before the first one the skills that the server would not find."""
        skills = [] if self._host is None or self._is_begun else self._host.skill_inputs
        self._is_begun = True
        return [TextUserInput(text=text), *skills]

    def _turn_options(self) -> JsonValue:
        model, config = self._order.model, self._config
        given: JsonValue = {
            "model": model.model,
            "effort": model.effort,
            "summary": model.summary,
            "personality": model.personality,
            "output_schema": self._order.output_schema,
            "sandbox_policy": config.sandbox_policy,
        }
        return {name: each for name, each in given.items() if each is not None}

    async def _stop(self, turn: AsyncTurn, ended: asyncio.Task[None]) -> None:
        """Interrupt the turn; a server that does not obey in time is killed."""
        is_heard = False
        with contextlib.suppress(TimeoutError, ClientError):
            async with asyncio.timeout(self._config.interrupt_grace_s):
                await turn.interrupt()
                is_heard = True
                await asyncio.wait({ended})
        host = self._host
        if ended.done() or host is None:
            return
        host.is_retired = True
        # One that still answers is spared as long as it works for others.
        if not is_heard or host.users == 1:
            host.kill()

    # -- what is told of them

    def _take(self, event: Event | None) -> None:
        if event is None:
            return
        if isinstance(event, TokenUsageUpdated):
            self.note_usage(event)
        elif isinstance(event, ItemStarted | ItemCompleted):
            self._note_item(event)
        if self._hears_all or not type(event).__name__.endswith("DeltaNotification"):
            self._worker.post(partial(self._tell, event))

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
        # Not every server announces the threads of sub-agents.
        if self._host is not None:
            for thread_id in agents:
                self._host.adopt(thread_id, self)

    @property
    def _hears_all(self) -> bool:
        return self._order.on_event is not None or self._scene.heartbeat is not None

    def _tell(self, event: Event) -> None:
        """Pass an event on, on the worker's thread."""
        self._scene.beat()
        self._transcript.hear(event)
        if isinstance(event, ItemCompleted):
            item = event.item
            is_ours = isinstance(item, DynamicToolCallThreadItem) and item.id in self._bridge.served
            deed = None if is_ours else deed_of(item)
            if deed is not None:
                self._scene.dispatch(tool_invoked(self._scene, deed, item.id))
        if self._order.on_event is not None:
            self._order.on_event(event)

    async def _serve(self, params: DynamicToolCallParams) -> DynamicToolCallResponse:
        self._worker.post(partial(self._transcript.call, params))
        response = await self._worker.run(partial(self._bridge.call, params))
        self._worker.post(partial(self._transcript.answer, params, response))
        if self._bridge.expansion is not None:
            self._halt(self._bridge.expansion)
        return response

    # -- limits

    def note_usage(self, event: TokenUsageUpdated) -> None:
        """Count tokens, of sub-agents too, and stop when there are more than the budget allows."""
        self._ledger.note("thread/tokenUsage/updated", msgspec.to_builtins(event))
        self._usage = token_usage(self._ledger.used)
        tracker = self._order.tracker
        if tracker is None:
            return
        tracker.record_cumulative(self._id, self._usage)
        try:
            tracker.check()
        except BudgetExceededError as error:
            if error.exceeded_dimension != "deadline":
                self._halt(self._too_much(error))

    def _too_much(self, error: BudgetExceededError) -> PromptEvaluationError:
        spent = error.consumed
        failure = PromptEvaluationError(
            f"{error} ({spent.input_tokens} in, {spent.output_tokens} out)",
            prompt_name=self._scene.prompt_name,
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
        """Let nothing in the block outlast the deadline."""
        try:
            async with asyncio.timeout(self._scene.seconds_left()):
                yield
        except TimeoutError:
            host = self._host
            if host is not None and host.users == 1:
                host.kill()
            raise self._too_late() from None

    def _too_late(self, turn_id: str | None = None) -> PromptDeadlineExceeded:
        return PromptDeadlineExceeded(
            "the deadline passed before the prompt was evaluated",
            prompt_name=self._scene.prompt_name,
            phase="request",
            provider_payload={
                "thread_id": self._thread_id,
                "turn_id": turn_id,
                "stderr": self._stderr(),
            },
        )

    def _stderr(self) -> str:
        return "" if self._host is None else self._host.stderr[-STDERR_CHARACTERS:]
