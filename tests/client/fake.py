"""A server for tests of the client: it plays a scenario over any transport, and records it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, Unpack

from treadle.client.async_client import AsyncClient
from treadle.client.connectors import Where
from treadle.client.options import ClientOptions
from treadle.protocol.base import JsonValue
from treadle.testing import FakeAppServer, FakeConnection

TRANSPORTS = ("subprocess", "websocket", "unix", "memory")
SECONDS = 30
ROOT = Path(__file__).parents[2]
THREAD, TURN = "thr-1", "turn-1"

Play: TypeAlias = Callable[["Actor", JsonValue], Awaitable[None]]
Scenario: TypeAlias = Mapping[str, Play]


class Actor:
    """The server's side of one connection: what a scenario answers the client with."""

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection
        self.counts: Counter[str] = Counter()
        self.send = connection.send
        self.send_raw = connection.send_raw
        self.refuse = connection.refuse
        self.hang_up = connection.hang_up
        self.exit = connection.exit

    async def answer(self, request: JsonValue, result: JsonValue) -> None:
        """Answer a request."""
        await self.send({"id": request["id"], "result": result})

    async def notify(self, method: str, **params: JsonValue) -> None:
        """Send a notification about the turn."""
        ids = {"threadId": THREAD, "turnId": TURN}
        await self.send({"method": method, "params": {**ids, **params}})

    async def put(self, id_: str | int, method: str, **params: JsonValue) -> JsonValue:
        """Send the client a request, and wait for its answer."""
        ids = {"threadId": THREAD, "turnId": TURN, "itemId": "item-1", "startedAtMs": 1}
        return await self._connection.ask(method, {**ids, **params}, id_=id_)


class Fake(FakeAppServer):
    """Answers as an app-server does, except where the scenario differs."""

    def __init__(self, scenario: Scenario, log_path: Path) -> None:
        super().__init__()
        self.messages = _Written(log_path)
        self._actors: dict[int, Actor] = {}
        for method, play in {**USUAL, **scenario}.items():
            self.on(method, partial(self._act, play))

    async def _act(self, play: Play, connection: FakeConnection, message: JsonValue) -> None:
        actor = self._actors.setdefault(connection.number, Actor(connection))
        await play(actor, message)


class _Written(list[JsonValue]):
    """Messages that are also written to a file, for readers in another process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        path.touch()

    def append(self, message: JsonValue) -> None:
        super().append(message)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")


# -- defaults of every scenario

INFO: JsonValue = {
    "userAgent": "fake/0.1",
    "codexHome": "/home/fake",
    "platformFamily": "unix",
    "platformOs": "linux",
}
THREAD_INFO: JsonValue = {
    "id": THREAD,
    "sessionId": THREAD,
    "preview": "",
    "ephemeral": False,
    "modelProvider": "fake",
    "createdAt": 1,
    "updatedAt": 1,
    "status": {"type": "idle"},
    "cwd": "/work",
    "cliVersion": "0.0.1",
    "source": "vscode",
    "projectId": None,
    "turns": [],
}
SESSION: JsonValue = {
    "thread": THREAD_INFO,
    "model": "m",
    "modelProvider": "fake",
    "cwd": "/work",
    "approvalPolicy": "never",
    "approvalsReviewer": "user",
    "sandbox": {"type": "readOnly"},
}


def turn(status: str = "inProgress", **more: JsonValue) -> JsonValue:
    """Return the turn as the server shows it."""
    return {"id": TURN, "items": [], "status": status, **more}


def message_item(text: str, id_: str = "item-1", **more: JsonValue) -> JsonValue:
    """Return a message of the agent."""
    return {"type": "agentMessage", "id": id_, "text": text, **more}


def answers(result: JsonValue) -> Play:
    """Return a play that answers with this result."""

    async def play(actor: Actor, request: JsonValue) -> None:
        await actor.answer(request, result)

    return play


async def _silence(actor: Actor, request: JsonValue) -> None:
    """Do not answer."""


async def start_turn(actor: Actor, request: JsonValue) -> None:
    """Play a whole turn with every kind of event that a result is made of."""
    await actor.answer(request, {"turn": turn()})
    await actor.notify("turn/started", turn=turn())
    await actor.notify("item/started", item=message_item(""), startedAtMs=1)
    await actor.notify("item/agentMessage/delta", itemId="item-1", delta="Hel")
    await actor.notify("item/agentMessage/delta", itemId="item-1", delta="lo")
    await actor.notify("item/completed", item=message_item("Hello"), completedAtMs=2)
    await actor.notify("turn/diff/updated", diff="--- a\n+++ b\n")
    plan = [{"step": "look", "status": "completed"}]
    await actor.notify("turn/plan/updated", plan=plan)
    await actor.notify("thread/tokenUsage/updated", tokenUsage={"last": USAGE, "total": USAGE})
    await actor.notify("turn/completed", turn=turn("completed"))


USAGE: JsonValue = {
    "cachedInputTokens": 0,
    "inputTokens": 3,
    "outputTokens": 2,
    "reasoningOutputTokens": 0,
    "totalTokens": 5,
}
USUAL: Scenario = {
    "initialize": answers(INFO),
    "initialized": _silence,
    "thread/start": answers(SESSION),
    "thread/resume": answers(SESSION),
    "thread/read": answers({"thread": THREAD_INFO}),
    "turn/start": start_turn,
    "turn/steer": answers({"turnId": TURN}),
    "turn/interrupt": answers({}),
    "model/list": answers({"data": [], "nextCursor": None}),
}


# -- connecting to it


class ServerLog:
    """The messages that the server received."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[JsonValue]:
        """Return every message, in order."""
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def calls(self, method: str) -> list[JsonValue]:
        """Return the params of each request or notification of a method."""
        return [each.get("params") for each in self.all() if each.get("method") == method]

    def answers(self) -> dict[JsonValue, JsonValue]:
        """Return the client's results and errors, by id."""
        replies = [each for each in self.all() if "method" not in each]
        return {each["id"]: each.get("result", each.get("error")) for each in replies}


@asynccontextmanager
async def reach(
    kind: str, folder: Path, name: str, **options: Unpack[ClientOptions]
) -> AsyncIterator[tuple[AsyncClient, ServerLog]]:
    """Yield a client that is not connected yet, and the messages that its server receives."""
    path = folder / "heard"
    fake = Fake(SCENARIOS[name], path)
    async with asyncio.timeout(SECONDS), serving(kind, fake) as where:
        yield AsyncClient(where, **options), ServerLog(path)


@asynccontextmanager
async def serving(kind: str, fake: Fake) -> AsyncIterator[Where]:
    """Yield what a client needs to connect to it."""
    match kind:
        case "memory":
            yield fake
        case "subprocess":
            async with fake.command() as command:
                yield command
        case "websocket":
            async with fake.websocket() as url:
                yield url
        case _:
            async with fake.unix() as path:
                yield path


SCENARIOS: dict[str, Scenario] = {"usual": {}}


def scenario(name: str) -> Callable[[Play], Play]:
    """Register a function that plays `turn/start` under a name."""

    def register(play: Play) -> Play:
        SCENARIOS[name] = {"turn/start": play}
        return play

    return register
