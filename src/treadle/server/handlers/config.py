"""The configuration and what depends on it: requirements, features, permissions."""

from __future__ import annotations

from typing import Final

from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError
from treadle.config.managed.requirements import pinned_features
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.features import SWITCHABLE, list_features
from treadle.jsonrpc.errors import InternalError
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    CONFIG_READ,
    CONFIG_REQUIREMENTS_READ,
    EXPERIMENTAL_FEATURE_ENABLEMENT_SET,
    EXPERIMENTAL_FEATURE_LIST,
    PERMISSION_PROFILE_LIST,
)
from treadle.protocol.config import ConfigReadParams, ConfigReadResponse
from treadle.protocol.feature import (
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
)
from treadle.protocol.notifications import CONFIG_WARNING
from treadle.protocol.permission import (
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)
from treadle.protocol.requirements import ConfigRequirementsReadResponse
from treadle.server.folder_limits import check_folder
from treadle.server.paging.offset import page
from treadle.server.session import ClientSession
from treadle.server.settings_reload import reload_threads

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

_BUILT_IN_PROFILES: Final = (":read-only", ":workspace", ":danger-full-access")


def send_warnings(session: ClientSession, effective: EffectiveConfig) -> None:
    """Send one client the warnings about the configuration of its request."""
    for warning in effective.warnings:
        session.notify_nowait(CONFIG_WARNING, warning)


@router.request(CONFIG_READ)
async def config_read(ctx: Context[ClientSession], params: ConfigReadParams) -> ConfigReadResponse:
    """Return the settings in force for a folder."""
    check_folder(params.cwd)
    configuration = ctx.session.server.configuration
    try:
        return await ctx.session.file_workers.run(_describe, configuration, params)
    except ConfigError as error:
        raise _invalid(error) from error


def _describe(configuration: Configuration, params: ConfigReadParams) -> ConfigReadResponse:
    from treadle.config.describe import describe

    effective = configuration.effective(params.cwd, shows_ignored=params.include_layers)
    return describe(effective, with_layers=params.include_layers)


@router.request(CONFIG_REQUIREMENTS_READ)
def config_requirements_read(
    ctx: Context[ClientSession], _params: NoParams
) -> ConfigRequirementsReadResponse:
    """Return the administrator's requirements."""
    try:
        requirements = ctx.session.server.configuration.requirements()
    except ConfigError as error:
        raise _invalid(error) from error
    return ConfigRequirementsReadResponse(
        requirements=requirements, supports_independent_speed_modes=True
    )


@router.request(EXPERIMENTAL_FEATURE_LIST)
def experimental_feature_list(
    ctx: Context[ClientSession], params: ExperimentalFeatureListParams
) -> ExperimentalFeatureListResponse:
    """List the features that this server honours, with their state in a thread if it is named."""
    server = ctx.session.server
    if params.thread_id is not None:
        switches = server.threads.get(params.thread_id).settings.features
    else:
        switches = server.configuration.lenient().switches
    features = list_features(switches)
    data, next_cursor = page(features, params.cursor, params.limit, of="feature flags")
    return ExperimentalFeatureListResponse(data=data, next_cursor=next_cursor)


@router.request(EXPERIMENTAL_FEATURE_ENABLEMENT_SET)
async def experimental_feature_enablement_set(
    ctx: Context[ClientSession], params: ExperimentalFeatureEnablementSetParams
) -> ExperimentalFeatureEnablementSetResponse:
    """Switch features that support it at run time; the answer omits the others."""
    configuration = ctx.session.server.configuration
    try:
        pinned = pinned_features(configuration.requirements())
    except ConfigError as error:
        raise _invalid(error) from error
    switches = {
        name: on
        for name, on in params.enablement.items()
        if name in SWITCHABLE and pinned.get(name, on) == on
    }
    configuration.switch_features(switches)
    if switches:
        await reload_threads(ctx.session.server, only=("features",))
    return ExperimentalFeatureEnablementSetResponse(enablement=switches)


@router.request(PERMISSION_PROFILE_LIST)
async def permission_profile_list(
    ctx: Context[ClientSession], params: PermissionProfileListParams
) -> PermissionProfileListResponse:
    """List the built-in profiles and those of the configuration."""
    check_folder(params.cwd)
    configuration = ctx.session.server.configuration
    try:
        effective = await ctx.session.file_workers.run(configuration.effective, params.cwd)
    except ConfigError as error:
        raise _invalid(error) from error
    requirements = effective.requirements
    allowed = requirements and requirements.allowed_permission_profiles
    configured = effective.permissions or {}
    profiles = [
        PermissionProfileSummary(
            id=id_,
            description=configured.get(id_, {}).get("description"),
            allowed=not allowed or allowed.get(id_, False),
        )
        for id_ in (*_BUILT_IN_PROFILES, *sorted(configured))
    ]
    data, next_cursor = page(profiles, params.cursor, params.limit, of="permission profiles")
    return PermissionProfileListResponse(data=data, next_cursor=next_cursor)


def _invalid(error: ConfigError) -> InternalError:
    return InternalError(f"invalid configuration: {error}", kind="invalidConfig", path=error.key)
