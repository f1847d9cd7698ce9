"""The points of a turn at which hooks run, and what their verdicts change there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias
from xml.sax.saxutils import escape, quoteattr

import msgspec

from treadle.engine.conversation.input import message
from treadle.engine.conversation.sources import written_by
from treadle.engine.hooks.dispatch import dispatch
from treadle.engine.hooks.outputs import HookVerdict
from treadle.engine.hooks.running import HookResult
from treadle.engine.hooks.spill import for_model
from treadle.engine.hooks.thread_hooks import ThreadHooks
from treadle.engine.hooks.tool_calls import (
    CannotRead,
    CannotRewrite,
    HookedCall,
    hooked,
    response_of,
    rewrite_call,
)
from treadle.engine.tools.registry import Output, ToolCall, ToolRefused
from treadle.model.base import Completed, ModelError, ModelEvent, ModelItem, ResponseUsage
from treadle.protocol.base import JsonValue
from treadle.protocol.hook import CommandConfiguredHookHandler, HookPromptFragment
from treadle.protocol.input import TextUserInput
from treadle.protocol.item import HookPromptThreadItem
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.conversation.model_context import ModelContext
    from treadle.engine.turn import ActiveTurn, PendingInput


class Conversation(Protocol):
    """A conversation to which hooks add text."""

    def remember(self, turn: ActiveTurn, *items: ModelItem) -> None:
        """Add items."""
        ...


MAX_CONTINUATIONS: Final = 50
"""How often hooks may prevent the end of one turn."""

MAX_REASON: Final = 2000
"""The longest reason in an error or a warning, in characters."""

_ASKABLE: Final = ("exec_command", "shell", "shell_command", "apply_patch")

CompactionEvent: TypeAlias = Literal["preCompact", "postCompact"]


async def _add_context(
    hooks: ThreadHooks, context: Conversation, turn: ActiveTurn, results: Sequence[HookResult]
) -> None:
    """Add the text of hooks to the conversation, as the developer's."""
    for result in results:
        if result.verdict.context is None:
            continue
        handler = result.hook.handler
        limit = None
        if isinstance(handler, CommandConfiguredHookHandler):
            limit = handler.additional_context_limit
        text = await for_model(hooks.thread, result.verdict.context, limit=limit)
        context.remember(turn, message("developer", text))


def _denial(results: Sequence[HookResult]) -> str | None:
    return next((r.verdict.denial for r in results if r.verdict.denial is not None), None)


def _stop(results: Sequence[HookResult]) -> str | None:
    return next((r.verdict.stop for r in results if r.verdict.stop is not None), None)


# -- sessions and input


async def start_session(hooks: ThreadHooks, context: ModelContext, turn: ActiveTurn) -> str | None:
    """Run the hooks of the start of a session, or of a sub-agent; return why the turn stops."""
    source, hooks.pending_start = hooks.pending_start, None
    if source is None:
        return None
    if hooks.thread.meta.parent_thread_id is None:
        fields: dict[str, JsonValue] = {"source": source}
        results = await dispatch(hooks, "sessionStart", turn, fields, names=[source])
    elif source in ("startup", "fork"):
        role = hooks.thread.meta.agent_role or "default"
        results = await dispatch(hooks, "subagentStart", turn, {}, names=[role])
    else:
        return None
    await _add_context(hooks, context, turn, results)
    return _stop(results)


async def check_input(hooks: ThreadHooks, context: ModelContext, turn: ActiveTurn) -> bool:
    """Add pending input that the hooks allow to the history; false if there was none of it left.

    Input that was not checked stays pending, so that an interrupt does not lose it here.
    """
    context.flush_notes()
    was_blocked = is_accepted = False
    while turn.pending_input:
        pending = turn.pending_input[0]
        reason = None
        results: list[HookResult] = []
        if pending.content:
            fields: dict[str, JsonValue] = {"prompt": prompt_of(pending)}
            results = await dispatch(hooks, "userPromptSubmit", turn, fields)
            reason = _denial(results)
        # Hooks take time, in which a client can withdraw it.
        if not any(each is pending for each in turn.pending_input):
            continue
        turn.pending_input.remove(pending)
        if reason is None:
            is_accepted = True
            context.add_input(turn, pending)
            _add_late_texts(hooks, context, turn)
        else:
            was_blocked = True
            context.discard(pending)
            text = f"the input was blocked by a UserPromptSubmit hook: {reason}"
            hooks.warn(text[:MAX_REASON])
        await _add_context(hooks, context, turn, results)
    return is_accepted or not was_blocked


def _add_late_texts(hooks: ThreadHooks, context: ModelContext, turn: ActiveTurn) -> None:
    if not hooks.late_texts:
        return
    parts = [
        f"<async_hook_output event={quoteattr(title)}>\n{text}\n</async_hook_output>"
        for title, text in hooks.late_texts
    ]
    hooks.late_texts.clear()
    text = "\n".join(["<async_hook_outputs>", *parts, "</async_hook_outputs>"])
    context.remember(turn, message("developer", text))


def prompt_of(pending: PendingInput) -> str:
    """Return the text of the user's input."""
    return "\n".join(part.text for part in pending.content if isinstance(part, TextUserInput))


# -- tools


async def run_tool(
    hooks: ThreadHooks,
    context: Conversation,
    turn: ActiveTurn,
    call: ToolCall,
    run: Callable[[ToolCall], Awaitable[Output]],
    *,
    names: Sequence[str] = (),
) -> Output:
    """Run a call between its hooks, which can prevent it, change its input or hide its output.

    `names` are other names of the tool, by which a matcher may name it too.
    """
    try:
        seen = hooked(call, names)
    except CannotRead as error:
        return str(error)
    try:
        call, seen = await _before(hooks, context, turn, call, seen)
        output = await run(call)
    except _Refused as refusal:
        return await for_model(hooks.thread, seen.refusal(str(refusal)))
    except ToolRefused as refusal:
        return str(refusal)  # nothing ran that hooks could look at
    finally:
        hooks.asked.pop(call.id, None)
    return await _after(hooks, context, turn, seen, output)


class _Refused(Exception):
    """A hook prevents the call."""


async def _before(
    hooks: ThreadHooks, context: Conversation, turn: ActiveTurn, call: ToolCall, seen: HookedCall
) -> tuple[ToolCall, HookedCall]:
    fields: dict[str, JsonValue] = {
        "tool_name": seen.name,
        "tool_input": seen.input,
        "tool_use_id": call.id,
    }
    results = await dispatch(hooks, "preToolUse", turn, fields, names=seen.names, suffix=call.id)
    await _add_context(hooks, context, turn, results)
    reason = _denial(results)
    if reason is not None:
        raise _Refused(reason)
    asking = next((r.verdict for r in results if r.verdict.decision == "ask"), None)
    if asking is not None:
        _ask(hooks, call, asking)
    updates = [r for r in results if r.verdict.updated_input is not None]
    if not updates:
        return call, seen
    last = max(updates, key=lambda result: result.order)
    try:
        changed = rewrite_call(call, last.verdict.updated_input)
    except CannotRewrite as error:
        raise _Refused(f"the hook failed: {error}") from error
    return changed, hooked(changed, seen.aliases)


def _ask(hooks: ThreadHooks, call: ToolCall, verdict: HookVerdict) -> None:
    """Request the user's approval of the call when it is about to run."""
    if hooks.thread.settings.approval_policy == "never":
        raise _Refused("the hook asks for approval, but the approval policy is never")
    if call.name not in _ASKABLE and not call.flat_name.startswith("mcp__"):
        raise _Refused("the hook asks for approval, which this tool cannot request")
    hooks.asked[call.id] = verdict.reason or "a PreToolUse hook asks for approval"


async def _after(
    hooks: ThreadHooks, context: Conversation, turn: ActiveTurn, seen: HookedCall, output: Output
) -> Output:
    fields: dict[str, JsonValue] = {
        "tool_name": seen.name,
        "tool_input": seen.input,
        "tool_response": response_of(seen, output),
        "tool_use_id": seen.call_id,
    }
    results = await dispatch(
        hooks, "postToolUse", turn, fields, names=seen.names, suffix=seen.call_id
    )
    await _add_context(hooks, context, turn, results)
    denials = [r.verdict.denial for r in results if r.verdict.denial is not None]
    if denials:
        return await for_model(hooks.thread, "\n\n".join(denials))
    updates = [r for r in results if r.verdict.updated_output is not None]
    if updates and seen.name.startswith("mcp__"):
        value = max(updates, key=lambda result: result.order).verdict.updated_output
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return await for_model(hooks.thread, text)
    return output


async def see_search(
    hooks: ThreadHooks, context: ModelContext, turn: ActiveTurn, item: dict[str, JsonValue]
) -> str | None:
    """Show hooks a web search, which the provider has run; return why the turn must not go on."""
    call_id = str(item.get("id"))
    seen = HookedCall(call_id, "web_search", {"action": item.get("action")}, ("WebSearch",))
    fields: dict[str, JsonValue] = {
        "tool_name": seen.name,
        "tool_input": seen.input,
        "tool_use_id": call_id,
    }
    results = await dispatch(hooks, "preToolUse", turn, fields, names=seen.names, suffix=call_id)
    reason = _denial(results)
    if reason is None and any(r.verdict.decision == "ask" for r in results):
        reason = "the hook asks for approval of a search that the provider has already run"
    if reason is None:
        await _after(hooks, context, turn, seen, "")
    return None if reason is None else seen.refusal(reason)[:MAX_REASON]


# -- requests to the model


async def before_model(hooks: ThreadHooks, turn: ActiveTurn) -> None:
    """Run the hooks before a request to the model.

    Raises:
        ModelError: one of them denies it, or fails.
    """
    reason = _denial(await dispatch(hooks, "preModelRequest", turn, {}))
    if reason is not None:
        text = f"the request to the model was denied by a PreModelRequest hook: {reason}"
        raise ModelError(text[:MAX_REASON], info="inferenceHookDenied")


async def observed(
    hooks: ThreadHooks, turn: ActiveTurn, stream: AsyncGenerator[ModelEvent]
) -> AsyncGenerator[ModelEvent]:
    """Pass on the response of a model, and run the hooks after it."""
    usage: ResponseUsage | None = None
    try:
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Completed):
                    usage = event.usage
                yield event
    except ModelError as error:
        await _after_model(hooks, turn, "failed", error.message, None)
        raise
    await _after_model(hooks, turn, "completed", None, usage)


async def _after_model(
    hooks: ThreadHooks,
    turn: ActiveTurn,
    status: str,
    error: str | None,
    usage: ResponseUsage | None,
) -> None:
    counted = None if usage is None else msgspec.to_builtins(usage)
    fields: dict[str, JsonValue] = {"status": status, "error": error, "token_usage": counted}
    await dispatch(hooks, "postModelRequest", turn, fields)


# -- compaction and ends


async def compaction(hooks: ThreadHooks, turn: ActiveTurn, event: CompactionEvent) -> str | None:
    """Run the hooks before or after a compaction; return why the turn stops."""
    trigger = "manual" if turn.kind == "compact" else "auto"
    fields: dict[str, JsonValue] = {"trigger": trigger}
    if event == "postCompact":
        hooks.pending_start = "compact"
    return _stop(await dispatch(hooks, event, turn, fields, names=[trigger]))


async def goes_on(
    hooks: ThreadHooks, context: ModelContext, turn: ActiveTurn, continuations: int
) -> bool:
    """Run the hooks at the end of a turn; true if one of them gives the model more to do."""
    if continuations >= MAX_CONTINUATIONS:
        hooks.warn(f"hooks prevented the end of the turn {continuations} times, so it ends now")
        return False
    last = turn.last_message
    meta = hooks.thread.meta
    fields: dict[str, JsonValue] = {"stop_hook_active": continuations > 0}
    fields["last_assistant_message"] = None if last is None else last.text
    if meta.parent_thread_id is None:
        results = await dispatch(hooks, "stop", turn, fields)
    else:
        parent = hooks.parent()
        fields["transcript_path"] = None if parent is None else parent.path
        fields["agent_transcript_path"] = meta.path
        role = meta.agent_role or "default"
        results = await dispatch(hooks, "subagentStop", turn, fields, names=[role])
    blocks = [r for r in results if r.verdict.denial is not None]
    if _stop(results) is not None or not blocks:
        return False
    fragments = [
        HookPromptFragment(r.run_id, await for_model(hooks.thread, str(r.verdict.denial)))
        for r in blocks
    ]
    parts = [
        f"<hook_prompt hook_run_id={quoteattr(each.hook_run_id)}>{escape(each.text)}</hook_prompt>"
        for each in fragments
    ]
    asked = written_by("server", message("user", "\n".join(parts)))
    item = HookPromptThreadItem(fragments=fragments, id=f"msg_{uuid7()}")
    turn.complete_item(item, context.history_of(turn).take(asked))
    return True


async def interrupted(hooks: ThreadHooks, turn: ActiveTurn) -> None:
    """Run the hooks after the user interrupted a turn."""
    await dispatch(hooks, "interrupt", turn, {})


async def end_session(hooks: ThreadHooks) -> None:
    """Run the hooks of the end of a session, while its thread can still record them."""
    await dispatch(hooks, "sessionEnd", None, {"reason": "other"}, names=["other"])
