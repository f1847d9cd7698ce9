"""Threads, turns and commands for programs without asyncio: the same names, and they wait."""

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
from treadle.client.options import ForkOptions, Input, TurnOptions
from treadle.client.result import ReviewResult, TurnResult
from treadle.client.thread import DEFAULT, AsyncThread, ThreadSession
from treadle.client.tools import ToolLike
from treadle.client.turn import AsyncTurn
from treadle.protocol.command import CommandExecResponse
from treadle.protocol.review import ReviewDelivery, ReviewTarget
from treadle.protocol.thread import Thread as ThreadInfo
from treadle.protocol.turn import Turn as TurnInfo

T = TypeVar("T")


class Turn:
    """`AsyncTurn`, waiting."""

    def __init__(self, portal: Portal, turn: AsyncTurn) -> None:
        self._portal = portal
        self._turn = turn
        self._events: SimpleQueue[Event | None] | None = None
        self._lost = 0

    def start(self) -> TurnInfo:
        """Start the turn, if it was not yet; gives it as the server announced it."""
        return self._portal.run(self._turn.start())

    @property
    def id(self) -> str:
        """The turn's id; known once it has started."""
        return self._turn.id

    @property
    def thread_id(self) -> str:
        """The thread it runs in; a review may run in one of its own."""
        return self._turn.thread_id

    @property
    def partial(self) -> TurnResult[None]:
        """What is known of the turn by now."""
        return self._turn.partial

    def result(self) -> TurnResult[None]:
        """Wait for the end of the turn; see `AsyncTurn.result`."""
        return self._portal.run(self._turn.result())

    def steer(self, given: Input) -> str:
        """Give the running turn more input; gives the id of the turn that took it."""
        return self._portal.run(self._turn.steer(given))

    def interrupt(self) -> None:
        """Stop the turn; its end is told as any other."""
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
        self._events.put(None)  # for whoever asks once more
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
        """The agent's words as they come, and nothing else."""
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
    """`AsyncThread`, waiting."""

    def __init__(self, portal: Portal, thread: AsyncThread) -> None:
        self._portal = portal
        self._thread = thread

    @property
    def id(self) -> str:
        """The thread's id."""
        return self._thread.id

    @property
    def session(self) -> ThreadSession | None:
        """What the server said when the thread was started, resumed or forked."""
        return self._thread.session

    @property
    def info(self) -> ThreadInfo:
        """The thread as it was when it was started, resumed or forked."""
        return self._thread.info

    @overload
    def run(
        self,
        given: Input,
        *,
        output_type: None = None,
        silence: float | None = DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    def run(
        self,
        given: Input,
        *,
        output_type: type[T],
        silence: float | None = DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T]: ...
    def run(
        self,
        given: Input,
        *,
        output_type: type[T] | None = None,
        silence: float | None = DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T] | TurnResult[None]:
        """Run a turn to its end; see `AsyncThread.run`."""
        run = self._thread.run
        if output_type is None:
            return self._portal.run(run(given, silence=silence, timeout=timeout, **options))
        return self._portal.run(
            run(given, output_type=output_type, silence=silence, timeout=timeout, **options)
        )

    def stream(
        self,
        given: Input,
        *,
        silence: float | None = DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """A turn to iterate over: it starts with the first step."""
        turn = self._thread.stream(given, silence=silence, timeout=timeout, **options)
        return Turn(self._portal, turn)

    def start_turn(
        self,
        given: Input,
        *,
        silence: float | None = DEFAULT,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Start a turn, and give it as soon as the server has announced it."""
        turn = self.stream(given, silence=silence, timeout=timeout, **options)
        turn.start()
        return turn

    def steer(self, given: Input, expected_turn_id: str) -> str:
        """Give a running turn more input; gives the id of the turn that took it."""
        return self._portal.run(self._thread.steer(given, expected_turn_id))

    def interrupt(self, turn_id: str) -> None:
        """Stop a running turn."""
        self._portal.run(self._thread.interrupt(turn_id))

    def running(self) -> Turn | None:
        """The turn that ran when the thread was resumed; its events are kept since then."""
        turn = self._thread.running()
        return None if turn is None else Turn(self._portal, turn)

    def run_review(
        self,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
        silence: float | None = DEFAULT,
        timeout: float | None = None,
    ) -> ReviewResult:
        """Have code reviewed, the uncommitted changes by default, and wait for the verdict."""
        review = self._thread.run_review
        return self._portal.run(review(target, delivery=delivery, silence=silence, timeout=timeout))

    def review(
        self,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
        silence: float | None = DEFAULT,
        timeout: float | None = None,
    ) -> Turn:
        """A review to iterate over: it starts with the first step."""
        turn = self._thread.review(target, delivery=delivery, silence=silence, timeout=timeout)
        return Turn(self._portal, turn)

    def read(self, *, include_turns: bool = True) -> ThreadInfo:
        """The thread as it is stored now."""
        return self._portal.run(self._thread.read(include_turns=include_turns))

    def fork(self, *, tools: Sequence[ToolLike] = (), **options: Unpack[ForkOptions]) -> Thread:
        """A new thread with the same history."""
        return Thread(self._portal, self._portal.run(self._thread.fork(tools=tools, **options)))

    def set_name(self, name: str) -> None:
        """Give the thread a title."""
        self._portal.run(self._thread.set_name(name))

    def archive(self) -> None:
        """Put the thread away."""
        self._portal.run(self._thread.archive())

    def compact(self) -> None:
        """Have the history shortened, in a turn of its own."""
        self._portal.run(self._thread.compact())

    def unsubscribe(self) -> None:
        """Hear no more of the thread."""
        self._portal.run(self._thread.unsubscribe())


class Command:
    """`AsyncCommand`, waiting."""

    def __init__(self, portal: Portal, command: AsyncCommand) -> None:
        self._portal = portal
        self._command = command

    @property
    def id(self) -> str:
        """The id that the server knows the command by."""
        return self._command.id

    def wait(self) -> CommandExecResponse:
        """Wait for the end; what was streamed is not repeated in the answer."""
        return self._portal.run(self._command.wait())

    def write(self, data: bytes | str, *, close: bool = False) -> None:
        """Write to the command's input, and end it if asked."""
        self._portal.run(self._command.write(data, close=close))

    def resize(self, rows: int, cols: int) -> None:
        """Tell the command that its terminal changed size."""
        self._portal.run(self._command.resize(rows, cols))

    def terminate(self) -> None:
        """Kill the command."""
        self._portal.run(self._command.terminate())

    def __iter__(self) -> Iterator[CommandOutput]:
        return self._portal.iterate(self._command)


class Login:
    """`AsyncLogin`, waiting."""

    def __init__(self, portal: Portal, login: AsyncLogin) -> None:
        self._portal = portal
        self._login = login

    @property
    def id(self) -> str:
        """What the server calls the sign-in."""
        return self._login.id

    @property
    def url(self) -> str:
        """The page to open."""
        return self._login.url

    @property
    def code(self) -> str | None:
        """What to type there."""
        return self._login.code

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until somebody has signed in; see `AsyncLogin.wait`."""
        self._portal.run(self._login.wait(timeout=timeout))

    def cancel(self) -> None:
        """Give the sign-in up; whoever waits for it is told."""
        self._portal.run(self._login.cancel())
