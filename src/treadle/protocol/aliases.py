"""Older and documented spellings that are accepted on input and rewritten to the wire format.

Applied only when params do not decode as they are, so the usual spelling has no extra cost.
"""

from __future__ import annotations

from typing import Final

from treadle.protocol.base import JsonValue

_APPROVAL: Final = {
    "unlessTrusted": "untrusted",
    "onRequest": "on-request",
    "onFailure": "on-failure",
}
_SANDBOX: Final = {
    "readOnly": "read-only",
    "workspaceWrite": "workspace-write",
    "dangerFullAccess": "danger-full-access",
}
_POLICY: Final = {kebab: camel for camel, kebab in _SANDBOX.items()}


def rewrite(params: JsonValue) -> JsonValue:
    """Return a copy of the params with every known alias replaced."""
    if not isinstance(params, dict):
        return params
    return {
        name: _FIELDS[name](value) if name in _FIELDS else value for name, value in params.items()
    }


def _approval_policy(value: JsonValue) -> JsonValue:
    return _APPROVAL.get(value, value) if isinstance(value, str) else value


def _sandbox_mode(value: JsonValue) -> JsonValue:
    return _SANDBOX.get(value, value) if isinstance(value, str) else value


def _sandbox_policy(value: JsonValue) -> JsonValue:
    """Accept `mode`, the older name of `type`, and kebab-case modes."""
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, dict):
        return value
    policy = dict(value)
    if "type" not in policy and "mode" in policy:
        policy["type"] = policy.pop("mode")
    if isinstance(policy.get("type"), str):
        policy["type"] = _POLICY.get(policy["type"], policy["type"])
    return policy


def _dynamic_tools(value: JsonValue) -> JsonValue:
    """Treat a tool without a `type` as a function, the only kind when the field was introduced.

    A later release let such tools name a namespace and ask not to be listed.
    """
    if not isinstance(value, list):
        return value
    tools: list[JsonValue] = []
    spaces: dict[str, list[JsonValue]] = {}
    for tool in value:
        if not isinstance(tool, dict) or "type" in tool:
            tools.append(tool)
            continue
        function = {"type": "function", **tool}
        if function.pop("exposeToContext", True) is False:
            function.setdefault("deferLoading", True)
        name = function.pop("namespace", None)
        if not isinstance(name, str):
            tools.append(function)
            continue
        if name not in spaces:
            spaces[name] = []
            header = {"name": name, "description": f"Tools in the {name} namespace."}
            tools.append({"type": "namespace", **header, "tools": spaces[name]})
        spaces[name].append(function)
    return tools


_FIELDS: Final = {
    "approvalPolicy": _approval_policy,
    "sandbox": _sandbox_mode,
    "sandboxPolicy": _sandbox_policy,
    "dynamicTools": _dynamic_tools,
}
