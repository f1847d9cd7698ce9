"""The settings of accounts: the user's, within the requirements of an administrator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treadle.accounts.settings import AccountSettings, LoginMethod
from treadle.config.file import ConfigError
from treadle.config.managed.requirements import read_requirements
from treadle.config.settings import ConfigValues
from treadle.protocol.base import JsonValue
from treadle.protocol.requirements import ConfigRequirements

# A key of requirements.toml that no client reads.
_WORKSPACES: Final = "allowed_chatgpt_workspaces"


def account_settings(
    values: ConfigValues, requirements: Mapping[str, JsonValue]
) -> AccountSettings:
    """Return what applies; invalid requirements, which other readers report, allow no login."""
    try:
        required = read_requirements(requirements) or ConfigRequirements()
        workspaces = _workspaces(values, requirements)
    except ConfigError:
        return AccountSettings(methods=())
    return AccountSettings(
        store=required.cli_auth_credentials_store or values.cli_auth_credentials_store,
        methods=_methods(values, required),
        workspaces=workspaces,
        chatgpt_base_url=required.chatgpt_base_url or values.chatgpt_base_url,
    )


def _methods(values: ConfigValues, required: ConfigRequirements) -> tuple[LoginMethod, ...] | None:
    forced, allowed = values.forced_login_method, required.allowed_login_methods
    if forced is None:
        return None if allowed is None else tuple(allowed)
    return (forced,) if allowed is None or forced in allowed else ()


def _workspaces(
    values: ConfigValues, requirements: Mapping[str, JsonValue]
) -> tuple[str, ...] | None:
    forced = values.forced_chatgpt_workspace_id
    names = [forced] if isinstance(forced, str) else forced or []
    # As upstream: blank names of the user restrict nothing, an empty list of an administrator all.
    wanted = tuple(name.strip() for name in names if name.strip()) or None
    allowed = requirements.get(_WORKSPACES)
    if allowed is None:
        return wanted
    if not isinstance(allowed, list) or not all(isinstance(each, str) for each in allowed):
        message = f"`{_WORKSPACES}` is invalid, expected a list of strings"
        raise ConfigError(message, key=_WORKSPACES)
    return tuple(each for each in allowed if wanted is None or each in wanted)
