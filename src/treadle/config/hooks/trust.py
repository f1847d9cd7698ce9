"""The user's trust in hooks: recorded by a hash of what a hook does, in the user's own file."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping

from msgspec import Struct

from treadle.config.hooks.parse import STATE
from treadle.config.layers import Layer
from treadle.engine.hooks.events import HookEvent
from treadle.engine.hooks.hook import HookHandler
from treadle.protocol.base import JsonValue
from treadle.protocol.config import SessionFlagsConfigLayerSource, UserConfigLayerSource
from treadle.protocol.hook import CommandConfiguredHookHandler, HookTrustStatus


class HookState(Struct, frozen=True):
    """What the user decided about one hook."""

    is_enabled: bool = True
    trusted_hash: str | None = None

    def trust(self, current_hash: str) -> HookTrustStatus:
        """Return whether the hook is trusted as it is now."""
        if self.trusted_hash is None:
            return "untrusted"
        same = hmac.compare_digest(self.trusted_hash.encode(), current_hash.encode())
        return "trusted" if same else "modified"


UNDECIDED = HookState()


def read_states(layers: Iterable[Layer]) -> dict[str, HookState]:
    """Read the decisions by the keys of the hooks; a later layer wins.

    Only the user decides: in the user's file, on the command line or in a request. The file of a
    project cannot trust itself.
    """
    states: dict[str, HookState] = {}
    for layer in layers:
        if not isinstance(layer.source, UserConfigLayerSource | SessionFlagsConfigLayerSource):
            continue
        table = layer.table.get("hooks")
        decided = table.get(STATE) if isinstance(table, dict) else None
        for key, value in (decided if isinstance(decided, dict) else {}).items():
            if isinstance(value, dict):
                states[key] = _merged(states.get(key, UNDECIDED), value)
    return states


def _merged(before: HookState, value: Mapping[str, JsonValue]) -> HookState:
    enabled, trusted = value.get("enabled"), value.get("trusted_hash")
    return HookState(
        enabled if isinstance(enabled, bool) else before.is_enabled,
        trusted if isinstance(trusted, str) else before.trusted_hash,
    )


def hash_of(event: HookEvent, matcher: str | None, handler: HookHandler, seconds: int) -> str:
    """Return the hash of what a hook does, which is the same in every format of its file."""
    described: dict[str, JsonValue] = {"timeout": seconds, "statusMessage": handler.status_message}
    if isinstance(handler, CommandConfiguredHookHandler):
        described |= {
            "type": "command",
            "command": handler.command,
            "async": handler.async_,
            "additionalContextLimit": handler.additional_context_limit,
        }
    else:
        described |= {
            "type": "mcp_tool",
            "server": handler.server,
            "tool": handler.tool,
            "input": _numbered(handler.input),
        }
    known = {name: value for name, value in described.items() if value is not None}
    identity: dict[str, JsonValue] = {"event_name": event.key, "hooks": [known]}
    if matcher is not None:
        identity["matcher"] = matcher
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _numbered(value: JsonValue) -> JsonValue:
    """Return a value whose numbers have the form in which the reference hashes them."""
    match value:
        case dict():
            return {name: _numbered(each) for name, each in value.items()}
        case list():
            return [_numbered(each) for each in value]
        case bool() | str() | None:
            return value
        case _:
            return {"$serde_json::private::Number": str(value)}
