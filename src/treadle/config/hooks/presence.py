"""Looks whether a configuration names hooks at all; most do not, and load no more code."""

from __future__ import annotations

import os
from typing import Final

from treadle.config.effective import EffectiveConfig
from treadle.config.layers import Layer

FILE: Final = "hooks.json"
"""The file beside a `config.toml`."""


def has_hooks(effective: EffectiveConfig) -> bool:
    """Return whether a folder's configuration may name hooks; the usual answer is no."""
    requirements = effective.requirements
    return (requirements is not None and requirements.hooks is not None) or any(
        layer.disabled_reason is None and ("hooks" in layer.table or _has_file(layer))
        for layer in effective.layers
    )


def _has_file(layer: Layer) -> bool:
    # As text: this is a part of every turn.
    return layer.folder is not None and os.path.lexists(f"{layer.folder}/{FILE}")
