"""Where hooks are found."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from tests.server.serving import configuration
from treadle.config.hooks.discovery import find_hooks
from treadle.config.layers import Layer
from treadle.protocol.config import LegacyManagedConfigTomlFromFileConfigLayerSource


def test_hooks_of_the_administrators_older_file_are_managed(home: Path) -> None:
    """Upstream: `managed_config.toml`."""
    handler = {"type": "command", "command": "x"}
    table = {"hooks": {"Stop": [{"hooks": [handler]}]}}
    source = LegacyManagedConfigTomlFromFileConfigLayerSource(file="/etc/codex/managed_config.toml")
    effective = configuration(home, "[features]\nhooks = false").effective()
    layered = structs.replace(effective, layers=(*effective.layers, Layer(source, table)))

    (hook,) = find_hooks(layered, Path("/etc/codex/requirements.toml")).hooks

    assert (hook.key, hook.source, hook.trust) == (
        "/etc/codex/managed_config.toml:stop:0:0",
        "legacyManagedConfigFile",
        "managed",
    )
