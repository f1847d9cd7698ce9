"""An HTTP server on the loopback that replaces a model provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from aiohttp.web import Request, StreamResponse

P = TypeVar("P", bound="Provider")

Wire: TypeAlias = Literal["responses", "chat", "anthropic"]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request as it arrived; header names are in lower case."""

    method: str
    # With its query, below the base URL.
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> JsonValue:
        """The body as JSON; `None` if it is empty."""
        return json.loads(self.body) if self.body else None


Respond: TypeAlias = Callable[["Request", ProviderRequest], Awaitable["StreamResponse"]]


class Provider:
    """Answers in a provider's place, and keeps the requests."""

    def __init__(self, respond: Respond) -> None:
        self.base_url = ""
        """The URL to use in place of the provider's base URL."""
        self.respond = respond
        self.requests: list[ProviderRequest] = []
        self._arrived = asyncio.Condition()

    async def asked(self, number: int = 1) -> ProviderRequest:
        """Wait for the request of this number, counted from one."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def handle(self, request: Request) -> StreamResponse:
        """Store a request, notify waiters, and answer."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = ProviderRequest(request.method, request.path_qs, headers, await request.read())
        async with self._arrived:
            self.requests.append(received)
            self._arrived.notify_all()
        return await self.respond(request, received)

    def config(self, wire: Wire = "responses", **settings: str | int | bool) -> str:
        """Return a config.toml for a server that uses this provider with these `settings`.

        Retries are off: tests of retries set `request_max_retries` and `stream_max_retries`.
        """
        values: dict[str, str | int | bool] = {
            "name": "Test",
            "base_url": self.base_url,
            "wire_api": wire,
            "request_max_retries": 0,
            "stream_max_retries": 0,
            **settings,
        }
        # JSON strings, numbers and booleans are also valid TOML.
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        head = ['model = "test-model"', 'model_provider = "test"', "[model_providers.test]"]
        return "\n".join([*head, *lines, ""])


@asynccontextmanager
async def serve(provider: P) -> AsyncIterator[P]:
    """Run a provider on a free port of the loopback until the block ends."""
    try:
        from aiohttp import web
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the model servers of treadle.testing need aiohttp: pip install 'treadle[testing]'",
            name=error.name,
        ) from error

    application = web.Application(client_max_size=0)
    application.router.add_route("*", "/{path:.*}", provider.handle)
    # Some answers never end: they are cut off at the end of the block.
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0.01
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        provider.base_url = f"http://{host}:{port}"
        yield provider
    finally:
        await runner.cleanup()
