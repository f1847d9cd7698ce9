"""A thread whose model makes one call, on a server in its own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness.model_server import ModelServer, Reply, model_server
from tests.harness.processes import TREADLE
from tests.harness.threads import EPILOGUE, Client, configure, outline, params_of, spawned
from treadle.protocol.base import JsonValue

WRITES: JsonValue = {"sandbox": "workspace-write", "approvalPolicy": "never"}


@dataclass(slots=True)
class Scene:
    """A thread on a server in its own process, with its model and folder."""

    model: ModelServer
    client: Client
    thread_id: str
    work: Path

    async def play(self, reply: Reply) -> tuple[list[JsonValue], JsonValue]:
        """Let the model make a call; return the messages and the output that the model received."""
        self.model.plays(reply)
        return await self.finish(await self.client.start_turn(self.thread_id))

    async def finish(self, turn_id: str) -> tuple[list[JsonValue], JsonValue]:
        """Wait for the end of the turn, which must succeed."""
        messages = await self.client.end_of(turn_id)
        assert outline(messages)[-2:] == EPILOGUE
        return messages, self.model.requests[-1].outputs()["call-1"]

    async def goes_on(self) -> None:
        """Assert that the thread still works, and that the model knows what happened."""
        messages = await self.client.run(self.thread_id, "and now?")
        assert outline(messages)[-2:] == EPILOGUE
        assert "call-1" in self.model.requests[-1].outputs()


@asynccontextmanager
async def acting(home: Path, more: str = "", **params: JsonValue) -> AsyncIterator[Scene]:
    """Set up a scene."""
    work = home.parent / "work"
    work.mkdir()
    async with model_server() as model:
        configure(home, model, more)
        async with spawned([TREADLE, "app-server"], home) as client:
            thread_id = await client.start(cwd=str(work), **params)
            yield Scene(model, client, thread_id, work)


def is_there(path: str) -> bool:
    """Whether a file exists at this path."""
    return Path(path).exists()


def only(messages: list[JsonValue], kind: str) -> JsonValue:
    """The one item of a kind that was completed."""
    items = (params["item"] for params in params_of(messages, "item/completed"))
    (item,) = [item for item in items if item["type"] == kind]
    return item
