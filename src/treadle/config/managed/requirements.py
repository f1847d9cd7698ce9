"""The administrator's requirements: reads `requirements.toml` and enforces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.features import canonical, is_on, resolve, switched
from treadle.protocol.base import JsonValue
from treadle.protocol.explain import explain
from treadle.protocol.network import NetworkRequirements
from treadle.protocol.policy import GranularAskForApproval
from treadle.protocol.requirements import ConfigRequirements

# Keys of the file that the protocol spells differently.
_SPELLED: Final = {"features": "feature_requirements", "experimental_network": "network"}

_KEPT: Final = {
    "approval_policy": "allowed_approval_policies",
    "approvals_reviewer": "allowed_approvals_reviewers",
    "sandbox_mode": "allowed_sandbox_modes",
    "web_search": "allowed_web_search_modes",
}


class Replaced(NamedTuple):
    """A setting that is not allowed, and its replacement."""

    key: str
    value: JsonValue
    instead: JsonValue


def required_by(managed: Mapping[str, JsonValue]) -> Table:
    """Return the requirements that the policies in a managed configuration stand for."""
    required: Table = {}
    if (approvals := managed.get("approval_policy")) is not None:
        required["allowed_approval_policies"] = [approvals]
    if (mode := managed.get("sandbox_mode")) is not None:
        # A stricter sandbox is always allowed.
        required["allowed_sandbox_modes"] = list(dict.fromkeys([mode, "read-only"]))
    return required


def read_requirements(table: Mapping[str, JsonValue]) -> ConfigRequirements | None:
    """Read the file's table; an empty table sets no requirements.

    Raises:
        ConfigError: a requirement is invalid, so it cannot be enforced.
    """
    names = dict(
        zip(
            ConfigRequirements.__struct_fields__,
            ConfigRequirements.__struct_encode_fields__,
            strict=True,
        )
    )
    known = {
        names[_SPELLED.get(key, key)]: _in_protocol(key, value)
        for key, value in table.items()
        if _SPELLED.get(key, key) in names
    }
    if not known:
        return None
    try:
        return msgspec.convert(known, ConfigRequirements)
    except msgspec.ValidationError as error:
        fault = explain(error, ConfigRequirements)
        message = f"{fault.message} in requirements.toml"
        raise ConfigError(message, key=fault.path) from error


def _in_protocol(key: str, value: JsonValue) -> JsonValue:
    match key:
        case "experimental_network":
            return _network(value)
        case "hooks":
            # Imported on use: most machines have none.
            from treadle.config.hooks.required import hooks_required

            return hooks_required(value)
        case _:
            return value


def _network(table: JsonValue) -> JsonValue:
    """Return the network requirements under the protocol's names."""
    if not isinstance(table, dict):
        return table
    fields = NetworkRequirements.__struct_fields__
    names = dict(zip(fields, NetworkRequirements.__struct_encode_fields__, strict=True))
    return {names.get(key, key): value for key, value in table.items()}


def keep_to(
    requirements: ConfigRequirements | None, table: Table, defaults: Mapping[str, JsonValue]
) -> list[Replaced]:
    """Replace each disallowed value in the merged table with the first allowed one."""
    replaced = _pin_features(requirements, table)
    _search_as_older_flags(table)
    _limit_default_search(requirements, table)
    for key in _KEPT:
        allowed = _disallowed(requirements, key, table.get(key, defaults.get(key)))
        if allowed:
            if key in table:
                replaced.append(Replaced(key, _word(table[key]), allowed[0]))
            table[key] = allowed[0]
    return replaced


def pinned_features(requirements: ConfigRequirements | None) -> dict[str, bool]:
    """Return the features that the administrator pins, under their current names."""
    pinned = requirements.feature_requirements if requirements is not None else None
    return {canonical(name): value for name, value in (pinned or {}).items()}


def _pin_features(requirements: ConfigRequirements | None, table: Table) -> list[Replaced]:
    """Set pinned features in the merged table; return those that had another value."""
    replaced: list[Replaced] = []
    pinned = pinned_features(requirements)
    features = table.setdefault("features", {}) if pinned else None
    if not isinstance(features, dict):
        return replaced
    for name, value in features.items():
        wanted = pinned.get(canonical(name))
        if wanted is not None and is_on(value) != wanted:
            replaced.append(Replaced(f"features.{name}", _flag(value), _flag(wanted)))
            features[name] = switched(value, to=wanted)
    for name, wanted in pinned.items():
        features.setdefault(name, wanted)
    return replaced


def _flag(value: JsonValue) -> str:
    return str(is_on(value)).lower()


def _search_as_older_flags(table: Table) -> None:
    """Set the mode of web searches from the flags that older releases had for it."""
    features = table.get("features")
    if table.get("web_search") is not None or not isinstance(features, dict):
        return
    switches = resolve(features)
    if switches.get("web_search_cached"):
        table["web_search"] = "cached"
    elif switches.get("web_search_request"):
        table["web_search"] = "live"


def _limit_default_search(requirements: ConfigRequirements | None, table: Table) -> None:
    """Set the mode of web searches if it is not set, and the default may not be allowed."""
    allowed = _allowed(requirements, "allowed_web_search_modes") if requirements else ()
    if allowed and table.get("web_search") is None:
        table["web_search"] = "cached" if "cached" in allowed else allowed[0]


def refuse_disallowed(
    requirements: ConfigRequirements | None, table: Mapping[str, JsonValue]
) -> None:
    """Reject values that the requirements do not allow.

    Raises:
        ConfigError: the table holds a disallowed value.
    """
    for key in _KEPT:
        if allowed := _disallowed(requirements, key, table.get(key)):
            names = ", ".join(f"`{name}`" for name in allowed)
            message = f"`{key}` = {_word(table[key])} is not allowed here, only {names}"
            raise ConfigError(message, key=key)


def is_allowed(
    requirements: ConfigRequirements | None, key: str, value: JsonValue | GranularAskForApproval
) -> bool:
    """Return whether a setting may have this value."""
    return not _disallowed(requirements, key, value)


def _disallowed(
    requirements: ConfigRequirements | None, key: str, value: JsonValue
) -> Sequence[str]:
    """Return the allowed alternatives to a value; empty if the value is allowed."""
    if requirements is None or value is None:
        return ()
    allowed = _allowed(requirements, _KEPT[key])
    return () if _word(value) in allowed else allowed


def _allowed(requirements: ConfigRequirements, name: str) -> Sequence[str]:
    return [_word(value) for value in getattr(requirements, name) or ()]


def _word(value: JsonValue) -> str:
    is_granular = isinstance(value, dict | GranularAskForApproval)
    return "granular" if is_granular else str(value)
