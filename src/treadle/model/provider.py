"""Providers: their configuration in `[model_providers.X]`, the built-in ones, and their models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from treadle.model.base import Model
from treadle.model.retry import RetryPolicy

WireApi: TypeAlias = Literal["responses", "chat", "anthropic", "scripted"]

SCRIPT_VARIABLE: Final = "TREADLE_SCRIPT"
REQUESTS_VARIABLE: Final = "TREADLE_SCRIPT_REQUESTS"
"""Names a file to which scripted models append their requests, for tests."""


class ProviderConfig(Struct, frozen=True, omit_defaults=True):
    """A provider as config.toml describes it; unknown keys are ignored."""

    name: str = ""
    base_url: str | None = None
    env_key: str | None = None
    env_key_instructions: str | None = None
    experimental_bearer_token: str | None = None
    http_headers: dict[str, str] = {}
    # Header names to names of environment variables.
    env_http_headers: dict[str, str] = {}
    query_params: dict[str, str] = {}
    wire_api: WireApi = "responses"
    request_max_retries: int = 4
    stream_max_retries: int = 5
    # How long the stream may be silent; pings, comments and blank lines end the silence.
    stream_idle_timeout_ms: int = 300_000
    # How long nothing but keep-alives may arrive.
    stream_keep_alive_timeout_ms: int = 1_800_000
    requires_openai_auth: bool = False
    connect_timeout_ms: int = 10_000
    first_byte_timeout_ms: int = 300_000
    total_timeout_ms: int | None = None
    # A path or the JSON of a script, for `wire_api = "scripted"`.
    script: str | None = None

    def retry_policy(self) -> RetryPolicy:
        """How often requests to this provider are retried."""
        return RetryPolicy(
            request_max_retries=max(0, self.request_max_retries),
            stream_max_retries=max(0, self.stream_max_retries),
        )


OPENAI_API: Final = "https://api.openai.com/v1"


class Bearer(Struct, frozen=True):
    """The result of a login: a token, and its account if there are several."""

    token: str
    account_id: str | None = None
    is_fedramp: bool = False
    # Takes the place of OpenAI's own address.
    base_url: str | None = None

    def __repr__(self) -> str:
        return "Bearer(...)"


class CredentialsRejected(Exception):
    """A login is no longer accepted and could not be renewed; the message is for the user."""

    def __init__(self, message: str, *, is_final: bool = False, is_retryable: bool = False) -> None:
        super().__init__(message)
        # Whether only the user can help, by another login.
        self.is_final = is_final
        # Whether the service that renews it may succeed later.
        self.is_retryable = is_retryable


class CredentialSource(Protocol):
    """Returns the current login; called for each request because tokens expire."""

    async def __call__(self, rejected: Bearer | None = None) -> Bearer | None:
        """Return the token to send, or None without a login.

        With a login that the provider has rejected, return another one, or None.

        Raises:
            CredentialsRejected: there is none, and the user should learn why.
        """


async def no_credentials(rejected: Bearer | None = None) -> Bearer | None:  # noqa: ARG001 - as the sources have it
    """Return no credentials, for use without a login."""
    return None


def built_in(environ: Mapping[str, str]) -> dict[str, ProviderConfig]:
    """Return the providers that need no configuration, with addresses from the environment."""
    return {
        "openai": ProviderConfig(
            name="OpenAI",
            base_url=environ.get("OPENAI_BASE_URL") or OPENAI_API,
            env_key="OPENAI_API_KEY",
            env_key_instructions="or log in",
            requires_openai_auth=True,
        ),
        "anthropic": ProviderConfig(
            name="Anthropic",
            base_url=environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com",
            env_key="ANTHROPIC_API_KEY",
            wire_api="anthropic",
        ),
        "ollama": _local("Ollama", 11434, environ),
        "lmstudio": _local("LM Studio", 1234, environ),
        "scripted": ProviderConfig(name="Scripted demonstration", wire_api="scripted"),
    }


def _local(name: str, port: int, environ: Mapping[str, str]) -> ProviderConfig:
    port_text = environ.get("CODEX_OSS_PORT") or str(port)
    return ProviderConfig(
        name=name,
        base_url=environ.get("CODEX_OSS_BASE_URL") or f"http://localhost:{port_text}/v1",
        wire_api="chat",
    )


def load_providers(
    configured: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    openai_base_url: str | None = None,
) -> dict[str, ProviderConfig]:
    """Return the built-in providers and those of config.toml, which may override built-in ones.

    Raises:
        ValueError: a table of the configuration is not a valid provider.
    """
    providers = built_in(environ)
    if openai_base_url:
        providers["openai"] = msgspec.structs.replace(providers["openai"], base_url=openai_base_url)
    for id_, table in configured.items():
        known = msgspec.to_builtins(providers[id_]) if id_ in providers else {}
        merged = {**known, **table} if isinstance(table, dict) else table
        try:
            providers[id_] = msgspec.convert(merged, ProviderConfig)
        except msgspec.ValidationError as error:
            raise ValueError(f"model_providers.{id_}: {error}") from error
    return providers


def build_model(
    provider_id: str,
    config: ProviderConfig,
    *,
    environ: Mapping[str, str],
    credentials: CredentialSource = no_credentials,
) -> Model:
    """Create the model of a provider; it connects with its first request.

    Raises:
        ValueError: the configuration has no address, or a script that cannot be read.
    """
    # Each adapter is imported when the first provider of its kind is used.
    if config.wire_api == "scripted":
        return _build_scripted(provider_id, config, environ)
    from treadle.model.http.client import ProviderEndpoint

    if not config.base_url:
        raise ValueError(f"model_providers.{provider_id}: base_url is missing")
    endpoint = ProviderEndpoint(provider_id, config, environ=environ, credentials=credentials)
    if config.wire_api == "chat":
        from treadle.model.chat.request import ChatModel

        return ChatModel(endpoint)
    if config.wire_api == "anthropic":
        from treadle.model.anthropic.request import AnthropicModel

        return AnthropicModel(endpoint)
    from treadle.model.responses.request import ResponsesModel

    return ResponsesModel(endpoint)


def _build_scripted(provider_id: str, config: ProviderConfig, environ: Mapping[str, str]) -> Model:
    from treadle.model.scripted.model import ScriptedModel, load_script

    source = config.script or environ.get(SCRIPT_VARIABLE)
    script = load_script(source) if source else None
    requests = environ.get(REQUESTS_VARIABLE)
    return ScriptedModel(
        script,
        provider_id=provider_id,
        keep_requests=0,
        requests_file=Path(requests) if requests else None,
    )
