"""What the agent remembers between threads."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, UInt32, Value


class MemoryCitationEntry(Value, frozen=True):
    """Lines of a memory file that an answer drew on, and what they were used for."""

    line_end: UInt32
    line_start: UInt32
    note: str
    path: str


class MemoryCitation(Value, frozen=True):
    """What an agent's message took from memory, and the threads it was learnt in."""

    entries: list[MemoryCitationEntry]
    thread_ids: list[str]


class MemoryResetResponse(Value, frozen=True):
    """Everything remembered was forgotten."""


class MemoryStatusParams(Params, frozen=True):
    """Ask whether memory has digested enough threads; 20 unless said, 4096 at most."""

    min_consolidated_threads: UInt32 | None = None


class MemoryStatusResponse(Value, frozen=True):
    """How many threads memory has digested, and whether that is enough."""

    v2_consolidated_threads: UInt32
    v2_ready: bool


ThreadMemoryMode = Literal["enabled", "disabled"]


class ThreadMemoryModeSetParams(Params, frozen=True):
    """Say whether a thread may take part in memory."""

    mode: ThreadMemoryMode
    thread_id: str


class ThreadMemoryModeSetResponse(Value, frozen=True):
    """The thread's memory mode was stored."""
