"""A test client, and a stage for it: a server with its home and model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

from tests.harness.lines import in_memory
from tests.harness.model_server import ModelServer, model_server
from tests.harness.peer import CLIENT, Peer
from tests.harness.sandbox import SANDBOX
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.transport.subprocess import spawn

SECONDS = 30
UNKNOWN_THREAD = "00000000-0000-7000-8000-000000000000"
"""A thread id that no thread has."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, error: JsonValue) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: JsonValue = error.get("data")

    @property
    def kind(self) -> str | None:
        """The kind of the error, for programs."""
        return self.data["kind"] if self.data else None


class Client:
    """Sends requests and keeps the notifications that arrive meanwhile until a test reads them."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.unread: list[JsonValue] = []
        # All received messages, in order; an answer has the method of its request as `answers`.
        self.received: list[JsonValue] = []
        self._ids = count(1)

    async def initialize(self, **capabilities: JsonValue) -> JsonValue:
        """Complete the handshake with the experimental API enabled."""
        merged = {"experimentalApi": True, **capabilities}
        about = await self.request("initialize", {"clientInfo": CLIENT, "capabilities": merged})
        await self.peer.send({"method": "initialized"})
        return about

    async def request(self, method: str, params: JsonValue) -> JsonValue:
        """Send a request and return its result.

        Raises:
            Refused: the answer is an error.
        """
        id_ = next(self._ids)
        await self.peer.send({"id": id_, "method": method, "params": params})
        while (message := await self._receive()).get("id") != id_ or "method" in message:
            self.unread.append(message)
        message["answers"] = method
        if "error" in message:
            raise Refused(message["error"])
        return message["result"]

    async def refusal(self, method: str, params: JsonValue) -> Refused:
        """Send a request whose answer must be an error; return that error."""
        try:
            result = await self.request(method, params)
        except Refused as refused:
            return refused
        raise AssertionError(f"{method} was not refused: {result}")

    async def until(
        self, method: str, when: Callable[[JsonValue], bool] = lambda _params: True
    ) -> list[JsonValue]:
        """Return all messages up to and including the one with this method."""
        messages: list[JsonValue] = []
        async with asyncio.timeout(SECONDS):
            while True:
                message = self.unread.pop(0) if self.unread else await self._receive()
                messages.append(message)
                if message.get("method") == method and when(message["params"]):
                    return messages

    async def settled(self) -> list[JsonValue]:
        """Return all messages until now: an answer follows everything that was sent before it."""
        await self.request("thread/loaded/list", {})
        messages, self.unread = self.unread, []
        return messages

    async def _receive(self) -> JsonValue:
        message = await self.peer.receive()
        self.received.append(message)
        return message

    # -- common requests

    async def start(self, **params: JsonValue) -> str:
        """Start a thread and return its id."""
        answer = await self.request("thread/start", params)
        thread_id: str = answer["thread"]["id"]
        await self.until("thread/started", lambda params: params["thread"]["id"] == thread_id)
        return thread_id

    async def start_turn(self, thread_id: str, text: str = "hi", **params: JsonValue) -> str:
        """Start a turn and return its id."""
        turn = {"threadId": thread_id, "input": [text_input(text)], **params}
        answer = await self.request("turn/start", turn)
        turn_id: str = answer["turn"]["id"]
        return turn_id

    async def run(self, thread_id: str, text: str = "hi", **params: JsonValue) -> list[JsonValue]:
        """Run a turn to its end and return its messages."""
        turn_id = await self.start_turn(thread_id, text, **params)
        return await self.end_of(turn_id)

    async def end_of(self, turn_id: str) -> list[JsonValue]:
        """Wait for a turn to end and return the messages until then."""
        return await self.until("turn/completed", lambda params: params["turn"]["id"] == turn_id)

    async def read(self, thread_id: str) -> JsonValue:
        """The thread with its turns."""
        answer = await self.request("thread/read", {"threadId": thread_id, "includeTurns": True})
        return answer["thread"]


def text_input(text: str) -> JsonValue:
    """Text as input."""
    return {"type": "text", "text": text}


def words(thread: JsonValue) -> list[list[str]]:
    """The texts of a thread, turn by turn; an item without text is shown by its type."""
    return [[_word(item) for item in turn["items"]] for turn in thread["turns"]]


def _word(item: JsonValue) -> str:
    if item["type"] == "userMessage":
        return "".join(part["text"] for part in item["content"] if part["type"] == "text")
    text: str = item.get("text") or item["type"]
    return text


# -- messages in short form


PROLOGUE = [
    "thread/status/changed active",
    "turn/started",
    "item/started userMessage",
    "item/completed userMessage",
]
ANSWER = ["item/started agentMessage", "item/completed agentMessage", "thread/tokenUsage/updated"]
EPILOGUE = ["thread/status/changed idle", "turn/completed completed"]
FAILURE = ["thread/status/changed systemError", "error willRetry=False", "turn/completed failed"]
# Broadcast to every client, and so without a fixed place among the events of a thread; or a part
# of the end of each turn with a message, which `test_read_states.py` tests.
ASIDES = frozenset({"account/rateLimits/updated", "thread/readState/changed", "warning"})


def outline(messages: Sequence[JsonValue]) -> list[str]:
    """The methods in order, with the type of an item or a status where there is one."""
    return [line_of(message) for message in messages if message.get("method") not in ASIDES]


def line_of(message: JsonValue) -> str:
    """One message in short form."""
    if "answers" in message:
        return f"{message['answers']} -> {_outcome(message)}"
    method, params = message["method"], message["params"]
    if method in ("item/started", "item/completed"):
        return f"{method} {params['item']['type']}"
    if method == "thread/status/changed":
        return f"{method} {params['status']['type']}"
    if method == "turn/completed":
        return f"{method} {params['turn']['status']}"
    if method == "error":
        return f"{method} willRetry={params['willRetry']}"
    return str(method)


def _outcome(answer: JsonValue) -> str:
    return "ok" if "result" in answer else str(answer["error"]["message"])


def params_of(messages: Sequence[JsonValue], method: str) -> list[JsonValue]:
    """The params of all notifications of a method."""
    return [message["params"] for message in messages if message.get("method") == method]


def keys(value: JsonValue, path: str = "") -> set[str]:
    """Every path of keys in a document; list entries count as one."""
    found: set[str] = set()
    if isinstance(value, dict):
        for name, inner in value.items():
            found |= {f"{path}.{name}"} | keys(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            found |= keys(inner, f"{path}[]")
    return found


# -- server and model

CONFIG = """\
model = "mock-model"
model_provider = "mock_provider"
approval_policy = "never"
sandbox_mode = "read-only"
{more}
[model_providers.mock_provider]
name = "Mock"
base_url = "{url}"
wire_api = "responses"
request_max_retries = {retries}
stream_max_retries = {retries}
"""


class Stage:
    """A server in this process with a model on the loopback; clients come and go."""

    def __init__(self, home: Path, model: ModelServer, clients: AsyncExitStack) -> None:
        self.home = home
        self.model = model
        self.workspace = home.parent / "workspace"
        self.system = home.parent / "system"
        self._clients = clients
        self.server = self._new_server()

    async def client(self, **capabilities: JsonValue) -> Client:
        """Connect another client and complete its handshake."""
        client = Client(await self._clients.enter_async_context(in_memory(self.server)))
        await client.initialize(**capabilities)
        return client

    async def close(self) -> None:
        """End the server."""
        await self.server.close()

    async def restart(self) -> None:
        """End the server and start another one on the same home."""
        await self.close()
        self.server = self._new_server()

    def _new_server(self) -> Server:
        configuration = Configuration(self.home, system=self.system)
        return Server(sandbox=SANDBOX, configuration=configuration)

    def require(self, text: str) -> None:
        """Replace the administrator's requirements; they apply from now on."""
        self.system.mkdir(exist_ok=True)
        (self.system / "requirements.toml").write_text(text, "utf-8")

    def configure(self, more: str = "", *, retries: int = 0) -> None:
        """Replace the configuration; it applies from now on."""
        configure(self.home, self.model, more, retries=retries)


def configure(home: Path, model: ModelServer, more: str = "", *, retries: int = 0) -> None:
    """Write the configuration of a home whose model is this one."""
    text = CONFIG.format(more=more, url=model.base_url, retries=retries)
    (home / "config.toml").write_text(text, "utf-8")


@asynccontextmanager
async def staged(home: Path) -> AsyncIterator[Stage]:
    """Set up a stage; at the end close its clients, then the server, then the model."""
    async with model_server() as model:
        configure(home, model)
        async with AsyncExitStack() as stack:
            clients = AsyncExitStack()
            stage = Stage(home, model, clients)
            stage.workspace.mkdir()
            stack.push_async_callback(stage.close)
            await stack.enter_async_context(clients)
            yield stage


@asynccontextmanager
async def spawned(
    command: Sequence[str], home: Path, *, cwd: Path | None = None
) -> AsyncIterator[Client]:
    """A client of a server in its own process, isolated from this machine's user."""
    transport = spawn(command, cwd=cwd or home, env=environment(home))
    try:
        async with asyncio.timeout(SECONDS):
            client = Client(Peer(transport))
            await client.initialize()
            yield client
    finally:
        await transport.close()


def environment(home: Path) -> dict[str, str]:
    """The environment of a server, without anything of this machine's user."""
    homes = dict.fromkeys(("HOME", "CODEX_HOME", "TREADLE_HOME"), str(home))
    return {"PATH": os.environ["PATH"], "TERM": "xterm", **homes}
