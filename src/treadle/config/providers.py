"""Chooses the provider and the model where the configuration sets none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treadle.accounts.credentials import CredentialStore
from treadle.config.file import ConfigError
from treadle.config.settings import ConfigValues
from treadle.model.catalog import SCRIPTED_MODEL, list_models
from treadle.model.provider import ProviderConfig, load_providers

# Upstream's default models of the local servers, which list only installed models.
_LOCAL: Final = {"ollama": "gpt-oss:20b", "lmstudio": "openai/gpt-oss-20b"}


def read_providers(settings: ConfigValues, environ: Mapping[str, str]) -> dict[str, ProviderConfig]:
    """Return the built-in providers, overridden and extended by the configuration.

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
    """Return the configured provider, or the one that has a login.

    Raises:
        ConfigError: the configured provider does not exist.
    """
    chosen = settings.model_provider
    if chosen is not None:
        if chosen not in known:
            # Upstream's text: its clients show it.
            message = f"Model provider `{chosen}` not found"
            raise ConfigError(message, key="model_provider")
        return chosen
    if credentials.auth_mode is not None:
        return "openai"
    if credentials.has_variable("ANTHROPIC_API_KEY"):
        return "anthropic"
    # A configured model is meant for OpenAI; the demonstration is for an empty configuration.
    return "scripted" if settings.model in (None, SCRIPTED_MODEL) else "openai"


def choose_model(settings: ConfigValues, provider: str) -> str:
    """Return the configured model, or the provider's default model in the catalog."""
    if settings.model is not None:
        return settings.model
    if provider in _LOCAL:
        return _LOCAL[provider]
    return next(model.model for model in list_models(provider) if model.is_default)
