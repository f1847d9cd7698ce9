"""A server with three threads that have a turn each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness.model_server import says
from tests.harness.threads import Client, Stage, staged
from treadle.protocol.base import JsonValue


@dataclass
class Ground:
    """The server, a client and the ids of the threads."""

    stage: Stage
    client: Client
    threads: list[str]

    async def request(self, method: str, **params: JsonValue) -> JsonValue:
        """Make a request."""
        return await self.client.request(method, params)

    async def listed(self, **params: JsonValue) -> list[int]:
        """Return the numbers of the threads that a list contains, in order."""
        answer = await self.client.request("thread/list", params)
        return [self.threads.index(each["id"]) for each in answer["data"]]

    async def refused(self, method: str, **params: JsonValue) -> tuple[int, str]:
        """Make a request that must be refused; return the code and the message."""
        refused = await self.client.refusal(method, params)
        return refused.code, refused.message

    async def restart(self) -> None:
        """Start another server on the same home."""
        await self.stage.restart()
        self.client = await self.stage.client(experimentalApi=True)


@asynccontextmanager
async def ground(folder: Path) -> AsyncIterator[Ground]:
    """Set up the server."""
    async with staged(folder / "home") as stage:
        client = await stage.client(experimentalApi=True)
        threads: list[str] = []
        for number in range(3):
            stage.model.plays(says(f"answer {number}"))
            thread_id = await client.start(cwd=str(stage.workspace))
            await client.run(thread_id, f"hello {number}")
            threads.append(thread_id)
        client.unread.clear()
        yield Ground(stage, client, threads)
