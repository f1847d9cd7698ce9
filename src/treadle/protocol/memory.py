"""The agent's memory across threads."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, UInt32, Value


class MemoryCitationEntry(Value, frozen=True):
    """Lines of a memory file that an answer used, and what for."""

    line_end: UInt32
    line_start: UInt32
    note: str
    path: str


class MemoryCitation(Value, frozen=True):
    """The memories that an agent's message used, and the threads they come from."""

    entries: list[MemoryCitationEntry]
    thread_ids: list[str]


class MemoryResetResponse(Value, frozen=True):
    """All memories were deleted."""


class MemoryStatusParams(Params, frozen=True):
    """Read whether memory has processed enough threads (default 20, maximum 4096)."""

    min_consolidated_threads: UInt32 | None = None


class MemoryStatusResponse(Value, frozen=True):
    """How many threads memory has processed, and whether that is enough."""

    v2_consolidated_threads: UInt32
    v2_ready: bool


class ThreadMemoryReadParams(Params, frozen=True):
    """Read the summary of memories that a loaded thread uses."""

    thread_id: str


class ThreadMemoryReadResponse(Value, frozen=True):
    """The summary; null if the thread uses no memory or there is none."""

    summary: str | None = None


ThreadMemoryMode = Literal["enabled", "disabled"]


class ThreadMemoryModeSetParams(Params, frozen=True):
    """Set whether a thread takes part in memory."""

    mode: ThreadMemoryMode
    thread_id: str


class ThreadMemoryModeSetResponse(Value, frozen=True):
    """The thread's memory mode was stored."""
