"""A Treadle server in the test's own process, whose model plays a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
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
    """A whole server: clients take it as their server, as in `AsyncClient(server)`."""

    def __init__(self, server: Server, home: Path, model: ScriptedModel) -> None:
        self.server = server
        self.home = home
        self._model = model

    @property
    def requests(self) -> list[ModelRequest]:
        """What the scripted model was asked, in order."""
        return list(self._model.requests)

    async def attach(self, transport: Transport) -> None:
        """Converse with one client until it hangs up."""
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
    """Run a server until the block ends; without a home it gets one that goes with it.

    Without a script the model gives its demonstration. `config` is the text of a config.toml; the
    providers that it describes answer for themselves, the script is played for all others. `env` is
    what their keys are looked for in: nothing of this process's environment is.
    """
    with ExitStack() as stack:
        if home is None:
            home = Path(stack.enter_context(TemporaryDirectory(prefix="treadle-")))
        furnish(home, config)
        configuration = Configuration(
            home, environ=environment(home, env), system=home / "system-wide-configuration"
        )
        model = ScriptedModel(script)
        models = _Models(model, configuration)
        server = Server(configuration=configuration, models=models, clock=clock)
        try:
            yield TreadleServer(server, home, model)
        finally:
            await server.close()


class _Models(ConfiguredModels):
    """The scripted model, unless the configuration describes the provider."""

    def __init__(self, scripted: ScriptedModel, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._scripted = scripted
        self._described = configuration.lenient().as_set.model_providers

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """The model that answers under these settings."""
        if settings.model_provider in self._described:
            return super().model(settings)
        return self._scripted, RetryPolicy()
