"""Lets hooks decide about actions that need approval, before the reviewer or the user does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.engine.approvals.permission import Denied
from treadle.engine.hooks.dispatch import dispatch
from treadle.engine.hooks.points import MAX_REASON
from treadle.engine.hooks.tool_calls import EDITS, PATCH, SHELL, HookedCall
from treadle.engine.hooks.uses import CommandUse, EditUse, RequestedUse
from treadle.protocol.base import JsonValue
from treadle.shell.scripts import display, script_of
from treadle.store.records import Decided

if TYPE_CHECKING:
    from treadle.engine.hooks.thread_hooks import ThreadHooks
    from treadle.engine.turn import ActiveTurn


async def hooks_allow(
    hooks: ThreadHooks, turn: ActiveTurn, call_id: str, use: RequestedUse, key: str
) -> bool:
    """Return whether hooks allow an action; false if they leave it to the user.

    Raises:
        Denied: one of them denies it, or failed.
    """
    seen = _seen(call_id, use)
    fields: dict[str, JsonValue] = {"tool_name": seen.name, "tool_input": seen.input}
    results = await dispatch(hooks, "permissionRequest", turn, fields, names=seen.names, suffix=key)
    denied = next((result for result in results if result.verdict.denial is not None), None)
    allowed = next((result for result in results if result.verdict.decision == "allow"), None)
    decisive = denied or allowed
    if decisive is None:
        return False
    decision = "allowed" if denied is None else "forbidden"
    by, action = f"hook {decisive.hook.key}", _action(seen)
    hooks.thread.log.record(Decided(call_id, turn.id, action, decision, by, turn.clock()))
    if denied is not None:
        raise Denied(str(denied.verdict.denial)[:MAX_REASON])
    return True


def _seen(call_id: str, use: RequestedUse) -> HookedCall:
    match use:
        case CommandUse(argv=argv, reason=reason):
            command = script_of(argv) or display(argv)
            about = {} if reason is None else {"description": reason}
            aliases = (PATCH, *EDITS) if PATCH in command else ()
            return HookedCall(call_id, SHELL, {"command": command, **about}, aliases)
        case EditUse(patch=patch):
            return HookedCall(call_id, PATCH, {"command": patch}, EDITS)
        case _:
            return HookedCall(call_id, use.name, use.input, use.aliases)


def _action(seen: HookedCall) -> str:
    command = seen.input.get("command") if isinstance(seen.input, dict) else None
    return f"{seen.name} {command}"[:1000] if isinstance(command, str) else seen.name
