"""What every form of output of `treadle exec` has in common: which events count, and when."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from treadle.client.events import (
    Event,
    ItemCompleted,
    ItemStarted,
    TokenUsageUpdated,
    TurnCompleted,
    TurnDiffUpdated,
    TurnErrorReported,
    TurnPlanUpdated,
    TurnStarted,
    Warned,
)
from treadle.client.thread import ThreadSession
from treadle.protocol.error import (
    ConfigWarningNotification,
    DeprecationNoticeNotification,
    GuardianWarningNotification,
    TurnError,
)
from treadle.protocol.turn import Turn
from treadle.protocol.usage import TokenUsageBreakdown

_NOTHING: Final = TokenUsageBreakdown(
    cached_input_tokens=0,
    input_tokens=0,
    output_tokens=0,
    reasoning_output_tokens=0,
    total_tokens=0,
)


@dataclass(frozen=True)
class Opened:
    """A thread that is open, and what will be said in it."""

    session: ThreadSession
    prompt: str
    summary: str


class ExecOutput(ABC):
    """Hears everything in the order in which it happens, and shows what belongs to the thread."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        # Called if nobody reads what is written any more.
        self.on_deaf: Callable[[], object] = lambda: None
        self._thread_id: str | None = None
        self._early: list[Event] = []
        self._usage = _NOTHING

    # -- the work

    def begin(self, opened: Opened) -> None:
        """Show the thread, then what was heard before it was known."""
        self._thread_id = opened.session.thread.id
        self.opened(opened)
        early, self._early = self._early, []
        for event in early:
            self.hear(event)

    def hear(self, event: Event) -> None:
        """Take one notification of the server."""
        if self._thread_id is None:
            self._early.append(event)
        elif self.ended.is_set():
            pass  # a goal may begin another turn at once; what was asked for is one
        elif getattr(event, "thread_id", None) in (None, self._thread_id):
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.turn_started()
            case ItemStarted():
                self.item_started(event)
            case ItemCompleted():
                self.item_completed(event)
            case TurnPlanUpdated():
                self.plan_updated(event)
            case TurnDiffUpdated():
                self.diff_updated(event.diff)
            case TokenUsageUpdated():
                self._usage = event.token_usage.total
            case TurnErrorReported():
                self.error_reported(event.error)
            case TurnCompleted():
                self.turn_ended(event.turn, self._usage)
                self.ended.set()
            case _ if (words := _warning(event)) is not None:
                self.warned(words)
            case _:
                pass

    def write(self, data: bytes) -> None:
        """Write to stdout at once; when the reader has gone, the work is of no use to anybody."""
        if sys.stdout is not None and not _write(sys.stdout, data):
            self.on_deaf()

    # -- what it looks like

    @abstractmethod
    def opened(self, opened: Opened) -> None:
        """Show the thread."""

    @abstractmethod
    def turn_started(self) -> None:
        """Show that the turn runs."""

    @abstractmethod
    def item_started(self, event: ItemStarted) -> None:
        """Show what begins."""

    @abstractmethod
    def item_completed(self, event: ItemCompleted) -> None:
        """Show what is done."""

    @abstractmethod
    def plan_updated(self, event: TurnPlanUpdated) -> None:
        """Show the steps."""

    @abstractmethod
    def diff_updated(self, diff: str) -> None:
        """Show all edits of the turn so far."""

    @abstractmethod
    def warned(self, words: str) -> None:
        """Show a warning."""

    @abstractmethod
    def error_reported(self, error: TurnError) -> None:
        """Show an error of the turn, which may go on nevertheless."""

    @abstractmethod
    def turn_ended(self, turn: Turn, usage: TokenUsageBreakdown) -> None:
        """Show how the turn ended and what the thread has used."""

    @abstractmethod
    def final_message(self, text: str | None) -> None:
        """Show the agent's last word, if there was one."""


def show(*lines: str) -> None:
    """Print lines to stderr; the work goes on if nobody reads them."""
    if sys.stderr is not None:
        _write(sys.stderr, "".join(f"{line}\n" for line in lines).encode())


def _write(stream: TextIO, data: bytes) -> bool:
    """Write at once; `False` if the reader has left."""
    try:
        stream.buffer.write(data)
        stream.buffer.flush()
    except OSError:
        # What is left in the buffer would fail once more at the end of the process.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return False
    return True


def error_words(error: TurnError) -> str:
    """An error in one line."""
    details = error.additional_details
    return f"{error.message} ({details})" if details else error.message


def _warning(event: Event) -> str | None:
    match event:
        case Warned() | GuardianWarningNotification():
            return event.message
        case ConfigWarningNotification() | DeprecationNoticeNotification():
            return f"{event.summary}\n{event.details}" if event.details else event.summary
        case _:
            return None
