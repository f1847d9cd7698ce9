"""Where hooks are found."""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    "own",
    [
        "[features]\nhooks = true",
        "[features.hooks]\nenabled = true",
        "[features]\ncodex_hooks = true",
    ],
)
def test_a_pinned_feature_switches_hooks_off_however_the_user_sets_it(home: Path, own: str) -> None:
    """Ours: the administrator's `[features]` in `requirements.toml`."""
    text = f'{own}\n[[hooks.Stop]]\nhooks = [{{ type = "command", command = "x" }}]\n'
    pinned = configuration(home, text, requirements="[features]\nhooks = false\n").effective()

    assert find_hooks(pinned, Path("/etc/codex/requirements.toml")).hooks == []
