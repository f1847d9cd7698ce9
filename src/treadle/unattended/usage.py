"""Usage of a session: tokens counted once, from absolute totals, and the latest rate limits."""

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
        """Return the increase over an earlier count, at least zero in each kind."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return Usage(*(max(0, a - b) for a, b in pairs))

    def highest(self, other: Usage) -> Usage:
        """Return the higher of both counts, kind by kind."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Usage(*(max(a, b) for a, b in pairs))

    def document(self) -> JsonValue:
        """Return the counts in the protocol's spelling."""
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
    """Read counts in either spelling; return `None` if the document has none."""
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
    """The totals of one thread: before the session, and the highest reported since."""

    before: Usage = field(default_factory=Usage)
    high: Usage = field(default_factory=Usage)


class UsageLedger:
    """The sum of the threads' reported totals, so that no report counts twice.

    A resumed thread starts with a total that the session did not use; it is subtracted. Only
    reports of totals count: usage of one request, or of an unknown scope, is ignored.
    """

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._resumed: set[str] = set()
        self._waiting: set[str] = set()

    def resume(self, thread_id: str, before: Usage | None = None) -> None:
        """Register a resumed thread with its earlier total, or wait for its first report."""
        if before is not None:
            self._threads[thread_id] = _Thread(before, before)
        else:
            self._resumed.add(thread_id)
            self._waiting.add(thread_id)

    def work(self, thread_id: str) -> None:
        """Count what a resumed thread reports from now on: its model has produced an item.

        Until then some servers repeat the thread's earlier total, even during a new turn.
        """
        self._waiting.discard(thread_id)

    def note(self, method: str, params: JsonValue) -> bool:
        """Record a usage report; return whether the message was one."""
        thread_id, total, last = _read_report(method, params)
        if total is None:
            return False
        if thread_id in self._waiting:
            self._threads[thread_id] = _Thread(total, total)
            return True
        thread = self._threads.get(thread_id)
        if thread is None:
            thread = self._threads[thread_id] = _Thread()
            if thread_id in self._resumed:
                # The first report of a resumed thread: all but its last request came before.
                thread.before = total.since(last) if last is not None else total
        thread.high = thread.high.highest(total)
        return True

    def total(self, thread_id: str) -> Usage | None:
        """Return the latest total of a thread, if it has reported one."""
        thread = self._threads.get(thread_id)
        return None if thread is None else thread.high

    @property
    def used(self) -> Usage:
        """The tokens that the session has used so far, in all its threads."""
        spent = Usage()
        for thread in self._threads.values():
            spent += thread.high.since(thread.before)
        return spent


def _read_report(method: str, params: JsonValue) -> tuple[str, Usage | None, Usage | None]:
    if not isinstance(params, Mapping):
        return "", None, None
    owner = params.get("threadId") or params.get("conversationId")
    thread_id = owner if isinstance(owner, str) else ""
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
    """How much of a limit is used, and when it resets (Unix seconds)."""

    used_percent: float | None = None
    window_minutes: int | None = None
    resets_at: int | None = None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """One limit of the account, as last reported."""

    limit_id: str
    limit_name: str | None = None
    primary: Window | None = None
    secondary: Window | None = None
    credits: JsonValue = None

    @property
    def retry_at(self) -> int | None:
        """When an exhausted limit resets, if the server reported it."""
        windows = [each for each in (self.primary, self.secondary) if each is not None]
        full = [each for each in windows if (each.used_percent or 0) >= 100]
        return max((each.resets_at for each in full if each.resets_at), default=None)


def reports_limits(method: str) -> bool:
    """Return whether a message of this method may report rate limits."""
    return "rateLimits" in method or "token_count" in method


def rate_limits_in(params: JsonValue, *, is_limit: bool = False) -> Iterator[RateLimit]:
    """Yield every limit in a message, at any depth and in either spelling."""
    if isinstance(params, list):
        for each in params:
            yield from rate_limits_in(each)
    if not isinstance(params, Mapping):
        return
    if (limit := _read_limit(params, is_limit=is_limit)) is not None:
        yield limit
        return
    for name, each in params.items():
        # The oldest servers do not name their only limit.
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
