"""Translates turn settings, usage and errors between other programs' form and the protocol's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Final, TypeVar

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.collaboration import CollaborationMode
from treadle.protocol.error import CodexErrorInfo, TurnError
from treadle.protocol.policy import ReadOnlySandboxPolicy, SandboxPolicy
from treadle.protocol.usage import ThreadTokenUsage, TokenUsageBreakdown
from treadle.store.records import TurnContext, UsageRecord
from treadle.store.rollout.foreign.items import Json, camel

T = TypeVar("T")

_upper: Final = re.compile(r"(?<!^)([A-Z])")


def snake(text: str) -> str:
    """Convert a camelCase word to snake_case."""
    return _upper.sub(r"_\1", text).lower()


def read_turn_context(
    payload: Mapping[str, JsonValue], provider: str, before: TurnContext | None
) -> TurnContext | None:
    """Translate a `turn_context`; an unknown sandbox policy leaves the previous one in force."""
    default = before.sandbox_policy if before else ReadOnlySandboxPolicy()
    known: Json = {
        "record": "turnContext",
        "turn_id": payload.get("turn_id") or "",
        "cwd": payload.get("cwd"),
        "model": payload.get("model"),
        "provider": provider,
        "approval_policy": payload.get("approval_policy"),
        "sandbox_policy": msgspec.to_builtins(read_sandbox(payload.get("sandbox_policy"), default)),
        "approvals_reviewer": payload.get("approvals_reviewer") or "user",
    }
    optional = {
        key: payload[key]
        for key in ("effort", "summary", "personality", "service_tier", "collaboration_mode")
        if payload.get(key) is not None
    }
    # The optional parts change from version to version: better without them than not at all.
    return _maybe({**known, **optional}, TurnContext) or _maybe(known, TurnContext)


def write_turn_context(context: TurnContext) -> Json:
    """Write a turn's settings for other programs."""
    payload: Json = {
        "turn_id": context.turn_id,
        "cwd": context.cwd,
        "approval_policy": msgspec.to_builtins(context.approval_policy),
        "approvals_reviewer": context.approvals_reviewer,
        "sandbox_policy": _write_sandbox(context.sandbox_policy),
        "model": context.model,
        "summary": context.summary or "auto",
    }
    if context.effort is not None:
        payload["effort"] = context.effort
    if context.personality is not None:
        payload["personality"] = context.personality
    if isinstance(context.collaboration_mode, CollaborationMode):
        payload["collaboration_mode"] = msgspec.to_builtins(context.collaboration_mode)
    return payload


def read_sandbox(value: JsonValue, default: SandboxPolicy) -> SandboxPolicy:
    """Translate a stored sandbox policy."""
    if not isinstance(value, Mapping):
        return default
    fields = {camel(key): part for key, part in value.items()}
    fields["type"] = camel(str(value.get("type")).replace("-", "_"))
    policy: SandboxPolicy | None = _maybe(fields, SandboxPolicy)
    return policy or default


def _write_sandbox(policy: SandboxPolicy) -> Json:
    fields = msgspec.to_builtins(policy)
    kind = snake(fields.pop("type")).replace("_", "-")
    shared = ("network_access", "writable_roots", "exclude_slash_tmp", "exclude_tmpdir_env_var")
    known = {snake(key): value for key, value in fields.items() if snake(key) in shared}
    if kind == "read-only" and not known["network_access"]:
        known = {}
    return {"type": kind, **known}


def read_usage(info: JsonValue) -> ThreadTokenUsage | None:
    """Translate the `info` of a `token_count`."""
    if not isinstance(info, Mapping):
        return None
    last = _read_tokens(info.get("last_token_usage"))
    total = _read_tokens(info.get("total_token_usage"))
    if last is None or total is None:
        return None
    return ThreadTokenUsage(last, total, info.get("model_context_window"))


def _read_tokens(value: JsonValue) -> TokenUsageBreakdown | None:
    if not isinstance(value, Mapping):
        return None
    return _maybe({camel(key): number for key, number in value.items()}, TokenUsageBreakdown)


def write_usage(record: UsageRecord) -> Json:
    """Write the usage of a response as a `token_count`."""
    info = {
        "total_token_usage": _write_tokens(record.total),
        "last_token_usage": _write_tokens(record.usage),
        "model_context_window": record.context_window,
    }
    return {"type": "token_count", "info": info, "rate_limits": None}


def _write_tokens(usage: TokenUsageBreakdown) -> Json:
    return msgspec.structs.asdict(usage)


def read_error(value: JsonValue) -> TurnError | None:
    """Translate the error of a failed turn."""
    if not isinstance(value, Mapping):
        return None
    info = value.get("codex_error_info")
    word: CodexErrorInfo | None = _maybe(_respell(info, camel), CodexErrorInfo)
    return TurnError(
        message=str(value.get("message") or ""),
        codex_error_info="other" if word is None and info is not None else word,
    )


def write_error(error: TurnError) -> Json:
    """Write the error of a failed turn."""
    info = _respell(msgspec.to_builtins(error.codex_error_info), snake)
    return {"message": error.message, "codex_error_info": info}


def _respell(value: JsonValue, spell: Callable[[str], str]) -> JsonValue:
    if isinstance(value, str):
        return spell(value)
    if isinstance(value, Mapping):
        return {spell(key): _respell(part, spell) for key, part in value.items()}
    return value


def _maybe(value: JsonValue, kind: type[T] | UnionType) -> T | None:
    try:
        made: T = msgspec.convert(value, kind)
        return made
    except msgspec.ValidationError:
        return None
