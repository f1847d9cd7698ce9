"""A turn that this client started or joined: its events, its result, and how to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from treadle.client._runtime.reconnect import Backoff, tell_missed
from treadle.client._runtime.turn_state import TurnState
from treadle.client.errors import (
    ClientError,
    RequestRefused,
    TurnFailed,
    TurnInterrupted,
    TurnTimeout,
)
from treadle.client.events import AgentMessageDelta, Event
from treadle.client.options import Input, inputs_of
from treadle.client.result import TurnResult
from treadle.protocol.client_requests import THREAD_READ, TURN_INTERRUPT, TURN_STEER
from treadle.protocol.thread_manage import ThreadReadParams
from treadle.protocol.turn import Turn, TurnInterruptParams, TurnSteerParams

if TYPE_CHECKING:
    from treadle.client._runtime.runtime import ClientRuntime

_FIRST_EVENT_SECONDS: Final = 1.0
_INSIST: Final = Backoff(attempts=6, first_s=0.02, longest_s=0.5)


class AsyncTurn:
    """One turn; iterate over its events, or wait for its result.

    It starts with the first use. Leaving an `async with` block before its end, or cancelling
    whoever waits for it, interrupts it.
    """

    def __init__(
        self,
        core: ClientRuntime,
        begin: Callable[[], Awaitable[TurnState]],
        *,
        silence: float | None,
    ) -> None:
        self._core = core
        self._begin = begin
        self._silence = silence
        self._state: TurnState | None = None
        self._starting = asyncio.Lock()

    # -- its life

    async def start(self) -> Turn:
        """Start the turn, if it was not yet; gives it as the server announced it."""
        return (await self._started()).turn

    @property
    def id(self) -> str:
        """The turn's id; known once it has started."""
        return self._known().id

    @property
    def thread_id(self) -> str:
        """The thread it runs in; a review may run in one of its own."""
        return self._known().thread_id

    @property
    def partial(self) -> TurnResult[None]:
        """What is known of the turn by now."""
        return self._known().result()

    async def result(self) -> TurnResult[None]:
        """Wait for the end of the turn.

        Raises:
            TurnFailed: it ended with an error.
            TurnInterrupted: somebody stopped it.
            TurnTimeout: it was silent for too long, or took too long.
            Disconnected: the server is gone.
        """
        state = await self._started()
        try:
            await state.over()
        except BaseException:
            self._core.give_up(state)
            raise
        return outcome_of(state)

    async def steer(self, given: Input) -> str:
        """Give the running turn more input; gives the id of the turn that took it."""
        state = await self._started()
        params = TurnSteerParams(
            thread_id=state.thread_id, expected_turn_id=state.id, input=inputs_of(given)
        )
        return (await self._core.request(TURN_STEER, params)).turn_id

    async def interrupt(self) -> None:
        """Stop the turn; its end is told as any other."""
        await interrupt(self._core, await self._started())

    # -- its events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        state = await self._started()
        try:
            event = await state.next_event()
        except asyncio.CancelledError:
            self._core.give_up(state)
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def tap(self, take: Callable[[Event | None], None]) -> None:
        """Hand every event to a function on the loop as it comes; `None` says that it was all."""
        (await self._started()).tap(take)

    def check(self) -> None:
        """Raise what the turn was given up for, if it was."""
        failure = self._known().failure
        if failure is not None:
            raise failure

    async def text(self) -> AsyncIterator[str]:
        """The agent's words as they come, and nothing else."""
        async for event in self:
            if isinstance(event, AgentMessageDelta):
                yield event.delta

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._state is not None:
            self._core.give_up(self._state)

    # --

    def _known(self) -> TurnState:
        if self._state is None:
            raise RuntimeError("the turn has not started: await start() first")
        return self._state

    async def _started(self) -> TurnState:
        if self._state is not None:
            return self._state
        async with self._starting:
            if self._state is None:
                self._state = await self._begin()
                TurnWatchdog(self._core, self._state, silence=self._silence)
            return self._state


def outcome_of(state: TurnState) -> TurnResult[None]:
    """What came of a turn that is over.

    Raises:
        TurnFailed: it ended with an error.
        TurnInterrupted: somebody stopped it.
    """
    result = state.result()
    match result.turn.status:
        case "failed":
            raise TurnFailed(result)
        case "interrupted":
            raise TurnInterrupted(result)
        case _:
            return result


async def interrupt(core: ClientRuntime, state: TurnState) -> None:
    """Stop a turn.

    A server may refuse this until the turn that it has announced does run.

    Raises:
        RequestRefused: the turn cannot be stopped, and did not end by itself either.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_EVENT_SECONDS):
            await state.first_event()
    params = TurnInterruptParams(thread_id=state.thread_id, turn_id=state.id)
    refused: RequestRefused | None = None
    for delay in _INSIST.delays():
        if state.is_over and state.failure is None:
            return
        try:
            await core.request(TURN_INTERRUPT, params)
            return
        except RequestRefused as error:
            refused = error
        await asyncio.sleep(delay)
    if refused is not None and not state.is_over:
        raise refused


class TurnWatchdog:
    """Ends a turn that is silent for too long; open asks stop the clock."""

    def __init__(self, core: ClientRuntime, state: TurnState, *, silence: float | None) -> None:
        self._core = core
        self._state = state
        self._silence = silence
        self._silent = None if silence is None else core.alarms.set(silence, self._check)
        state.at_end(self._stop)

    def _check(self) -> None:
        state = self._state
        now = state.now()
        if self._silence is None or state.is_over:
            return
        hub = self._core.hub
        followed = hub.turns.get((state.thread_id, state.id), state)
        if followed.open_asks or state.thread_id in hub.waiting:
            state.heard_at = now
        left = state.heard_at + self._silence - now
        if left > 0:
            self._silent = self._core.alarms.set(left, self._check)
        else:
            self._core.tasks.spawn(self._look(self._silence), f"look after {state.id}")

    async def _look(self, seconds: float) -> None:
        """Ask the server how the turn stands: what tells of its end may have been lost."""
        state = self._state
        params = ThreadReadParams(thread_id=state.thread_id, include_turns=True)
        with suppress(ClientError):
            thread = (await self._core.request(THREAD_READ, params)).thread
            for turn in thread.turns:
                if turn.id == state.id and turn.status != "inProgress":
                    tell_missed(state, turn)
        if not state.is_over:
            state.fail(TurnTimeout(state.result(), seconds, is_total=False))
            self._core.give_up(state)

    def _stop(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
