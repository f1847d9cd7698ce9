"""Warnings to clients about a configuration that is usable but has faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from treadle.config.file import ConfigError
from treadle.config.layers import Layer
from treadle.config.managed.requirements import Replaced
from treadle.config.settings import unknown_keys
from treadle.protocol.error import ConfigWarningNotification

MAX_SHOWN: Final = 3


def defaults_used(error: ConfigError) -> ConfigWarningNotification:
    """Warn that the configuration is invalid and the defaults apply."""
    return ConfigWarningNotification(
        summary="The configuration is invalid; defaults are used instead.",
        details=str(error),
        path=UNSET if error.file is None else str(error.file),
    )


def requirements_invalid(error: ConfigError) -> ConfigWarningNotification:
    """Warn that the administrator's requirements are invalid, which nothing replaces."""
    return ConfigWarningNotification(
        summary="The administrator's requirements are invalid: no thread can be started or "
        "resumed until they are corrected.",
        details=str(error),
        path=UNSET if error.file is None else str(error.file),
    )


def keys_refused(layer: Layer, keys: Sequence[str]) -> ConfigWarningNotification:
    """Warn that a project sets keys that only the user may set."""
    names = ", ".join(keys)
    return ConfigWarningNotification(
        summary=f"{layer.label} may not set: {names}. These keys were ignored; "
        "set them in your own config.toml if you want them.",
    )


def keys_unknown(layers: Sequence[Layer]) -> list[ConfigWarningNotification]:
    """Return one warning about all unknown keys, highest layer first, or an empty list."""
    lines = [
        f"  {layer.label}: `{key}` is ignored."
        for layer in reversed(layers)
        if layer.disabled_reason is None
        for key in unknown_keys(layer.table)
    ]
    if not lines:
        return []
    count = f"{len(lines)} configuration setting{'s are' if len(lines) > 1 else ' is'} not known"
    more = len(lines) - MAX_SHOWN
    rest = [f"  ... and {more} more."] if more > 0 else []
    summary = "\n".join([f"{count}; look for typing errors.", *lines[:MAX_SHOWN], *rest])
    return [ConfigWarningNotification(summary=summary)]


def value_replaced(replaced: Replaced) -> ConfigWarningNotification:
    """Warn that the administrator does not allow a setting."""
    return ConfigWarningNotification(
        summary=f"`{replaced.key}` = {replaced.value} is not allowed on this machine; "
        f"{replaced.instead} is used instead.",
    )
