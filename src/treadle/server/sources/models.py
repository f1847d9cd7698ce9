"""Creates the configured models: one per provider, on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.engine.settings import RunSettings
from treadle.model.base import Model, ModelError
from treadle.model.provider import ProviderConfig, build_model, no_credentials
from treadle.model.retry import RetryPolicy
from treadle.support.concurrency.tasks import BackgroundTasks

MAX_KEPT: Final = 32
"""The number of models that stay open: requests may configure any number of providers."""


class ConfiguredModels:
    """The models of the configured providers.

    A model is created again when the configuration of its provider changes. The least recently used
    ones are closed; `in_use` returns those that must stay open.
    """

    def __init__(
        self, configuration: Configuration, *, in_use: Callable[[], Collection[Model]] = tuple
    ) -> None:
        self._configuration = configuration
        self._in_use = in_use
        # The most recently used one is last.
        self._models: dict[tuple[str, str], Model] = {}
        self._closing: list[Model] = []
        self._tasks = BackgroundTasks()

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model that these settings name, and its retry policy.

        Raises:
            ModelError: the provider is not configured, or its configuration is invalid.
        """
        provider_id = settings.model_provider
        try:
            config = self._find(settings)
        except ConfigError as error:
            raise ModelError(str(error), info="badRequest") from error
        key = (provider_id, repr(config))
        model = self._models.pop(key, None)
        if model is None:
            model = self._build(provider_id, config)
            self._trim()
        self._models[key] = model
        return model, config.retry_policy()

    async def close(self) -> None:
        """Close all connections."""
        await self._tasks.close()
        for model in [*self._models.values(), *self._closing]:
            await model.close()
        self._models.clear()
        self._closing.clear()

    def _build(self, provider_id: str, config: ProviderConfig) -> Model:
        credentials = self._configuration.credentials
        login = credentials.login if config.requires_openai_auth else no_credentials
        environ = self._configuration.environ
        try:
            return build_model(provider_id, config, environ=environ, credentials=login)
        except ValueError as error:
            raise ModelError(str(error), info="badRequest") from error

    def _trim(self) -> None:
        """Make room for one more model."""
        if len(self._models) < MAX_KEPT or self._tasks.is_closed:
            return
        used = {id(model) for model in self._in_use()}
        idle = [key for key, model in self._models.items() if id(model) not in used]
        for key in idle[: len(self._models) - MAX_KEPT + 1]:
            model = self._models.pop(key)
            self._closing.append(model)
            self._tasks.spawn(self._close_model(model), f"close {model.provider_id}")

    async def _close_model(self, model: Model) -> None:
        await model.close()
        self._closing.remove(model)

    def _find(self, settings: RunSettings) -> ProviderConfig:
        effective = self._configuration.effective(settings.cwd, settings.config)
        config = effective.endpoint(settings.model_provider)
        if config is None:
            names = ", ".join(f"`{name}`" for name in effective.providers)
            raise ConfigError(
                f"model provider `{settings.model_provider}` not found, expected one of {names}"
            )
        return config
