"""The answer to `config/read`, which lists every setting, set or not."""

from __future__ import annotations

from typing import Final

import msgspec

from treadle.config.effective import EffectiveConfig
from treadle.config.settings import PROVIDER_KEYS, Table
from treadle.protocol.base import JsonValue
from treadle.protocol.config import ConfigReadResponse

_PROVIDER: Final[Table] = {
    **dict.fromkeys(PROVIDER_KEYS),
    "wire_api": "responses",
    "requires_openai_auth": False,
    "supports_websockets": False,
    "supports_standalone_web_search": False,
}
_MCP_SERVER: Final[Table] = {
    "args": [],
    "environment_id": "local",
    "enabled": True,
    "tool_timeout_sec": None,
}
_SHELL_ENVIRONMENT: Final[Table] = dict.fromkeys(
    "inherit ignore_default_excludes exclude set include_only filters "
    "experimental_use_profile".split()
)


def describe(effective: EffectiveConfig, *, with_layers: bool) -> ConfigReadResponse:
    """Return the settings in force, the origin of each and, on request, the layers."""
    origins = {key: layer.metadata for key, layer in effective.origins.items()}
    layers = [layer.to_protocol() for layer in reversed(effective.layers)]
    return ConfigReadResponse(
        # A table instead of a `Config`: the answer names all settings, the type only some.
        config=_fill(effective),
        origins=origins,
        layers=layers if with_layers else None,
    )


def _fill(effective: EffectiveConfig) -> JsonValue:
    table: Table = msgspec.to_builtins(effective.as_set)
    for key in ("asks", "sandbox"):
        if table[key] is None:
            del table[key]  # Treadle's own: hidden from clients that list all settings
    table["features"] = effective.features
    table["shell_environment_policy"] = {**_SHELL_ENVIRONMENT, **table["shell_environment_policy"]}
    for key, defaults in (("model_providers", _PROVIDER), ("mcp_servers", _MCP_SERVER)):
        table[key] = {name: {**defaults, **entry} for name, entry in table[key].items()}
    tools = table["tools"]
    if tools is not None and not isinstance(tools.get("web_search"), dict):
        # Older files have a boolean here; the top-level `web_search` holds the same as a mode.
        table["tools"] = {**tools, "web_search": None}
    return table
