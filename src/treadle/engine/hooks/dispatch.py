"""Runs the hooks of one event of a thread, with what every event has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treadle.engine.hooks.hook import Hook
from treadle.engine.hooks.running import HookResult
from treadle.engine.hooks.spill import for_model
from treadle.engine.hooks.thread_hooks import ThreadHooks
from treadle.protocol.base import JsonValue
from treadle.protocol.hook import HookEventName

if TYPE_CHECKING:
    from treadle.engine.turn import ActiveTurn

MAX_LATE: Final = 8
"""How many hooks of a thread run in the background at the same time."""

LATE_TOKENS: Final = 500
"""The most tokens of what such a hook has to say."""


async def dispatch(
    hooks: ThreadHooks,
    event: HookEventName,
    turn: ActiveTurn | None,
    fields: dict[str, JsonValue],
    *,
    names: Sequence[str] = (),
    suffix: str | None = None,
) -> list[HookResult]:
    """Run the hooks of an event, those in the background too; return the others' results."""
    found = hooks.select(event, names)
    if not found:
        return []
    payload = {**_described(hooks, turn, found[0].event.title), **fields}
    for hook in [hook for hook in found if hook.is_async]:
        if len(hooks.background) >= MAX_LATE:
            hooks.warn(f"too many hooks run in the background: {hook.key} was skipped")
            continue
        late = _run_late(hooks, hook, payload, turn, suffix)
        hooks.in_background(late, f"hook {hook.key}")
    now = [hook for hook in found if not hook.is_async]
    return await hooks.runner.run_all(now, payload, turn, suffix)


async def _run_late(
    hooks: ThreadHooks,
    hook: Hook,
    payload: dict[str, JsonValue],
    turn: ActiveTurn | None,
    suffix: str | None,
) -> None:
    """Run a hook in the background; the model reads its context with the user's next input."""
    run_id = hook.run_id if suffix is None else f"{hook.run_id}:{suffix}"
    verdict = await hooks.runner.run(hook, payload, turn, run_id)
    if verdict.context is not None:
        shown = await for_model(hooks.thread, verdict.context, limit=LATE_TOKENS)
        hooks.late_texts.append((hook.event.title, shown))


def _described(hooks: ThreadHooks, turn: ActiveTurn | None, title: str) -> dict[str, JsonValue]:
    """Return what the hooks of all events are given, in the order of the reference."""
    thread = hooks.thread
    meta, settings = thread.meta, thread.settings
    if turn is not None:
        settings = thread.settings_of(turn)
    is_agent = meta.parent_thread_id is not None
    payload: dict[str, JsonValue] = {"session_id": hooks.session_id()}
    if turn is not None and title != "SessionStart":
        payload["turn_id"] = turn.id
    if is_agent:
        payload |= {"agent_id": meta.id, "agent_type": meta.agent_role or "default"}
    payload |= {
        "transcript_path": meta.path,
        "cwd": settings.cwd,
        "hook_event_name": title,
        "model": settings.model,
    }
    if title not in _WITHOUT_MODE:
        is_free = settings.approval_policy == "never"
        payload["permission_mode"] = "bypassPermissions" if is_free else "default"
    if title == "SessionEnd":
        del payload["model"]
    return payload


_WITHOUT_MODE: Final = frozenset(
    {"PreModelRequest", "PostModelRequest", "PreCompact", "PostCompact", "SessionEnd"}
)
