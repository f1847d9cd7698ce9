"""Streamed pieces of items that are still in progress."""

from __future__ import annotations

from treadle.protocol.base import Int64, Value
from treadle.protocol.item import FileUpdateChange


class AgentMessageDeltaNotification(Value, frozen=True):
    """More text of a message that the agent is writing; append it."""

    delta: str
    item_id: str
    thread_id: str
    turn_id: str


class CommandExecutionOutputDeltaNotification(Value, frozen=True):
    """More output of a command that is running; append it."""

    delta: str
    item_id: str
    thread_id: str
    turn_id: str


class FileChangeOutputDeltaNotification(Value, frozen=True):
    """Output of the patch tool; only clients of older releases receive it."""

    delta: str
    item_id: str
    thread_id: str
    turn_id: str


class FileChangePatchUpdatedNotification(Value, frozen=True):
    """The edits of a file change that the model has written so far; replaces earlier ones."""

    changes: list[FileUpdateChange]
    item_id: str
    thread_id: str
    turn_id: str


class PlanDeltaNotification(Value, frozen=True):
    """More text of a proposed plan; the completed item is authoritative."""

    delta: str
    item_id: str
    thread_id: str
    turn_id: str


class ReasoningSummaryPartAddedNotification(Value, frozen=True):
    """A new section of the reasoning summary begins; its text follows."""

    item_id: str
    summary_index: Int64
    thread_id: str
    turn_id: str


class ReasoningSummaryTextDeltaNotification(Value, frozen=True):
    """More text of one section of the reasoning summary; append it."""

    delta: str
    item_id: str
    summary_index: Int64
    thread_id: str
    turn_id: str


class ReasoningTextDeltaNotification(Value, frozen=True):
    """More raw reasoning, from models that expose it; append it."""

    content_index: Int64
    delta: str
    item_id: str
    thread_id: str
    turn_id: str


class TerminalInteractionNotification(Value, frozen=True):
    """The agent typed into a command that is still running."""

    item_id: str
    process_id: str
    stdin: str
    thread_id: str
    turn_id: str
