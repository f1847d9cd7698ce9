"""The asyncio client's thread."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, Unpack, overload

from treadle.client._runtime.output import REPAIR, output_schema, read_output
from treadle.client._runtime.turn_state import TurnState
from treadle.client.errors import Disconnected, OutputInvalid
from treadle.client.options import (
    CLIENT_DEFAULT,
    ClientDefault,
    ForkOptions,
    IdleTimeout,
    Input,
    TurnOptions,
    inputs_of,
    to_fields,
)
from treadle.client.result import ReviewResult, TurnResult, review_of
from treadle.client.tools import ToolLike
from treadle.client.turn import AsyncTurn, outcome_of
from treadle.protocol.client_requests import (
    REVIEW_START,
    THREAD_ARCHIVE,
    THREAD_COMPACT_START,
    THREAD_NAME_SET,
    THREAD_READ,
    THREAD_RESUME,
    THREAD_UNSUBSCRIBE,
    TURN_INTERRUPT,
    TURN_START,
    TURN_STEER,
)
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.review import (
    ReviewDelivery,
    ReviewStartParams,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)
from treadle.protocol.thread import (
    Thread,
    ThreadForkResponse,
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadSetNameParams,
    ThreadStartResponse,
)
from treadle.protocol.thread_manage import (
    ThreadArchiveParams,
    ThreadCompactStartParams,
    ThreadReadParams,
    ThreadUnsubscribeParams,
)
from treadle.protocol.turn import Turn, TurnInterruptParams, TurnStartParams, TurnSteerParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.client._runtime.runtime import ClientRuntime, TurnOpener
    from treadle.client.async_client import AsyncClient

T = TypeVar("T")

ThreadSession: TypeAlias = ThreadStartResponse | ThreadResumeResponse | ThreadForkResponse
"""The server's answer to the start, resume or fork of a thread: the thread and its settings."""

_MAX_START_ATTEMPTS: Final = 10


class AsyncThread:
    """A thread of the server: run turns in it, steer them, read its history."""

    def __init__(
        self,
        client: AsyncClient,
        core: ClientRuntime,
        thread_id: str,
        session: ThreadSession | None,
    ) -> None:
        self._client = client
        self._core = core
        self.id = thread_id
        self.session = session
        self._joined: TurnState | None = None

    @property
    def info(self) -> Thread:
        """The thread as it was when it was started, resumed or forked."""
        if self.session is None:
            raise RuntimeError("the thread was neither started nor resumed here: use read()")
        return self.session.thread

    # -- turns

    @overload
    async def run(
        self,
        input: Input,
        *,
        output_type: None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    async def run(
        self,
        input: Input,
        *,
        output_type: type[T],
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T]: ...
    async def run(
        self,
        input: Input,
        *,
        output_type: type[T] | None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T] | TurnResult[None]:
        """Run a turn to its end; `output_type` converts the final answer to a value of that type.

        An answer that does not match the type is sent back to the model once. `idle_timeout` limits
        the time between two events, `timeout` the whole turn, in seconds; `None` means no limit.

        Raises:
            TurnFailed: the turn ended with an error.
            TurnInterrupted: the turn was interrupted.
            TurnTimeout: the idle timeout or the total timeout expired.
            OutputInvalid: neither the first nor the second answer matches the type.
        """
        if output_type is not None:
            options["output_schema"] = output_schema(output_type)
        result = await self._run(input, options, idle_timeout=idle_timeout, timeout=timeout)
        if output_type is None:
            return result
        try:
            output = read_output(output_type, result.agent_message)
        except OutputInvalid as invalid:
            correction = REPAIR.format(reason=invalid.reason)
            second = await self._run(
                correction, options, idle_timeout=idle_timeout, timeout=timeout
            )
            output = read_output(output_type, second.agent_message)
            result = replace(second, items=[*result.items, *second.items])
        return TurnResult(
            turn=result.turn,
            items=result.items,
            agent_message=result.agent_message,
            diff=result.diff,
            usage=result.usage,
            plan=result.plan,
            output=output,
        )

    def stream(
        self,
        input: Input,
        *,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> AsyncTurn:
        """Return a turn to iterate over; it starts with the first iteration."""
        return self._turn(input, options, idle_timeout=idle_timeout, timeout=timeout)

    async def start_turn(
        self,
        input: Input,
        *,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> AsyncTurn:
        """Start a turn and return it once the server has accepted it."""
        turn = self._turn(input, options, idle_timeout=idle_timeout, timeout=timeout)
        await turn.start()
        return turn

    async def steer(self, input: Input, expected_turn_id: str) -> str:
        """Add input to a running turn; return the id of the turn that received it."""
        params = TurnSteerParams(
            thread_id=self.id, expected_turn_id=expected_turn_id, input=inputs_of(input)
        )
        return (await self._core.request(TURN_STEER, params)).turn_id

    async def interrupt(self, turn_id: str) -> None:
        """Interrupt a running turn."""
        params = TurnInterruptParams(thread_id=self.id, turn_id=turn_id)
        await self._core.request(TURN_INTERRUPT, params)

    def running(self) -> AsyncTurn | None:
        """Return the turn that was running at resume, with its events since then."""
        state = self._joined
        if state is None:
            return None

        async def begin() -> TurnState:
            return state

        return AsyncTurn(self._core, begin, idle_timeout=self._core.idle_timeout)

    def join(self) -> None:
        """Follow the running turn, if there is one."""
        turns = self.info.turns
        if turns and turns[-1].status == "inProgress":
            self._joined = TurnState(self.id, turns[-1], keeps_events=True)
            self._core.notifications.follow(self._joined)

    # -- reviews

    async def run_review(
        self,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
    ) -> ReviewResult:
        """Review code, by default the uncommitted changes, and wait for the result."""
        review = self.review(target, delivery=delivery, idle_timeout=idle_timeout, timeout=timeout)
        return review_of(await review.result())

    def review(
        self,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
    ) -> AsyncTurn:
        """Return a review to iterate over; it starts with the first iteration."""
        params = ReviewStartParams(
            target=target or UncommittedChangesReviewTarget(), thread_id=self.id, delivery=delivery
        )

        async def open_turn() -> tuple[str, Turn]:
            if self.id not in self._core.subscribed:
                await self._subscribe()
            answer = await self._core.request(REVIEW_START, params)
            return answer.review_thread_id or self.id, answer.turn

        begin = partial(self._core.begin_turn, open_turn, timeout=timeout)
        return AsyncTurn(self._core, begin, idle_timeout=self._idle_timeout(idle_timeout))

    # -- the thread itself

    async def read(self, *, include_turns: bool = True) -> Thread:
        """Return the thread in its stored state."""
        params = ThreadReadParams(thread_id=self.id, include_turns=include_turns)
        return (await self._core.request(THREAD_READ, params)).thread

    async def fork(
        self, *, tools: Sequence[ToolLike] = (), **options: Unpack[ForkOptions]
    ) -> AsyncThread:
        """Start a new thread from this thread's history."""
        return await self._client.fork_thread(self.id, tools=tools, **options)

    async def set_name(self, name: str) -> None:
        """Set the thread's name."""
        await self._core.request(THREAD_NAME_SET, ThreadSetNameParams(name, self.id))

    async def archive(self) -> None:
        """Archive the thread."""
        await self._core.request(THREAD_ARCHIVE, ThreadArchiveParams(self.id))
        self._core.subscribed.discard(self.id)

    async def compact(self) -> None:
        """Compact the history in a separate turn."""
        await self._core.request(THREAD_COMPACT_START, ThreadCompactStartParams(self.id))

    async def unsubscribe(self) -> None:
        """Stop receiving the thread's events."""
        self._core.subscribed.discard(self.id)
        await self._core.request(THREAD_UNSUBSCRIBE, ThreadUnsubscribeParams(self.id))

    # --

    async def _run(
        self,
        input: Input,
        options: TurnOptions,
        *,
        idle_timeout: IdleTimeout,
        timeout: float | None,
    ) -> TurnResult[None]:
        open_turn = self._opener(input, options)
        seconds = self._idle_timeout(idle_timeout)
        state = await self._core.run_turn(open_turn, idle_timeout=seconds, timeout=timeout)
        return outcome_of(state)

    def _turn(
        self,
        input: Input,
        options: TurnOptions,
        *,
        idle_timeout: IdleTimeout,
        timeout: float | None,
    ) -> AsyncTurn:
        open_turn = self._opener(input, options)
        begin = partial(self._core.begin_turn, open_turn, timeout=timeout)
        return AsyncTurn(self._core, begin, idle_timeout=self._idle_timeout(idle_timeout))

    def _opener(self, input: Input, options: TurnOptions) -> TurnOpener:
        """Return the function that starts the turn; its message id makes it safe to repeat."""
        fields = to_fields(options)
        fields.setdefault("client_user_message_id", self._core.message_id())
        params = TurnStartParams(input=inputs_of(input), thread_id=self.id, **fields)
        return partial(self._start, params)

    async def _start(self, params: TurnStartParams) -> tuple[str, Turn]:
        """Start a turn exactly once, even if the connection breaks meanwhile.

        The number of attempts is limited, because a server may disconnect on each of them.
        """
        attempts = 0
        while True:
            attempts += 1
            try:
                if self.id not in self._core.subscribed:
                    await self._subscribe()
                return self.id, (await self._core.request(TURN_START, params)).turn
            except Disconnected:
                if attempts == _MAX_START_ATTEMPTS or not self._core.connection.can_return:
                    raise
            turn = await self._find_turn(params.client_user_message_id)
            if turn is not None:
                return self.id, turn

    async def _find_turn(self, message_id: str | None) -> Turn | None:
        """Return the turn that a message started, if the server received the message."""
        for turn in reversed((await self.read()).turns):
            for item in turn.items:
                if isinstance(item, UserMessageThreadItem) and item.client_id == message_id:
                    return turn
        return None

    def _idle_timeout(self, seconds: IdleTimeout) -> float | None:
        return self._core.idle_timeout if isinstance(seconds, ClientDefault) else seconds

    async def _subscribe(self) -> None:
        """Subscribe this client to the thread's events."""
        params = ThreadResumeParams(thread_id=self.id, exclude_turns=True)
        await self._core.request(THREAD_RESUME, params)
        self._core.subscribed.add(self.id)
