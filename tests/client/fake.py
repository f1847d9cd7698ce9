"""A server for tests of the client: it plays a scenario over any transport, and keeps a record."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, Unpack

from tests.harness.peer import HungUp, Peer
from treadle.client.async_client import AsyncClient
from treadle.client.options import ClientOptions
from treadle.protocol.base import JsonValue
from treadle.transport.base import Listener, Transport
from treadle.transport.unix import UnixListener
from treadle.transport.websocket import WebSocketListener

TRANSPORTS = ("subprocess", "websocket", "unix", "memory")
SECONDS = 30
ROOT = Path(__file__).parents[2]
THREAD, TURN = "thr-1", "turn-1"

Play: TypeAlias = Callable[["Actor", JsonValue], Awaitable[None]]
Scenario: TypeAlias = Mapping[str, Play]


class Actor(Peer):
    """One client at the other end."""

    def __init__(self, transport: Transport, heard: Path) -> None:
        super().__init__(transport)
        self._heard = heard
        self.answers: dict[JsonValue, asyncio.Future[JsonValue]] = {}
        self.counts: Counter[str] = Counter()

    async def hear(self) -> JsonValue:
        """The next message; whatever it is, it is written down."""
        message = await self.receive()
        with self._heard.open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
        return message

    async def answer(self, request: JsonValue, result: JsonValue) -> None:
        """Answer a request."""
        await self.send({"id": request["id"], "result": result})

    async def refuse(self, request: JsonValue, code: int, message: str) -> None:
        """Answer a request with an error."""
        await self.send({"id": request["id"], "error": {"code": code, "message": message}})

    async def tell(self, method: str, **params: JsonValue) -> None:
        """Send a notification about the turn."""
        ids = {"threadId": THREAD, "turnId": TURN}
        await self.send({"method": method, "params": {**ids, **params}})

    async def put(self, id_: JsonValue, method: str, **params: JsonValue) -> JsonValue:
        """Ask the client something, and wait for its answer."""
        self.answers[id_] = asyncio.get_running_loop().create_future()
        ids = {"threadId": THREAD, "turnId": TURN, "itemId": "item-1", "startedAtMs": 1}
        await self.send({"id": id_, "method": method, "params": {**ids, **params}})
        return await self.answers[id_]


class Fake:
    """Answers as an app-server would, except where the scenario has it otherwise."""

    def __init__(self, scenario: Scenario, heard: Path) -> None:
        self._plays = {**USUAL, **scenario}
        self._heard = heard
        heard.touch()

    async def attach(self, transport: Transport) -> None:
        """Serve one client until it hangs up."""
        actor = Actor(transport, self._heard)
        async with asyncio.TaskGroup() as tasks:
            playing: set[asyncio.Task[None]] = set()
            try:
                while True:
                    message = await actor.hear()
                    if "method" not in message:
                        if (waiter := actor.answers.get(message["id"])) is not None:
                            waiter.set_result(message)
                    elif (play := self._plays.get(message["method"])) is not None:
                        playing.add(tasks.create_task(_run(play, actor, message)))
            except HungUp:
                for task in playing:
                    task.cancel()
            finally:
                await transport.close()


async def _run(play: Play, actor: Actor, message: JsonValue) -> None:
    await play(actor, message)


# -- what every scenario has unless it says otherwise

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
    """The turn as the server shows it."""
    return {"id": TURN, "items": [], "status": status, **more}


def message_item(text: str, id_: str = "item-1", **more: JsonValue) -> JsonValue:
    """A message of the agent."""
    return {"type": "agentMessage", "id": id_, "text": text, **more}


def answers(result: JsonValue) -> Play:
    """Answer with this."""

    async def play(actor: Actor, request: JsonValue) -> None:
        await actor.answer(request, result)

    return play


async def _silence(actor: Actor, request: JsonValue) -> None:
    """Say nothing."""


async def start_turn(actor: Actor, request: JsonValue) -> None:
    """A whole turn with every kind of event that a result is made of."""
    await actor.answer(request, {"turn": turn()})
    await actor.tell("turn/started", turn=turn())
    await actor.tell("item/started", item=message_item(""), startedAtMs=1)
    await actor.tell("item/agentMessage/delta", itemId="item-1", delta="Hel")
    await actor.tell("item/agentMessage/delta", itemId="item-1", delta="lo")
    await actor.tell("item/completed", item=message_item("Hello"), completedAtMs=2)
    await actor.tell("turn/diff/updated", diff="--- a\n+++ b\n")
    plan = [{"step": "look", "status": "completed"}]
    await actor.tell("turn/plan/updated", plan=plan)
    await actor.tell("thread/tokenUsage/updated", tokenUsage={"last": USAGE, "total": USAGE})
    await actor.tell("turn/completed", turn=turn("completed"))


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


# -- how to reach it


class Heard:
    """What the server was told."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[JsonValue]:
        """Every message, in order."""
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def calls(self, method: str) -> list[JsonValue]:
        """The params of each request or notification of a method."""
        return [each.get("params") for each in self.all() if each.get("method") == method]

    def answers(self) -> dict[JsonValue, JsonValue]:
        """The client's results and errors, by id."""
        said = [each for each in self.all() if "method" not in each]
        return {each["id"]: each.get("result", each.get("error")) for each in said}


@asynccontextmanager
async def reach(
    kind: str, folder: Path, name: str, **options: Unpack[ClientOptions]
) -> AsyncIterator[tuple[AsyncClient, Heard]]:
    """A client that is not connected yet, of a server that plays a scenario."""
    path = folder / "heard"
    heard = Heard(path)
    async with asyncio.timeout(SECONDS):
        if kind == "subprocess":
            command = [sys.executable, "-m", "tests.client.scenarios", name, str(path)]
            options.setdefault("cwd", ROOT)
            yield AsyncClient(command, **options), heard
            return
        fake = Fake(SCENARIOS[name], path)
        if kind == "memory":
            yield AsyncClient.in_process(fake, **options), heard
            return
        async with listening(kind, folder, fake) as url:
            yield AsyncClient(url, **options), heard


@asynccontextmanager
async def listening(kind: str, folder: Path, fake: Fake) -> AsyncIterator[str]:
    """Serve on a socket until the block ends."""
    listener: Listener
    if kind == "websocket":
        websocket = WebSocketListener("127.0.0.1", 0)
        await websocket.start()
        listener, url = websocket, "ws://{}:{}".format(*websocket.address)
    else:
        unix = UnixListener(folder / "s")
        await unix.start()
        listener, url = unix, f"unix://{folder / 's'}"
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(listener.serve(fake.attach))
        try:
            yield url
        finally:
            serving.cancel()


SCENARIOS: dict[str, Scenario] = {"usual": {}}


def scenario(name: str) -> Callable[[Play], Play]:
    """Let a function play `turn/start` under a name."""

    def register(play: Play) -> Play:
        SCENARIOS[name] = {"turn/start": play}
        return play

    return register
