"""Gives the engine its models: one per provider, made when it is first asked for."""

from __future__ import annotations

from treadle.engine.settings import Settings
from treadle.model.base import Model, ModelError
from treadle.model.provider import ProviderConfig, build_model, nobody
from treadle.model.retry import RetryPolicy
from treadle.server.config_file import ConfigError
from treadle.server.configuration.configuration import Configuration


class ConfiguredModels:
    """The providers of the configuration; one whose description changes is made anew."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._models: dict[tuple[str, str], tuple[ProviderConfig, Model]] = {}

    def model(self, settings: Settings) -> tuple[Model, RetryPolicy]:
        """The provider that these settings name.

        Raises:
            ModelError: there is none of this name, or its description is wrong.
        """
        provider_id = settings.model_provider
        try:
            config = self._find(settings)
        except ConfigError as error:
            raise ModelError(str(error), info="badRequest") from error
        key = (provider_id, repr(config))
        if key not in self._models:
            credentials = self._configuration.credentials
            login = credentials.login if config.requires_openai_auth else nobody
            environ = self._configuration.environ
            try:
                model = build_model(provider_id, config, environ=environ, credentials=login)
            except ValueError as error:
                raise ModelError(str(error), info="badRequest") from error
            self._models[key] = (config, model)
        return self._models[key][1], config.retry_policy()

    async def close(self) -> None:
        """Let go of all connections."""
        for _config, model in self._models.values():
            await model.close()
        self._models.clear()

    def _find(self, settings: Settings) -> ProviderConfig:
        effective = self._configuration.effective(settings.cwd, settings.config)
        config = effective.providers.get(settings.model_provider)
        if config is None:
            names = ", ".join(f"`{name}`" for name in effective.providers)
            raise ConfigError(
                f"model provider `{settings.model_provider}` not found, expected one of {names}"
            )
        return config
