"""What a session costs: tokens counted once, from absolute totals, and the latest rate limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Final

from treadle.protocol.base import JsonValue


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens by kind; cached input is part of input, reasoning part of output."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def since(self, earlier: Usage) -> Usage:
        """What came on top of an earlier count; never less than nothing."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return Usage(*(max(0, a - b) for a, b in pairs))

    def highest(self, other: Usage) -> Usage:
        """The higher of both counts, kind by kind."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Usage(*(max(a, b) for a, b in pairs))

    def document(self) -> JsonValue:
        """The counts as the protocol spells them."""
        return dict(zip(_CAMEL, astuple(self), strict=True))


_SNAKE: Final = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)
_CAMEL: Final = (
    "inputTokens",
    "cachedInputTokens",
    "outputTokens",
    "reasoningOutputTokens",
    "totalTokens",
)


def read_usage(document: JsonValue) -> Usage | None:
    """Read counts in either spelling; `None` if these are none."""
    if not isinstance(document, Mapping):
        return None
    for names in (_CAMEL, _SNAKE):
        if names[0] in document or names[-1] in document:
            counts = [_count(document.get(name)) for name in names]
            counts[-1] = counts[-1] or counts[0] + counts[2]
            return Usage(*counts)
    return None


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@dataclass(slots=True)
class _Thread:
    """Where one thread's totals stood before the session, and where they stand."""

    before: Usage = field(default_factory=Usage)
    high: Usage = field(default_factory=Usage)


class UsageLedger:
    """Adds up threads by what they say of themselves in all, so that no report counts twice.

    A thread that was begun elsewhere stands at some total already; that is not ours to pay. Only
    reports of totals count: those of one request, or of nobody knows what, are passed over.
    """

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._resumed: set[str] = set()
        self._waiting: set[str] = set()

    def resume(self, thread_id: str, before: Usage | None = None) -> None:
        """A thread goes on that stood at this total, or at one that it has yet to tell."""
        if before is not None:
            self._threads[thread_id] = _Thread(before, before)
        else:
            self._resumed.add(thread_id)
            self._waiting.add(thread_id)

    def work(self, thread_id: str) -> None:
        """The model has done something in a thread: what is told from now on was spent by us.

        Until then some servers repeat where a resumed thread stood, even in a turn of ours.
        """
        self._waiting.discard(thread_id)

    def note(self, method: str, params: JsonValue) -> bool:
        """Take a report, if this is one; whether it was."""
        thread_id, total, last = _reported(method, params)
        if total is None:
            return False
        if thread_id in self._waiting:
            self._threads[thread_id] = _Thread(total, total)
            return True
        thread = self._threads.get(thread_id)
        if thread is None:
            thread = self._threads[thread_id] = _Thread()
            if thread_id in self._resumed:
                # The first word of a resumed thread: all but its last request came before.
                thread.before = total.since(last) if last is not None else total
        thread.high = thread.high.highest(total)
        return True

    def total(self, thread_id: str) -> Usage | None:
        """Where a thread stands in all, if it ever said so."""
        thread = self._threads.get(thread_id)
        return None if thread is None else thread.high

    @property
    def used(self) -> Usage:
        """What the session used so far, in all its threads."""
        spent = Usage()
        for thread in self._threads.values():
            spent += thread.high.since(thread.before)
        return spent


def _reported(method: str, params: JsonValue) -> tuple[str, Usage | None, Usage | None]:
    if not isinstance(params, Mapping):
        return "", None, None
    named = params.get("threadId") or params.get("conversationId")
    thread_id = named if isinstance(named, str) else ""
    if method == "thread/tokenUsage/updated":
        usage = params.get("tokenUsage")
        if isinstance(usage, Mapping):
            return thread_id, read_usage(usage.get("total")), read_usage(usage.get("last"))
    if "token_count" in method:
        # Older servers: an event of the core, wrapped in one or two envelopes.
        event = params.get("msg", params)
        info = event.get("info") if isinstance(event, Mapping) else None
        if isinstance(info, Mapping):
            total = read_usage(info.get("total_token_usage"))
            return thread_id, total, read_usage(info.get("last_token_usage"))
    return thread_id, None, None


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a limit is used, and when it begins anew (Unix seconds)."""

    used_percent: float | None = None
    window_minutes: int | None = None
    resets_at: int | None = None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """One limit of the account, as it was last told."""

    limit_id: str
    limit_name: str | None = None
    primary: Window | None = None
    secondary: Window | None = None
    credits: JsonValue = None

    @property
    def retry_at(self) -> int | None:
        """When there is room again, if there is none now and the server knows."""
        windows = [each for each in (self.primary, self.secondary) if each is not None]
        full = [each for each in windows if (each.used_percent or 0) >= 100]
        return max((each.resets_at for each in full if each.resets_at), default=None)


def tells_limits(method: str) -> bool:
    """Whether a message of this method may tell of rate limits."""
    return "rateLimits" in method or "token_count" in method


def rate_limits_in(params: JsonValue, *, is_limit: bool = False) -> Iterator[RateLimit]:
    """Every limit that a message tells of, wherever in it and however spelled."""
    if isinstance(params, list):
        for each in params:
            yield from rate_limits_in(each)
    if not isinstance(params, Mapping):
        return
    if (limit := _read_limit(params, is_limit=is_limit)) is not None:
        yield limit
        return
    for name, each in params.items():
        # The oldest servers give their only limit no name.
        yield from rate_limits_in(each, is_limit=name in ("rateLimits", "rate_limits"))


def _read_limit(document: Mapping[str, JsonValue], *, is_limit: bool) -> RateLimit | None:
    is_named = is_limit or any(name in document for name in _LIMIT_NAMES)
    if not is_named or not any(name in document for name in ("primary", "secondary", "credits")):
        return None
    id_ = document.get("limitId", document.get("limit_id"))
    name = document.get("limitName", document.get("limit_name"))
    return RateLimit(
        limit_id=str(id_ or name or "default"),
        limit_name=name if isinstance(name, str) else None,
        primary=_read_window(document.get("primary")),
        secondary=_read_window(document.get("secondary")),
        credits=document.get("credits"),
    )


_LIMIT_NAMES: Final = ("limitId", "limit_id", "limitName", "limit_name")


def _read_window(document: JsonValue) -> Window | None:
    if not isinstance(document, Mapping):
        return None
    minutes = document.get("windowDurationMins", document.get("window_minutes"))
    percent = document.get("usedPercent", document.get("used_percent"))
    resets = document.get("resetsAt", document.get("resets_at"))
    return Window(
        used_percent=float(percent) if isinstance(percent, int | float) else None,
        window_minutes=minutes if isinstance(minutes, int) else None,
        resets_at=int(resets) if isinstance(resets, int | float) else None,
    )
