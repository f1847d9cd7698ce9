"""Which provider and model are used when the configuration leaves it open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treadle.config.credentials import CredentialStore
from treadle.config.file import ConfigError
from treadle.config.settings import ConfigValues
from treadle.model.catalog import SCRIPTED_MODEL, list_models
from treadle.model.provider import ProviderConfig, load_providers

# What upstream asks of the local servers, which list only what was installed in them.
_LOCAL: Final = {"ollama": "gpt-oss:20b", "lmstudio": "openai/gpt-oss-20b"}


def read_providers(settings: ConfigValues, environ: Mapping[str, str]) -> dict[str, ProviderConfig]:
    """The built-in providers under those of the configuration.

    Raises:
        ConfigError: a table does not describe a provider.
    """
    try:
        return load_providers(
            settings.model_providers, environ, openai_base_url=settings.openai_base_url
        )
    except ValueError as error:
        raise ConfigError(str(error), key="model_providers") from error


def choose_provider(
    settings: ConfigValues, known: Mapping[str, ProviderConfig], credentials: CredentialStore
) -> str:
    """Take the configured provider, or else the one whose key is at hand.

    Raises:
        ConfigError: there is no such provider.
    """
    chosen = settings.model_provider
    if chosen is not None:
        if chosen not in known:
            # Worded as upstream does: its clients show this text.
            message = f"Model provider `{chosen}` not found"
            raise ConfigError(message, key="model_provider")
        return chosen
    if credentials.api_key is not None:
        return "openai"
    if credentials.has_variable("ANTHROPIC_API_KEY"):
        return "anthropic"
    # Whoever names a model wants that model; the demonstration is for those who set nothing.
    return "scripted" if settings.model in (None, SCRIPTED_MODEL) else "openai"


def choose_model(settings: ConfigValues, provider: str) -> str:
    """Take the configured model, or else the one that the catalog prefers for the provider."""
    if settings.model is not None:
        return settings.model
    if provider in _LOCAL:
        return _LOCAL[provider]
    return next(model.model for model in list_models(provider) if model.is_default)
