"""A turn that the asyncio client started or joined: its events, its result, its interruption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from treadle.client._runtime.reconnect import Backoff, deliver_missed
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
_INTERRUPT_RETRIES: Final = Backoff(attempts=6, first_s=0.02, longest_s=0.5)


class AsyncTurn:
    """A turn: iterate over its events, or wait for its result.

    The turn starts with its first use. Leaving its `async with` block early, or cancelling a task
    that waits for it, interrupts it.
    """

    def __init__(
        self,
        core: ClientRuntime,
        begin: Callable[[], Awaitable[TurnState]],
        *,
        idle_timeout: float | None,
    ) -> None:
        self._core = core
        self._begin = begin
        self._idle_timeout = idle_timeout
        self._state: TurnState | None = None
        self._starting = asyncio.Lock()

    # -- lifecycle

    async def start(self) -> Turn:
        """Start the turn if it has not started; return the turn as the server accepted it."""
        return (await self._started()).turn

    @property
    def id(self) -> str:
        """The turn's id, available once it has started."""
        return self._known().id

    @property
    def thread_id(self) -> str:
        """The id of its thread; a review may run in a separate thread."""
        return self._known().thread_id

    @property
    def partial(self) -> TurnResult[None]:
        """The result so far."""
        return self._known().result()

    async def result(self) -> TurnResult[None]:
        """Wait until the turn ends and return its result.

        Raises:
            TurnFailed: the turn ended with an error.
            TurnInterrupted: the turn was interrupted.
            TurnTimeout: the idle timeout or the total timeout expired.
            Disconnected: the connection is lost.
        """
        state = await self._started()
        try:
            await state.over()
        except BaseException:
            self._core.give_up(state)
            raise
        return outcome_of(state)

    async def steer(self, input: Input) -> str:
        """Add input to the turn; return the id of the turn that received it."""
        state = await self._started()
        params = TurnSteerParams(
            thread_id=state.thread_id, expected_turn_id=state.id, input=inputs_of(input)
        )
        return (await self._core.request(TURN_STEER, params)).turn_id

    async def interrupt(self) -> None:
        """Interrupt the turn; it still ends with `turn/completed`."""
        await interrupt(self._core, await self._started())

    # -- events

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
        """Pass each event to a function on the loop as it arrives, and `None` after the last."""
        (await self._started()).tap(take)

    def check(self) -> None:
        """Raise the error that the client gave the turn up with, if there is one."""
        failure = self._known().failure
        if failure is not None:
            raise failure

    async def text(self) -> AsyncIterator[str]:
        """Iterate over the text of the agent's messages as it arrives."""
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
                TurnWatchdog(self._core, self._state, idle_timeout=self._idle_timeout)
            return self._state


def outcome_of(state: TurnState) -> TurnResult[None]:
    """Return the result of a turn that is over.

    Raises:
        TurnFailed: the turn ended with an error.
        TurnInterrupted: the turn was interrupted.
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
    """Interrupt a turn.

    A server may refuse the interrupt of a turn that it has accepted but not yet started.

    Raises:
        RequestRefused: the server refused the interrupt, and the turn is still running.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_EVENT_SECONDS):
            await state.first_event()
    params = TurnInterruptParams(thread_id=state.thread_id, turn_id=state.id)
    refused: RequestRefused | None = None
    for delay in _INTERRUPT_RETRIES.delays():
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
    """Applies the idle timeout to a turn; open server requests suspend it."""

    def __init__(
        self, core: ClientRuntime, state: TurnState, *, idle_timeout: float | None
    ) -> None:
        self._core = core
        self._state = state
        self._idle_timeout = idle_timeout
        self._alarm = None if idle_timeout is None else core.alarms.set(idle_timeout, self._check)
        state.at_end(self._stop)

    def _check(self) -> None:
        state = self._state
        now = state.now()
        if self._idle_timeout is None or state.is_over:
            return
        notifications = self._core.notifications
        followed = notifications.turns.get((state.thread_id, state.id), state)
        if followed.open_requests or state.thread_id in notifications.waiting:
            state.last_event_at = now
        remaining = state.last_event_at + self._idle_timeout - now
        if remaining > 0:
            self._alarm = self._core.alarms.set(remaining, self._check)
        else:
            self._core.tasks.spawn(self._expire(self._idle_timeout), f"idle timeout of {state.id}")

    async def _expire(self, seconds: float) -> None:
        """Fail the turn unless the server has stored its end: `turn/completed` may be lost."""
        state = self._state
        params = ThreadReadParams(thread_id=state.thread_id, include_turns=True)
        with suppress(ClientError):
            thread = (await self._core.request(THREAD_READ, params)).thread
            for turn in thread.turns:
                if turn.id == state.id and turn.status != "inProgress":
                    deliver_missed(state, turn)
        if not state.is_over:
            state.fail(TurnTimeout(state.result(), seconds, is_total=False))
            self._core.give_up(state)

    def _stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
