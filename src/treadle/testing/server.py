"""A Treadle server in the test's own process, whose model plays a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from treadle.config.configuration import Configuration
from treadle.engine.settings import RunSettings
from treadle.model.base import Model, ModelRequest
from treadle.model.retry import RetryPolicy
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import ScriptLike
from treadle.server.server import Server
from treadle.server.sources.models import ConfiguredModels
from treadle.support.clock import NowMs, now_ms
from treadle.testing.environment import environment, furnish
from treadle.transport.base import Transport


class TreadleServer:
    """A complete server that clients accept, as in `AsyncClient(server)`."""

    def __init__(self, server: Server, home: Path, model: ScriptedModel) -> None:
        self.server = server
        self.home = home
        self._model = model

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests to the scripted model, in order."""
        return list(self._model.requests)

    async def attach(self, transport: Transport) -> None:
        """Serve one client until it disconnects."""
        await self.server.attach(transport)


@asynccontextmanager
async def treadle_server(
    script: ScriptLike | None = None,
    *,
    config: str = "",
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
    clock: NowMs = now_ms,
) -> AsyncIterator[TreadleServer]:
    """Run a server until the block ends. The home defaults to a temporary folder.

    Without a script the model plays its demonstration. `config` is the text of a config.toml; the
    providers that it describes are used as they are, the script is played for all others. Their
    keys are read from `env` only, not from this process's environment.
    """
    with ExitStack() as stack:
        if home is None:
            home = Path(stack.enter_context(TemporaryDirectory(prefix="treadle-")))
        furnish(home, config)
        configuration = Configuration(
            home, environ=environment(home, env), system=home / "system-wide-configuration"
        )
        model = ScriptedModel(script)

        def in_use() -> Collection[Model]:
            return server.threads.models_in_use()

        models = _Models(model, configuration, in_use=in_use)
        server = Server(configuration=configuration, models=models, clock=clock)
        try:
            yield TreadleServer(server, home, model)
        finally:
            await server.close()


class _Models(ConfiguredModels):
    """The scripted model, unless the configuration describes the provider."""

    def __init__(
        self,
        scripted: ScriptedModel,
        configuration: Configuration,
        *,
        in_use: Callable[[], Collection[Model]],
    ) -> None:
        super().__init__(configuration, in_use=in_use)
        self._scripted = scripted
        self._described = configuration.lenient().as_set.model_providers

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model for these settings."""
        if settings.model_provider in self._described:
            return super().model(settings)
        return self._scripted, RetryPolicy()
