"""A realtime service on the loopback: keeps what it receives, and sends what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import WSMsgType, web

from treadle.protocol.base import JsonValue

ACCEPTED: JsonValue = {"type": "session.updated", "session": {"id": "sess-1"}}


class RealtimeService:
    """One session after the other; a test reads `received` and calls `send`."""

    def __init__(self) -> None:
        self.url = ""
        self.accepts: Callable[[], bool] = lambda: True
        self.status = 101
        self.targets: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.received: list[JsonValue] = []
        self.closed = 0
        self._socket: web.WebSocketResponse | None = None
        self._changed = asyncio.Condition()

    async def send(self, *events: JsonValue | str) -> None:
        """Send events; a text is sent as it is."""
        assert self._socket is not None
        for event in events:
            text = event if isinstance(event, str) else json.dumps(event)
            await self._socket.send_str(text)

    async def cut(self) -> None:
        """Close the connection."""
        assert self._socket is not None
        await self._socket.close()

    async def wait_for(self, number: int) -> list[JsonValue]:
        """Wait until this many messages have arrived, and return them."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= number)
        return self.received

    async def wait_closed(self, number: int = 1) -> None:
        """Wait until this many sessions have ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.closed >= number)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one session."""
        self.targets.append(request.path_qs)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.status != 101:
            raise web.HTTPUnauthorized(text=f"bad key {request.headers.get('authorization')}")
        socket = self._socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type != WSMsgType.TEXT:
                continue
            document = json.loads(message.data)
            if document["type"] == "session.update" and self.accepts():
                await self.send(ACCEPTED)
            async with self._changed:
                self.received.append(document)
                self._changed.notify_all()
        async with self._changed:
            self.closed += 1
            self._changed.notify_all()
        return socket


@asynccontextmanager
async def realtime_service() -> AsyncIterator[RealtimeService]:
    """Run a service."""
    service = RealtimeService()
    app = web.Application()
    app.router.add_get("/{path:.*}", service.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    service.url = f"ws://{host}:{port}"
    try:
        yield service
    finally:
        await runner.cleanup()
