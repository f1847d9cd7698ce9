"""The internals that a client shares with its threads, turns and commands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, TypeAlias, TypeVar

from treadle.client._runtime.connection import ServerConnection
from treadle.client._runtime.notifications import NotificationRouter
from treadle.client._runtime.reconnect import (
    Backoff,
    RequestSender,
    catch_up,
    deliver_missed,
    is_unsure,
)
from treadle.client._runtime.server_requests import ServerRequestHandlers
from treadle.client._runtime.turn_state import TurnState
from treadle.client.approvals import ApprovalPolicy
from treadle.client.connectors import Connector
from treadle.client.errors import ClientError, Disconnected, TurnTimeout
from treadle.client.events import ServerRequestResolved
from treadle.client.tools import ClientTools
from treadle.client.turn import TurnWatchdog, interrupt
from treadle.protocol.client_requests import THREAD_READ
from treadle.protocol.initialize import InitializeParams, InitializeResponse
from treadle.protocol.method import Request
from treadle.protocol.thread_manage import ThreadReadParams
from treadle.protocol.turn import Turn
from treadle.support.concurrency.alarms import Alarm, Alarms
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.ids import uuid7

P = TypeVar("P")
R = TypeVar("R")

TurnOpener: TypeAlias = Callable[[], Awaitable[tuple[str, Turn]]]
"""Sends the request that opens a turn; returns the id of its thread, and the turn."""

_CLOSE_SECONDS: Final = 2.0
_READ_DELAYS: Final = Backoff(attempts=6, first_s=0.05, longest_s=0.8)

logger = logging.getLogger(__name__)


class _Start:
    """A turn that is being opened; `watch` makes the caller wait until the turn ends."""

    __slots__ = ("deadline", "open_turn", "outcome", "state", "watch")

    def __init__(self, open_turn: TurnOpener, watch: Callable[[TurnState], object] | None) -> None:
        self.open_turn = open_turn
        self.watch = watch
        self.deadline: Alarm | None = None
        self.state: TurnState | None = None
        self.outcome: asyncio.Future[TurnState] = asyncio.get_running_loop().create_future()

    def go_on(self, state: TurnState) -> None:
        """Continue with the opened turn."""
        self.state = state
        if self.deadline is not None:
            state.at_end(self.deadline.cancel)
        if self.watch is None:
            self.outcome.set_result(state)
        else:
            self.watch(state)
            state.at_end(self._end)

    def fail(self, error: Exception) -> None:
        """Raise an error to the caller."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # marks it as retrieved: the caller may be gone

    def _end(self) -> None:
        if self.state is None or self.outcome.done():
            return
        if self.state.failure is not None:
            self.fail(self.state.failure)
        else:
            self.outcome.set_result(self.state)


class ClientRuntime:
    """The client's connection, notification router, handlers and tools; `open` connects it."""

    def __init__(
        self,
        connector: Connector,
        hello: InitializeParams,
        *,
        policy: ApprovalPolicy | None,
        backoff: Backoff | None,
        timeout: float | None,
        idle_timeout: float | None,
    ) -> None:
        self.tasks = BackgroundTasks()
        self.alarms = Alarms()
        self.notifications = NotificationRouter(
            self.tasks,
            can_return=backoff is not None,
            on_closed=self._forget,
            on_resolved=self._withdraw,
        )
        self.tools = ClientTools()
        self.server_requests = ServerRequestHandlers(
            self.notifications, self.tools, policy, self.tasks
        )
        self.idle_timeout = idle_timeout
        self.subscribed: set[str] = set()
        """Ids of the threads that this client is subscribed to."""
        self._name = uuid7()
        self._numbers = count(1)
        self._closing_tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._connecting = asyncio.Lock()
        self._server: InitializeResponse | None = None
        self.connection = ServerConnection(
            connector,
            self.server_requests.router(),
            self.tasks,
            self.alarms,
            on_notice=self.notifications.on_notice,
            on_return=self._on_return,
            on_end=self._end,
            hello=hello,
            backoff=backoff,
            timeout=timeout,
        )

    async def open(self) -> InitializeResponse:
        """Connect once; later calls return the same answer."""
        async with self._connecting:
            if self._is_closed:
                raise Disconnected("the client is closed")
            if self._server is None:
                self._server = await self.connection.open()
            return self._server

    async def close(self) -> None:
        """Close the connection and end all tasks."""
        self._is_closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._closing_tasks:  # one may start another
                    await asyncio.wait(self._closing_tasks)
        await self.connection.close()
        await self.tasks.close()
        self.alarms.close()

    def request(
        self, method: Request[P, R], params: P, *, timeout: float | None = None
    ) -> Coroutine[None, None, R]:
        """Send a request and return its result."""
        return self.connection.request(method, params, timeout=timeout)

    def message_id(self) -> str:
        """Return a new message id, by which a server recognises a repeated message."""
        return f"{self._name}-{next(self._numbers)}"

    async def begin_turn(self, open_turn: TurnOpener, *, timeout: float | None) -> TurnState:
        """Open a turn and follow it from its first event.

        If the caller is cancelled meanwhile, the turn is interrupted once its id is known.

        Raises:
            TurnTimeout: the total timeout expired before the turn was open.
        """
        return await self._wait_for(_Start(open_turn, None), timeout)

    async def run_turn(
        self, open_turn: TurnOpener, *, idle_timeout: float | None, timeout: float | None
    ) -> TurnState:
        """Open a turn and wait until it ends; the caller wakes only once.

        Raises:
            ClientError: the client gave the turn up.
        """
        watch = partial(TurnWatchdog, self, idle_timeout=idle_timeout)
        return await self._wait_for(_Start(open_turn, watch), timeout)

    async def _wait_for(self, start: _Start, timeout: float | None) -> TurnState:
        if timeout is not None:
            start.deadline = self.alarms.set(timeout, partial(self._expire, start, timeout))
        # A separate task: the request continues if the caller is cancelled.
        opening = self.tasks.start(self._open_turn(start), "turn start")
        try:
            return await start.outcome
        except BaseException:
            if start.deadline is not None:
                start.deadline.cancel()
            if start.state is not None:
                self.give_up(start.state)
            elif not opening.done():
                self._finish_before_close(opening)
            raise

    def _expire(self, start: _Start, seconds: float) -> None:
        """Fail the turn with its total timeout, whether it is open or not."""
        state = start.state
        if state is None:
            empty = TurnState("", Turn(id="", items=[], status="inProgress"))
            start.fail(TurnTimeout(empty.result(), seconds, is_total=True))
        else:
            state.fail(TurnTimeout(state.result(), seconds, is_total=True))
            self.give_up(state)

    async def _open_turn(self, start: _Start) -> None:
        try:
            with self.notifications.opening() as opening:
                thread_id, turn = await start.open_turn()
                state = TurnState(thread_id, turn, keeps_events=start.watch is None)
                self.notifications.follow(state, opening)
                if turn.items or turn.status != "inProgress":
                    self.reconcile(state, turn)  # not new: its start was requested twice
        except asyncio.CancelledError:
            start.fail(Disconnected("the client is closed"))
            raise
        except Exception as error:  # noqa: BLE001 - raised to the caller
            start.fail(error)
        else:
            if start.outcome.done():
                self.give_up(state)  # the caller is gone
            else:
                start.go_on(state)

    def give_up(self, state: TurnState) -> None:
        """Interrupt an abandoned turn in the background."""
        is_done = state.is_given_up or (state.is_over and state.failure is None)
        if is_done or isinstance(state.failure, Disconnected) or self.tasks.is_closed:
            return
        state.is_given_up = True
        self._finish_before_close(self.tasks.spawn(self._interrupt(state), f"give up {state.id}"))

    def _finish_before_close(self, task: asyncio.Task[None]) -> None:
        """Let a task end by itself; `close` waits for it for up to 2 seconds."""
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)

    async def _interrupt(self, state: TurnState) -> None:
        with suppress(ClientError):
            await interrupt(self, state)

    async def _on_return(self, send: RequestSender) -> None:
        """Subscribe to the threads again, first to those with an awaited turn."""
        awaited = {state.thread_id for state in self.notifications.turns.values()}
        for thread_id in sorted(self.subscribed | awaited, key=lambda id_: id_ not in awaited):
            if not await catch_up(send, self.notifications, thread_id, self.reconcile):
                self.subscribed.discard(thread_id)

    def reconcile(self, state: TurnState, turn: Turn) -> None:
        """Deliver the stored events of a turn that the client missed."""
        if is_unsure(turn):
            self.tasks.spawn(self._read_until_sure(state, turn), f"read {state.id} again")
        else:
            deliver_missed(state, turn)

    async def _read_until_sure(self, state: TurnState, turn: Turn) -> None:
        """Read a turn until its end is certain, or the attempts are used up."""
        params = ThreadReadParams(thread_id=state.thread_id, include_turns=True)
        with suppress(ClientError):
            for delay in _READ_DELAYS.delays():
                await asyncio.sleep(delay)
                thread = (await self.request(THREAD_READ, params)).thread
                turn = next((each for each in thread.turns if each.id == state.id), turn)
                if not is_unsure(turn):
                    break
        deliver_missed(state, turn)

    def _forget(self, thread_id: str) -> None:
        """Drop the subscription to a thread that the server has unloaded."""
        self.subscribed.discard(thread_id)

    def _withdraw(self, event: ServerRequestResolved) -> None:
        self.server_requests.withdraw(event)

    def _end(self, failure: Disconnected) -> None:
        self.notifications.end(failure, is_clean=self._is_closed)
