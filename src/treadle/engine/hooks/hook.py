"""Configured hooks: what runs at which event, and whether it may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.engine.hooks.events import BY_NAME, HookEvent
from treadle.engine.settings import RunSettings
from treadle.protocol.hook import (
    CommandConfiguredHookHandler,
    HookErrorInfo,
    HookEventName,
    HookSource,
    HookTrustStatus,
    McpToolConfiguredHookHandler,
)

MAX_MATCHER: Final = 1000
"""The longest matcher, in characters."""

# Names and alternatives of names, as opposed to a regular expression.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_|]+")

HookHandler: TypeAlias = CommandConfiguredHookHandler | McpToolConfiguredHookHandler


class BadMatcher(ValueError):
    """The matcher is not a regular expression."""


class Hook(Struct, frozen=True, kw_only=True):
    """One configured hook; the fault of one that cannot run says why."""

    key: str
    event_name: HookEventName
    handler: HookHandler
    source: HookSource
    source_path: str
    display_order: int
    timeout_s: int
    current_hash: str
    trust: HookTrustStatus
    matcher: str | None = None
    is_enabled: bool = True
    is_managed: bool = False
    fault: str | None = None
    # Whether it runs in the background, where it cannot prevent anything.
    is_async: bool = False
    # The plugin that provides it, and variables for its command.
    plugin_id: str | None = None
    variables: Mapping[str, str] = {}

    @property
    def event(self) -> HookEvent:
        """What sets its event apart."""
        return BY_NAME[self.event_name]

    @property
    def decides(self) -> bool:
        """Whether its event does not go on unless this hook allows it."""
        return self.event.decides and not self.is_async

    @property
    def run_id(self) -> str:
        """The id of its runs, which the id of a tool call makes unique within a turn."""
        return f"{self.event.label}:{self.display_order}:{self.source_path}"

    def matches(self, names: Sequence[str]) -> bool:
        """Whether its matcher accepts one of the names; a broken hook accepts all."""
        if self.matcher is None or not self.event.uses_matcher:
            return True
        accepts = matching(self.matcher)
        return any(map(accepts, names))


@lru_cache(maxsize=256)
def matching(matcher: str) -> Callable[[str], bool]:
    """Return the check of a matcher: all names, some names, or a regular expression.

    Raises:
        BadMatcher: it is not a regular expression.
    """
    if matcher in ("", "*"):
        return lambda _name: True
    if _PLAIN.fullmatch(matcher):
        return frozenset(matcher.split("|")).__contains__
    if len(matcher) > MAX_MATCHER:
        raise BadMatcher(f"{len(matcher)} characters, expected at most {MAX_MATCHER}")
    try:
        # The user wrote and trusted it; the names are short.
        expression = re.compile(matcher)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadMatcher(str(error)) from error
    return lambda name: expression.search(name) is not None


class HookSet:
    """The hooks that are in force for a folder: those that run, and deciding ones that cannot."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._by_event: dict[HookEventName, list[Hook]] = {}
        for hook in hooks:
            self._by_event.setdefault(hook.event_name, []).append(hook)

    def of(self, event: HookEventName, names: Sequence[str]) -> list[Hook]:
        """Return the hooks of an event whose matcher accepts one of the names."""
        return [hook for hook in self._by_event.get(event, ()) if hook.matches(names)]

    def has(self, *events: HookEventName) -> bool:
        """Whether there is a hook for one of the events."""
        return any(event in self._by_event for event in events)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._by_event


class FoundHooks(Struct, frozen=True):
    """All hooks that the configuration names for a folder, and what is wrong with others."""

    hooks: Sequence[Hook] = ()
    # Deciding hooks that were trusted and cannot be read any more.
    lost: Sequence[Hook] = ()
    errors: Sequence[HookErrorInfo] = ()
    warnings: Sequence[str] = ()
    bypasses_trust: bool = False
    # Why the configuration cannot be read at all.
    failure: str | None = None

    def in_force(self) -> HookSet:
        """Return the hooks that run, and the deciding ones that must run and cannot."""
        return HookSet([*filter(None, map(self._in_force, self.hooks)), *self.lost])

    def _in_force(self, hook: Hook) -> Hook | None:
        if not hook.is_enabled:
            return None
        if hook.fault is not None or hook.trust in ("managed", "trusted") or self.bypasses_trust:
            return hook
        if hook.trust == "modified" and hook.decides:
            reason = (
                f"the hook {hook.key} changed after it was trusted: "
                "review it (hooks/list) and trust it again, or disable it"
            )
            return _with_fault(hook, reason)
        return None

    def waiting(self) -> list[Hook]:
        """Return the enabled hooks that do not run because the user has not trusted them."""
        if self.bypasses_trust:
            return []
        return [hook for hook in self.hooks if hook.is_enabled and hook.trust in _WAITING]


_WAITING: Final = ("untrusted", "modified")


def _with_fault(hook: Hook, reason: str) -> Hook:
    from msgspec.structs import replace

    return replace(hook, fault=reason)


FindHooks: TypeAlias = Callable[[RunSettings], FoundHooks]
"""Finds the hooks of a thread with these settings; blocks, and is called in a worker thread."""


def no_hooks(settings: RunSettings) -> FoundHooks:  # noqa: ARG001 - as a source has it
    """Find no hooks."""
    return NOTHING


NOTHING: Final = FoundHooks()
