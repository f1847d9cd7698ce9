"""The base class of the outputs of `treadle exec`: it selects and orders the events."""

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

_NO_USAGE: Final = TokenUsageBreakdown(
    cached_input_tokens=0,
    input_tokens=0,
    output_tokens=0,
    reasoning_output_tokens=0,
    total_tokens=0,
)


@dataclass(frozen=True)
class Opened:
    """An open thread and its prompt."""

    session: ThreadSession
    prompt: str
    summary: str


class ExecOutput(ABC):
    """Receives all notifications in order and shows those of the thread."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        # Called when the reader of stdout has gone.
        self.on_reader_gone: Callable[[], object] = lambda: None
        self._thread_id: str | None = None
        self._early: list[Event] = []
        self._usage = _NO_USAGE

    # -- events

    def begin(self, opened: Opened) -> None:
        """Show the thread, then the events that arrived before its id was known."""
        self._thread_id = opened.session.thread.id
        self.opened(opened)
        early, self._early = self._early, []
        for event in early:
            self.receive(event)

    def receive(self, event: Event) -> None:
        """Handle one notification of the server."""
        if self._thread_id is None:
            self._early.append(event)
        elif self.ended.is_set():
            pass  # a goal may start another turn at once; only the first one was requested
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
            case _ if (text := _warning(event)) is not None:
                self.warned(text)
            case _:
                pass

    def write(self, data: bytes) -> None:
        """Write to stdout without buffering; stop the work when the reader has gone."""
        if sys.stdout is not None and not _write(sys.stdout, data):
            self.on_reader_gone()

    # -- presentation

    @abstractmethod
    def opened(self, opened: Opened) -> None:
        """Show the thread."""

    @abstractmethod
    def turn_started(self) -> None:
        """Show that the turn has started."""

    @abstractmethod
    def item_started(self, event: ItemStarted) -> None:
        """Show a started item."""

    @abstractmethod
    def item_completed(self, event: ItemCompleted) -> None:
        """Show a completed item."""

    @abstractmethod
    def plan_updated(self, event: TurnPlanUpdated) -> None:
        """Show the plan."""

    @abstractmethod
    def diff_updated(self, diff: str) -> None:
        """Show all edits of the turn so far."""

    @abstractmethod
    def warned(self, text: str) -> None:
        """Show a warning."""

    @abstractmethod
    def error_reported(self, error: TurnError) -> None:
        """Show an error of the turn, which may still continue."""

    @abstractmethod
    def turn_ended(self, turn: Turn, usage: TokenUsageBreakdown) -> None:
        """Show the end of the turn and the thread's usage."""

    @abstractmethod
    def final_message(self, text: str | None) -> None:
        """Show the agent's last message, if there is one."""


def show(*lines: str) -> None:
    """Print lines to stderr; the work continues if the reader has gone."""
    if sys.stderr is not None:
        _write(sys.stderr, "".join(f"{line}\n" for line in lines).encode())


def _write(stream: TextIO, data: bytes) -> bool:
    """Write without buffering; return `False` if the reader has gone."""
    try:
        stream.buffer.write(data)
        stream.buffer.flush()
    except OSError:
        # The rest of the buffer would fail again at the end of the process.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return False
    return True


def error_text(error: TurnError) -> str:
    """Return an error as one line."""
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
