"""A server whose account services are on the loopback, and clients of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.harness.account_service import AccountService
from tests.harness.lines import in_memory
from tests.harness.sandbox import SANDBOX
from tests.harness.threads import Client
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

CHATGPT: JsonValue = {"type": "chatgpt", "email": "user@example.com", "planType": "pro"}


class Ground:
    """A home, the services, and the servers that a test starts."""

    def __init__(self, home: Path, service: AccountService, stack: AsyncExitStack) -> None:
        self.home = home
        self.service = service
        self._stack = stack
        self.environ = dict(service.environ)
        self.configure()

    @property
    def file(self) -> Path:
        """The stored login."""
        return self.home / "auth.json"

    def configure(self, more: str = "") -> None:
        """Replace the configuration; keys come before the tables of the service."""
        (self.home / "config.toml").write_text(more + self.service.config, "utf-8")

    def store(self, document: JsonValue) -> None:
        """Store a login, as another program does."""
        self.file.write_text(json.dumps(document), "utf-8")

    def stored(self) -> JsonValue:
        """Return the stored login."""
        return json.loads(self.file.read_text("utf-8"))

    async def server(self) -> Server:
        """Start a server, which ends with the test."""
        system = self.home.parent / "system"
        server = Server(
            sandbox=SANDBOX,
            configuration=Configuration(self.home, environ=self.environ, system=system),
        )
        self._stack.push_async_callback(server.close)
        return server

    async def client(self, server: Server | None = None) -> Client:
        """Connect a client, by default of a new server."""
        target = server or await self.server()
        client = Client(await self._stack.enter_async_context(in_memory(target)))
        await client.initialize()
        return client


@asynccontextmanager
async def ground_of(home: Path, service: AccountService) -> AsyncIterator[Ground]:
    """Return a ground; at its end, clients and servers are closed."""
    async with AsyncExitStack() as stack:
        yield Ground(home, service, stack)


async def answer_of(client: Client, text: str = "hi") -> JsonValue:
    """Run a turn in a new thread; return the turn."""
    thread_id = await client.start()
    return (await client.run(thread_id, text))[-1]["params"]["turn"]


def bearers(service: AccountService) -> list[str]:
    """Return the tokens of the requests to the model."""
    return [
        each.headers.get("authorization", "").removeprefix("Bearer ")
        for each in service.of_path("/v1/responses")
    ]
