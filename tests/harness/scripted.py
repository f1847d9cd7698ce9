"""Servers with a scripted model, in this process or in a separate one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from tests.harness.peer import Peer
from tests.harness.sandbox import SANDBOX
from tests.harness.threads import Client
from treadle.config.configuration import Configuration
from treadle.engine.settings import RunSettings
from treadle.model.base import Model, ModelEvent, ModelRequest
from treadle.model.retry import RetryPolicy
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import ScriptLike
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.transport.base import Transport
from treadle.transport.memory import memory_pair

SECONDS = 50


class OneModel:
    """Every provider is this model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def model(self, _settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """The model, whatever the settings say."""
        return self._model, RetryPolicy()

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class PacedModel(ScriptedModel):
    """Plays its script event by event, each when its time has come."""

    def __init__(self, script: ScriptLike, pace: Callable[[ModelEvent], Awaitable[None]]) -> None:
        super().__init__(script)
        self._pace = pace

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play the next response."""
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                await self._pace(event)
                yield event


def scripted_server(home: Path, script: ScriptLike | ScriptedModel) -> Server:
    """A server in this process; the caller closes it."""
    if not isinstance(script, ScriptedModel):
        script = ScriptedModel(script, keep_requests=0)
    return Server(sandbox=SANDBOX, configuration=Configuration(home), models=OneModel(script))


@asynccontextmanager
async def playing(home: Path, script: ScriptLike | ScriptedModel) -> AsyncIterator[Server]:
    """A server in this process, until the block ends."""
    server = scripted_server(home, script)
    try:
        async with asyncio.timeout(SECONDS):
            yield server
    finally:
        await server.close()


@asynccontextmanager
async def client_of(server: Server, **capabilities: JsonValue) -> AsyncIterator[Client]:
    """A client in this process, after the handshake."""
    ours, theirs = memory_pair()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.attach(theirs), name="server side")
        client = Client(Peer(ours))
        await client.initialize(**capabilities)
        try:
            yield client
        finally:
            await ours.close()


@asynccontextmanager
async def over(transport: Transport, **capabilities: JsonValue) -> AsyncIterator[Client]:
    """A client over this transport, after the handshake."""
    try:
        client = Client(Peer(transport))
        await client.initialize(**capabilities)
        yield client
    finally:
        await transport.close()


def write_script(path: Path, responses: Sequence[JsonValue], then: str = "fail") -> Path:
    """Write a script for a server in its own process."""
    path.write_text(json.dumps({"responses": responses, "then": then}), "utf-8")
    return path
