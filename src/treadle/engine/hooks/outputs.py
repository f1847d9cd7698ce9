"""Reads what a hook answers: its exit code, the JSON or text on stdout, the reason on stderr.

A deciding hook that fails denies: what it protects must not happen because it could not decide.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from treadle.engine.hooks.hook import Hook
from treadle.protocol.base import JsonValue
from treadle.protocol.hook import HookEventName, HookOutputEntry, HookOutputEntryKind, HookRunStatus
from treadle.support.text.json_text import is_nested_deeper

Decision: TypeAlias = Literal["allow", "deny", "ask"]

BLOCKED: Final = 2
"""The exit code with which a hook blocks; the reason is on stderr."""

# Events whose hooks may add text to the conversation by printing it.
_PRINTS_CONTEXT: Final = frozenset({"sessionStart", "subagentStart", "userPromptSubmit"})
# Events that a hook can block by its exit code.
_BLOCKABLE: Final = frozenset(
    {
        "preModelRequest",
        "preToolUse",
        "permissionRequest",
        "postToolUse",
        "userPromptSubmit",
        "subagentStop",
        "stop",
    }
)
# Events at which `continue: false` stops what comes next.
_STOPPABLE: Final = frozenset({"sessionStart", "preCompact", "postCompact", "subagentStop", "stop"})
_MAX_SHOWN: Final = 80


class HookAnswer(Struct, frozen=True):
    """What a hook's process, or its MCP tool, has answered; `error` if there is no answer."""

    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    error: str | None = None


class HookVerdict(Struct):
    """The result of one run of a hook."""

    status: HookRunStatus = "completed"
    entries: list[HookOutputEntry] = field(default_factory=list)
    # Why what the event is about must not happen, or not count.
    denial: str | None = None
    # Why the turn, the session or the compaction stops.
    stop: str | None = None
    context: str | None = None
    decision: Decision | None = None
    reason: str | None = None
    updated_input: JsonValue = None
    updated_output: JsonValue = None

    def add(self, kind: HookOutputEntryKind, text: str) -> None:
        """Add a message for clients."""
        self.entries.append(HookOutputEntry(kind, text))

    def add_context(self, text: str) -> None:
        """Add text for the model."""
        if text.strip():
            self.context = text
            self.add("context", text)

    def block(self, reason: str) -> None:
        """Prevent what the event is about."""
        self.status, self.denial, self.decision = "blocked", reason, "deny"
        self.add("feedback", reason)


class _Decision(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    behavior: Literal["allow", "deny"]
    message: str | None = None
    updated_input: JsonValue = None
    updated_permissions: JsonValue = None
    interrupt: bool = False


class _Specific(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    hook_event_name: str
    additional_context: str | None = None
    permission_decision: Decision | None = None
    permission_decision_reason: str | None = None
    updated_input: JsonValue = None
    updated_mcp_tool_output: JsonValue = field(name="updatedMCPToolOutput", default=None)
    decision: _Decision | None = None


class _Output(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    continues: bool = field(name="continue", default=True)
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    hook_specific_output: _Specific | None = None


_COMMON: Final = frozenset("continue stopReason suppressOutput systemMessage".split())
_BLOCK: Final = frozenset({"decision", "reason"})
_OF_EVENT: Final[dict[HookEventName, frozenset[str]]] = {
    "preModelRequest": _BLOCK,
    "preToolUse": _BLOCK | {"hookSpecificOutput"},
    "permissionRequest": frozenset({"hookSpecificOutput"}),
    "postToolUse": _BLOCK | {"hookSpecificOutput"},
    "sessionStart": frozenset({"hookSpecificOutput"}),
    "userPromptSubmit": _BLOCK | {"hookSpecificOutput"},
    "subagentStart": frozenset({"hookSpecificOutput"}),
    "subagentStop": _BLOCK,
    "stop": _BLOCK,
}
"""The fields that each event has besides the common ones."""

_SPECIFIC: Final[dict[HookEventName, frozenset[str]]] = {
    "preToolUse": frozenset(
        "permissionDecision permissionDecisionReason updatedInput additionalContext".split()
    ),
    "permissionRequest": frozenset({"decision"}),
    "postToolUse": frozenset({"additionalContext", "updatedMCPToolOutput"}),
    "sessionStart": frozenset({"additionalContext"}),
    "userPromptSubmit": frozenset({"additionalContext"}),
    "subagentStart": frozenset({"additionalContext"}),
}


class _Invalid(Exception):
    """The output is not in the format of the event."""


def verdict_of(hook: Hook, answer: HookAnswer) -> HookVerdict:
    """Judge the answer of a hook."""
    verdict = HookVerdict()
    title = hook.event.title
    if answer.error is not None:
        _fail(hook, verdict, answer.error)
    elif answer.exit_code == 0:
        try:
            _read(hook, verdict, answer.stdout)
        except _Invalid as fault:
            _fail(hook, verdict, str(fault))
    elif answer.exit_code == BLOCKED and hook.event_name in _BLOCKABLE:
        reason = answer.stderr.strip()
        if reason:
            verdict.block(reason)
        else:
            text = f"{title} hook exited with code 2 but did not write a reason to stderr"
            _fail(hook, verdict, text)
    else:
        _fail(hook, verdict, f"hook exited with code {answer.exit_code}")
    return verdict


def _fail(hook: Hook, verdict: HookVerdict, text: str) -> None:
    verdict.status = "failed"
    verdict.add("error", text)
    verdict.context = verdict.updated_input = verdict.updated_output = None
    verdict.decision = None
    if hook.decides:
        verdict.denial = f"the hook failed: {text}"
        verdict.decision = "deny"


def _read(hook: Hook, verdict: HookVerdict, stdout: str) -> None:
    text = stdout.strip()
    if not text:
        return
    if not text.startswith(("{", "[")):
        _read_text(hook, verdict, text)
        return
    output = _decode(hook, text)
    if output.system_message is not None:
        verdict.add("warning", output.system_message)
    specific = output.hook_specific_output
    if specific is not None and specific.additional_context is not None:
        verdict.add_context(specific.additional_context)
    if not output.continues:
        _stop(hook, verdict, output)
    elif hook.event_name == "permissionRequest":
        _permission(verdict, specific.decision if specific is not None else None)
    elif specific is not None and (
        specific.permission_decision
        or specific.permission_decision_reason is not None
        or specific.updated_input is not None
    ):
        _tool_decision(verdict, specific)
    else:
        _block(hook, verdict, output)
    if verdict.denial is None and specific is not None:
        verdict.updated_output = specific.updated_mcp_tool_output


def _read_text(hook: Hook, verdict: HookVerdict, text: str) -> None:
    """Read text that is not JSON: context, or something without a meaning."""
    name = hook.event_name
    if name in _PRINTS_CONTEXT:
        verdict.add_context(text)
    elif hook.decides or name in ("stop", "subagentStop", "interrupt"):
        # What was meant as a decision may follow a line that a profile printed.
        shown = text.splitlines()[0][:_MAX_SHOWN]
        raise _Invalid(
            f"{hook.event.title} hook wrote text that is not JSON to stdout: {shown!r}; "
            "write messages for people to stderr"
        )


def _decode(hook: Hook, text: str) -> _Output:
    if is_nested_deeper(text.encode("utf-8", "replace")):
        raise _Invalid(f"{hook.event.title} hook returned JSON that is nested too deeply")
    try:
        document = msgspec.json.decode(text)
        output = msgspec.convert(document, _Output)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"hook returned invalid {hook.event.title} JSON output: {error}"
        raise _Invalid(message) from error
    _check_fields(hook, document)
    return output


def _check_fields(hook: Hook, document: dict[str, JsonValue]) -> None:
    """Check that the event has these fields: others would have no effect."""
    title, name = hook.event.title, hook.event_name
    allowed = _COMMON | _OF_EVENT.get(name, frozenset())
    if name == "interrupt":
        allowed = frozenset({"systemMessage"})
    specific = document.get("hookSpecificOutput") or {}
    unknown = [
        *sorted(document.keys() - allowed),
        *sorted(specific.keys() - _SPECIFIC.get(name, frozenset()) - {"hookEventName"}),
    ]
    if unknown:
        raise _Invalid(f"hook returned invalid {title} JSON output: unknown field `{unknown[0]}`")
    if specific and specific["hookEventName"] != title:
        shown = str(specific["hookEventName"])[:_MAX_SHOWN]
        message = f"expected hookEventName {title}, got {shown}"
        raise _Invalid(f"hook returned invalid {title} JSON output: {message}")


def _stop(hook: Hook, verdict: HookVerdict, output: _Output) -> None:
    reason = (output.stop_reason or "").strip()
    shown = reason or f"{hook.event.title} hook stopped execution"
    verdict.status = "stopped"
    verdict.add("stop", shown)
    if hook.event_name in _STOPPABLE:
        verdict.stop = shown
    elif hook.event_name == "postToolUse":
        verdict.denial = (output.reason or "").strip() or shown
    elif hook.event.decides:
        verdict.denial, verdict.decision = shown, "deny"


def _permission(verdict: HookVerdict, decision: _Decision | None) -> None:
    if decision is None:
        return
    for name in ("updated_input", "updated_permissions", "interrupt"):
        if getattr(decision, name):
            wire = {"updated_input": "updatedInput", "updated_permissions": "updatedPermissions"}
            raise _Invalid(
                f"PermissionRequest hook returned unsupported {wire.get(name, 'interrupt:true')}"
            )
    if decision.behavior == "allow":
        verdict.decision = "allow"
    else:
        message = (decision.message or "").strip()
        verdict.block(message or "PermissionRequest hook denied approval")


def _tool_decision(verdict: HookVerdict, specific: _Specific) -> None:
    decision, reason = specific.permission_decision, specific.permission_decision_reason
    if specific.updated_input is not None and decision != "allow":
        raise _Invalid("PreToolUse hook returned updatedInput without permissionDecision:allow")
    if decision is None:
        raise _Invalid(
            "PreToolUse hook returned permissionDecisionReason without permissionDecision"
        )
    if decision == "deny":
        if not (reason or "").strip():
            raise _Invalid(
                "PreToolUse hook returned permissionDecision:deny without a non-empty "
                "permissionDecisionReason"
            )
        verdict.block(str(reason).strip())
        return
    verdict.decision, verdict.reason = decision, reason
    verdict.updated_input = specific.updated_input


def _block(hook: Hook, verdict: HookVerdict, output: _Output) -> None:
    title = hook.event.title
    reason = (output.reason or "").strip()
    if output.decision is None:
        if output.reason is not None and hook.event_name in ("preToolUse", "postToolUse"):
            raise _Invalid(f"{title} hook returned reason without decision")
    elif output.decision == "approve":
        if hook.event_name != "preToolUse":
            raise _Invalid(f"{title} hook returned unsupported decision:approve")
    elif not reason:
        raise _Invalid(f"{title} hook returned decision:block without a non-empty reason")
    else:
        verdict.block(reason)
