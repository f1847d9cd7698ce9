"""The configured model providers: listed for a picker, and added or changed by it."""

from __future__ import annotations

import re
from typing import Final, NoReturn
from urllib.parse import urlsplit

from msgspec import UNSET

from treadle.config.configuration import Configuration
from treadle.config.edit.writer import WriteRefused, write_config
from treadle.config.effective import EffectiveConfig
from treadle.config.layers import Layer
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InvalidRequest
from treadle.model.provider import ProviderConfig, built_in
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    MODEL_PROVIDER_CAPABILITIES_READ,
    MODEL_PROVIDER_CONFIG_WRITE,
    MODEL_PROVIDER_LIST,
)
from treadle.protocol.config import ConfigEdit, UserConfigLayerSource
from treadle.protocol.model import (
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
)
from treadle.protocol.model_provider import (
    CustomGatewayProviderSettings,
    CustomGatewayProviderSettingsPatch,
    EnvironmentVariableGatewayAuth,
    ExternallyConfiguredGatewayAuth,
    GatewayAuth,
    ModelProviderConfigWriteParams,
    ModelProviderConfigWriteResponse,
    ModelProviderListParams,
    ModelProviderListResponse,
    ModelProviderSummary,
    NoneGatewayAuth,
    OpenaiProviderSettings,
)
from treadle.server.handlers.config_write import answering_faults
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_NAME: Final = 100
_URL: Final = "Enter an HTTP(S) base URL without credentials, a query, or a fragment."
_BUILT_IN: Final = "A custom provider or gateway cannot use a built-in provider ID."
_NOT_SLUG: Final = re.compile(r"[^a-z0-9]++")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")


@router.request(MODEL_PROVIDER_LIST)
async def model_provider_list(
    ctx: Context[ClientSession],
    _params: ModelProviderListParams,
) -> ModelProviderListResponse:
    """List the built-in and the configured providers."""
    configuration = ctx.session.server.configuration
    effective = await ctx.session.file_workers.run(configuration.lenient)
    return ModelProviderListResponse(
        can_change_default=_required(effective) is None,
        data=[_summary(configuration, effective, id_) for id_ in sorted(effective.providers)],
        default_provider_id=effective.model_provider,
    )


@router.request(MODEL_PROVIDER_CAPABILITIES_READ)
async def model_provider_capabilities_read(
    ctx: Context[ClientSession],
    _params: ModelProviderCapabilitiesReadParams,
) -> ModelProviderCapabilitiesReadResponse:
    """Return what the provider in use offers besides text; there is no tool that makes images."""
    configuration = ctx.session.server.configuration
    effective = await ctx.session.file_workers.run(configuration.lenient)
    # Only this interface has a search that the provider runs.
    searches = effective.provider.wire_api == "responses" and effective.web_search != "disabled"
    return ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=searches)


@router.request(MODEL_PROVIDER_CONFIG_WRITE)
async def model_provider_config_write(
    ctx: Context[ClientSession], params: ModelProviderConfigWriteParams
) -> ModelProviderConfigWriteResponse:
    """Add a provider to the user's configuration, or change one there."""
    patch = params.settings
    if not isinstance(patch, CustomGatewayProviderSettingsPatch):
        message = f"this server has no provider `{patch.provider_id}`: use a gateway to it"
        raise InvalidRequest(message, kind="unsupported", path="settings.providerId")
    configuration = ctx.session.server.configuration
    with answering_faults(ctx.session.server.configuration.home):
        id_ = await ctx.session.server.settings_workers.run(_write, configuration, patch)
    effective = await ctx.session.file_workers.run(configuration.lenient)
    return ModelProviderConfigWriteResponse(_summary(configuration, effective, id_))


def _required(effective: EffectiveConfig) -> str | None:
    """Return the provider that the administrator requires."""
    requirements = effective.requirements
    return None if requirements is None else requirements.model_provider


def _write(configuration: Configuration, patch: CustomGatewayProviderSettingsPatch) -> str:
    effective = configuration.lenient()
    own = _own_providers(effective)
    id_ = patch.provider_id
    if id_ is None:
        id_ = _new_id(patch, effective.providers)
    elif id_ in built_in(configuration.environ):
        _refuse(_BUILT_IN, "settings.providerId")
    elif id_ not in own:
        message = "Unknown provider ID."
        about = {"config_write_error_code": "configPathNotFound", "path": "settings.providerId"}
        raise InvalidRequest(message, kind="configPathNotFound", **about)
    values = _values(patch, is_new=patch.provider_id is None)
    name = id_.replace("\\", "\\\\").replace('"', '\\"')
    prefix = f'model_providers."{name}"'
    edits = [ConfigEdit(f"{prefix}.{key}", "replace", value) for key, value in values.items()]
    write_config(configuration, edits)
    return id_


def _values(patch: CustomGatewayProviderSettingsPatch, *, is_new: bool) -> dict[str, JsonValue]:
    values: dict[str, JsonValue] = {}
    if patch.base_url is not UNSET:
        if patch.base_url is not None and not _is_plain(patch.base_url):
            _refuse(_URL, "settings.baseUrl")
        values["base_url"] = patch.base_url
    elif is_new:
        _refuse(_URL, "settings.baseUrl")
    if patch.env_key is not UNSET:
        if patch.env_key is not None and _VARIABLE.fullmatch(patch.env_key) is None:
            _refuse(f"invalid name of a variable: {patch.env_key!r}", "settings.envKey")
        values["env_key"] = patch.env_key
    if patch.name is not UNSET:
        if not 0 < len(patch.name) <= MAX_NAME:
            _refuse(f"a name has 1 to {MAX_NAME} characters", "settings.name")
        values["name"] = patch.name
    if is_new:
        values["wire_api"] = "responses"
    return {key: value for key, value in values.items() if value is not None or not is_new}


def _new_id(patch: CustomGatewayProviderSettingsPatch, known: dict[str, ProviderConfig]) -> str:
    """Return an unused id that resembles the name."""
    name = patch.name if isinstance(patch.name, str) else ""
    base = _NOT_SLUG.sub("-", name[:MAX_NAME].lower()).strip("-") or "custom"
    candidates = (base, *(f"{base}-{number}" for number in range(2, len(known) + 3)))
    return next(each for each in candidates if each not in known)


def _is_plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.username or parts.password or parts.query or parts.fragment)
        )
    except ValueError:  # an invalid port or IPv6 address
        return False


def _refuse(message: str, path: str) -> NoReturn:
    raise WriteRefused("configValidationError", message, path)


def _own_providers(effective: EffectiveConfig) -> set[str]:
    """Return the ids that the user's own file configures."""
    return {name for layer in effective.layers if _is_users(layer) for name in _providers_in(layer)}


def _is_users(layer: Layer) -> bool:
    return isinstance(layer.source, UserConfigLayerSource)


def _providers_in(layer: Layer) -> list[str]:
    tables = layer.table.get("model_providers")
    return list(tables) if isinstance(tables, dict) else []


def _summary(
    configuration: Configuration, effective: EffectiveConfig, id_: str
) -> ModelProviderSummary:
    config = effective.providers[id_]
    is_built_in = id_ in built_in(configuration.environ)
    url = config.base_url
    settings = OpenaiProviderSettings() if id_ == "openai" else _settings(config)
    return ModelProviderSummary(
        can_edit=not is_built_in and id_ in _own_providers(effective),
        id=id_,
        name=config.name or id_,
        settings=settings,
        base_url=url if url and _is_plain(url) else None,
    )


def _settings(config: ProviderConfig) -> CustomGatewayProviderSettings:
    auth: GatewayAuth
    has_other = config.http_headers or config.env_http_headers or config.experimental_bearer_token
    if has_other or config.query_params:
        auth = ExternallyConfiguredGatewayAuth(config.env_key)
    elif config.env_key:
        auth = EnvironmentVariableGatewayAuth(config.env_key)
    else:
        auth = NoneGatewayAuth()
    return CustomGatewayProviderSettings(auth)
