"""The events at which hooks run, and what sets them apart."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.protocol.hook import HookEventName, HookScope

DEFAULT_SECONDS: Final = 600
LAST_DEFAULT_SECONDS: Final = 1
LAST_MAX_SECONDS: Final = 3
"""Hooks at the end of a session or an interrupted turn: the user waits for that end."""


class HookEvent(Struct, frozen=True):
    """One kind of event.

    `decides`: what the event is about does not happen unless its hooks can run and allow it.
    """

    name: HookEventName
    # As configuration files and programs spell it: `PreToolUse`.
    title: str
    uses_matcher: bool = False
    takes_context: bool = False
    decides: bool = False
    is_last: bool = False
    scope: HookScope = "turn"

    @property
    def key(self) -> str:
        """The name in the key of a hook: `pre_tool_use`."""
        return self._words("_")

    @property
    def label(self) -> str:
        """The name in the id of a run: `pre-tool-use`."""
        return self._words("-")

    def _words(self, separator: str) -> str:
        return "".join(f"{separator}{c.lower()}" if c.isupper() else c for c in self.name)

    def seconds(self, configured: int | None) -> int:
        """The timeout of a hook."""
        if self.is_last:
            seconds = LAST_DEFAULT_SECONDS if configured is None else configured
            return min(max(seconds, 1), LAST_MAX_SECONDS)
        return max(DEFAULT_SECONDS if configured is None else configured, 1)


EVENTS: Final = (
    HookEvent("preModelRequest", "PreModelRequest", decides=True),
    HookEvent("postModelRequest", "PostModelRequest"),
    HookEvent("preToolUse", "PreToolUse", uses_matcher=True, takes_context=True, decides=True),
    HookEvent("permissionRequest", "PermissionRequest", uses_matcher=True, decides=True),
    HookEvent("postToolUse", "PostToolUse", uses_matcher=True, takes_context=True),
    HookEvent("preCompact", "PreCompact", uses_matcher=True),
    HookEvent("postCompact", "PostCompact", uses_matcher=True),
    HookEvent(
        "sessionStart", "SessionStart", uses_matcher=True, takes_context=True, scope="thread"
    ),
    HookEvent("sessionEnd", "SessionEnd", uses_matcher=True, is_last=True, scope="thread"),
    HookEvent("userPromptSubmit", "UserPromptSubmit", takes_context=True, decides=True),
    HookEvent(
        "subagentStart", "SubagentStart", uses_matcher=True, takes_context=True, scope="thread"
    ),
    HookEvent("subagentStop", "SubagentStop", uses_matcher=True),
    HookEvent("stop", "Stop"),
    HookEvent("interrupt", "Interrupt", is_last=True),
)
"""In the order in which the hooks of one file are shown and run."""

BY_NAME: Final = {event.name: event for event in EVENTS}
BY_TITLE: Final = {event.title: event for event in EVENTS}
