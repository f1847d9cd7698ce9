"""Threads, turns, commands and sign-ins of the blocking client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

from treadle.client._runtime.portal import Portal
from treadle.client._runtime.turn_state import MAX_UNREAD
from treadle.client.accounts import AsyncLogin
from treadle.client.commands import AsyncCommand, CommandOutput
from treadle.client.errors import EventsLost
from treadle.client.events import AgentMessageDelta, Event
from treadle.client.options import CLIENT_DEFAULT, ForkOptions, IdleTimeout, Input, TurnOptions
from treadle.client.result import ReviewResult, TurnResult
from treadle.client.thread import AsyncThread, ThreadSession
from treadle.client.tools import ToolLike
from treadle.client.turn import AsyncTurn
from treadle.protocol.command import CommandExecResponse
from treadle.protocol.review import ReviewDelivery, ReviewTarget
from treadle.protocol.thread import Thread as ThreadInfo
from treadle.protocol.turn import Turn as TurnInfo

T = TypeVar("T")


class Turn:
    """Blocking version of `AsyncTurn`."""

    def __init__(self, portal: Portal, turn: AsyncTurn) -> None:
        self._portal = portal
        self._turn = turn
        self._events: SimpleQueue[Event | None] | None = None
        self._lost = 0

    def start(self) -> TurnInfo:
        """Start the turn if it has not started; return the turn as the server accepted it."""
        return self._portal.run(self._turn.start())

    @property
    def id(self) -> str:
        """The turn's id, available once it has started."""
        return self._turn.id

    @property
    def thread_id(self) -> str:
        """The id of its thread; a review may run in a separate thread."""
        return self._turn.thread_id

    @property
    def partial(self) -> TurnResult[None]:
        """The result so far."""
        return self._turn.partial

    def result(self) -> TurnResult[None]:
        """Wait until the turn ends and return its result; see `AsyncTurn.result`."""
        return self._portal.run(self._turn.result())

    def steer(self, input: Input) -> str:
        """Add input to the turn; return the id of the turn that received it."""
        return self._portal.run(self._turn.steer(input))

    def interrupt(self) -> None:
        """Interrupt the turn; it still ends with `turn/completed`."""
        self._portal.run(self._turn.interrupt())

    def __iter__(self) -> Iterator[Event]:
        # A queue between the threads: a coroutine for each event would cost more than the event.
        is_new = self._events is None
        self._events = self._events or SimpleQueue()
        try:
            if is_new:
                self._portal.run(self._turn.tap(self._take))
            while (event := self._events.get()) is not None:
                yield event
        except KeyboardInterrupt:
            self.__exit__(None, None, None)
            raise
        self._events.put(None)  # ends a second iteration as well
        if self._lost:
            raise EventsLost(self._lost)
        self._turn.check()

    def _take(self, event: Event | None) -> None:
        if self._events is not None:
            if event is None or self._events.qsize() < MAX_UNREAD:
                self._events.put(event)
            else:
                self._lost += 1

    def text(self) -> Iterator[str]:
        """Iterate over the text of the agent's messages as it arrives."""
        for event in self:
            if isinstance(event, AgentMessageDelta):
                yield event.delta

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.run(self._turn.__aexit__(kind, error, trace))


class Thread:
    """Blocking version of `AsyncThread`."""

    def __init__(self, portal: Portal, thread: AsyncThread) -> None:
        self._portal = portal
        self._thread = thread

    @property
    def id(self) -> str:
        """The thread's id."""
        return self._thread.id

    @property
    def session(self) -> ThreadSession | None:
        """The server's answer to the start, resume or fork of the thread."""
        return self._thread.session

    @property
    def info(self) -> ThreadInfo:
        """The thread as it was when it was started, resumed or forked."""
        return self._thread.info

    @overload
    def run(
        self,
        input: Input,
        *,
        output_type: None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    def run(
        self,
        input: Input,
        *,
        output_type: type[T],
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T]: ...
    def run(
        self,
        input: Input,
        *,
        output_type: type[T] | None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T] | TurnResult[None]:
        """Run a turn to its end; see `AsyncThread.run`."""
        run = self._thread.run
        if output_type is None:
            return self._portal.run(
                run(input, idle_timeout=idle_timeout, timeout=timeout, **options)
            )
        return self._portal.run(
            run(
                input,
                output_type=output_type,
                idle_timeout=idle_timeout,
                timeout=timeout,
                **options,
            )
        )

    def stream(
        self,
        input: Input,
        *,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Return a turn to iterate over; it starts with the first iteration."""
        turn = self._thread.stream(input, idle_timeout=idle_timeout, timeout=timeout, **options)
        return Turn(self._portal, turn)

    def start_turn(
        self,
        input: Input,
        *,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Start a turn and return it once the server has accepted it."""
        turn = self.stream(input, idle_timeout=idle_timeout, timeout=timeout, **options)
        turn.start()
        return turn

    def steer(self, input: Input, expected_turn_id: str) -> str:
        """Add input to a running turn; return the id of the turn that received it."""
        return self._portal.run(self._thread.steer(input, expected_turn_id))

    def interrupt(self, turn_id: str) -> None:
        """Interrupt a running turn."""
        self._portal.run(self._thread.interrupt(turn_id))

    def running(self) -> Turn | None:
        """Return the turn that was running at resume, with its events since then."""
        turn = self._thread.running()
        return None if turn is None else Turn(self._portal, turn)

    def run_review(
        self,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
    ) -> ReviewResult:
        """Review code, by default the uncommitted changes, and wait for the result."""
        review = self._thread.run_review
        return self._portal.run(
            review(target, delivery=delivery, idle_timeout=idle_timeout, timeout=timeout)
        )

    def review(
        self,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
        idle_timeout: IdleTimeout = CLIENT_DEFAULT,
        timeout: float | None = None,
    ) -> Turn:
        """Return a review to iterate over; it starts with the first iteration."""
        turn = self._thread.review(
            target, delivery=delivery, idle_timeout=idle_timeout, timeout=timeout
        )
        return Turn(self._portal, turn)

    def read(self, *, include_turns: bool = True) -> ThreadInfo:
        """Return the thread in its stored state."""
        return self._portal.run(self._thread.read(include_turns=include_turns))

    def fork(self, *, tools: Sequence[ToolLike] = (), **options: Unpack[ForkOptions]) -> Thread:
        """Start a new thread from this thread's history."""
        return Thread(self._portal, self._portal.run(self._thread.fork(tools=tools, **options)))

    def set_name(self, name: str) -> None:
        """Set the thread's name."""
        self._portal.run(self._thread.set_name(name))

    def archive(self) -> None:
        """Archive the thread."""
        self._portal.run(self._thread.archive())

    def compact(self) -> None:
        """Compact the history in a separate turn."""
        self._portal.run(self._thread.compact())

    def unsubscribe(self) -> None:
        """Stop receiving the thread's events."""
        self._portal.run(self._thread.unsubscribe())


class Command:
    """Blocking version of `AsyncCommand`."""

    def __init__(self, portal: Portal, command: AsyncCommand) -> None:
        self._portal = portal
        self._command = command

    @property
    def id(self) -> str:
        """The command's process id in the protocol."""
        return self._command.id

    def wait(self) -> CommandExecResponse:
        """Wait until the command ends; the response does not repeat streamed output."""
        return self._portal.run(self._command.wait())

    def write(self, data: bytes | str, *, close: bool = False) -> None:
        """Write to the command's standard input; `close` ends the input."""
        self._portal.run(self._command.write(data, close=close))

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the command's terminal."""
        self._portal.run(self._command.resize(rows, cols))

    def terminate(self) -> None:
        """Kill the command."""
        self._portal.run(self._command.terminate())

    def __iter__(self) -> Iterator[CommandOutput]:
        return self._portal.iterate(self._command)


class Login:
    """Blocking version of `AsyncLogin`."""

    def __init__(self, portal: Portal, login: AsyncLogin) -> None:
        self._portal = portal
        self._login = login

    @property
    def id(self) -> str:
        """The server's id of the sign-in."""
        return self._login.id

    @property
    def url(self) -> str:
        """The URL to open in a browser."""
        return self._login.url

    @property
    def code(self) -> str | None:
        """The code to enter on that page; `None` if no code is needed."""
        return self._login.code

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until the user has signed in; see `AsyncLogin.wait`."""
        self._portal.run(self._login.wait(timeout=timeout))

    def cancel(self) -> None:
        """Cancel the sign-in; `wait` raises `LoginFailed`."""
        self._portal.run(self._login.cancel())
