"""Clients of other projects complete a handshake with the server."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from openai_codex import AsyncCodex, Codex, CodexConfig

from tests.harness.lines import SharedServers
from tests.harness.processes import TREADLE, environment
from tests.harness.raw_socket import BINARY, raw_socket
from tests.harness.scripted import write_script
from treadle.protocol.base import JsonValue

HELLO = {
    "id": 0,
    "method": "initialize",
    "params": {
        "clientInfo": {"name": "raw", "version": "1"},
        "capabilities": {"experimentalApi": True},
    },
}
ECHO = json.dumps({"id": 1, "method": "mock/experimentalMethod", "params": {"value": "x"}})


@pytest.fixture
def sdk_leaks() -> Iterator[None]:
    """The SDK leaves its child's pipes to the garbage collector: collect them here, not later."""
    yield
    gc.collect()


leaks_are_known = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def config(home: Path) -> CodexConfig:
    return CodexConfig(codex_bin=TREADLE, cwd=str(home), env=environment(home))


@leaks_are_known
@pytest.mark.usefixtures("sdk_leaks")
def test_the_official_python_sdk_connects(home: Path) -> None:
    with Codex(config(home)) as codex:
        about = codex.metadata
    assert about.userAgent is not None
    assert about.userAgent.startswith("codex_python_sdk/0.163.0 (")
    assert about.serverInfo is not None
    assert about.serverInfo.name == "codex_python_sdk"
    assert (about.platformFamily, about.platformOs) == ("unix", "linux")


@leaks_are_known
@pytest.mark.usefixtures("sdk_leaks")
async def test_the_official_async_python_sdk_connects(home: Path) -> None:
    async with asyncio.timeout(20), AsyncCodex(config(home)) as codex:
        agent = codex.metadata.userAgent
    assert agent is not None
    assert agent.startswith("codex_python_sdk/0.163.0 (")


@pytest.fixture(params=["websocket", "unix"])
def where(request: pytest.FixtureRequest, shared_servers: SharedServers) -> str | Path:
    return shared_servers.url if request.param == "websocket" else shared_servers.socket


def test_a_raw_socket_client_connects(where: str | Path) -> None:
    with raw_socket(where) as client:
        status, headers = client.upgrade()
        assert status == "HTTP/1.1 101 Switching Protocols"
        assert headers["upgrade"] == "websocket"
        client.send(json.dumps(HELLO).encode())
        answer = client.receive()
        assert answer["id"] == 0
        assert answer["result"]["userAgent"].startswith("raw/0.163.0 (")
        client.send(b'{"method":"initialized"}')
        client.send(ECHO.encode())
        assert client.receive() == {"id": 1, "result": {"echoed": "x"}}


def test_binary_frames_are_dropped_and_the_connection_stays_open(where: str | Path) -> None:
    """Upstream drops them with a warning as well."""
    with raw_socket(where) as client:
        client.upgrade()
        client.send(json.dumps(HELLO).encode(), BINARY)
        client.send(b"\xff\x00\xfe", BINARY)
        client.send(json.dumps(HELLO).encode())
        assert client.receive()["id"] == 0
        client.send(ECHO.encode(), BINARY)
        client.send(ECHO.replace('"x"', '"y"').encode())
        assert client.receive() == {"id": 1, "result": {"echoed": "y"}}


def test_a_client_that_disconnects_abruptly_affects_no_other_client(where: str | Path) -> None:
    with raw_socket(where) as survivor:
        survivor.upgrade()
        with raw_socket(where) as client:
            client.upgrade()
            client.send(json.dumps(HELLO).encode())
        survivor.send(json.dumps(HELLO).encode())
        assert survivor.receive()["id"] == 0


class Orchestrator:
    """A driver like Symphony's: hand-written JSON lines that reuse the same few ids."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.asked: list[str] = []
        self._answers: dict[str, JsonValue] = {
            "item/commandExecution/requestApproval": {"decision": "acceptForSession"},
            "item/tool/call": {
                "success": True,
                "output": "42 issues",
                "contentItems": [{"type": "inputText", "text": "42 issues"}],
            },
        }

    def say(self, message: JsonValue) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def hear(self) -> JsonValue:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def request(self, id_: int, method: str, params: JsonValue) -> JsonValue:
        """Send a request, and skip what arrives before the answer."""
        self.say({"id": id_, "method": method, "params": params})
        while (message := self.hear()).get("id") != id_ or "method" in message:
            self._react(message)
        return message["result"]

    def turn(self, thread_id: str, text: str) -> JsonValue:
        """Run a turn to its end, answer server requests meanwhile, and return the turn."""
        content = [{"type": "text", "text": text}]
        params = {"threadId": thread_id, "input": content, "title": "ABC-1: a title"}
        self.request(3, "turn/start", params)
        while (message := self.hear()).get("method") != "turn/completed":
            self._react(message)
        return message["params"]["turn"]

    def _react(self, message: JsonValue) -> None:
        if "id" in message and "method" in message:
            self.asked.append(message["method"])
            self.say({"id": message["id"], "result": self._answers[message["method"]]})


LINEAR: JsonValue = {
    "name": "linear_graphql",
    "description": "Ask the tracker",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def scripted_calls(*calls: tuple[str, JsonValue]) -> list[JsonValue]:
    """Responses with one call each, and a message after each."""
    return [
        step
        for at, (tool, arguments) in enumerate(calls)
        for step in (
            [{"type": "calls", "tool": tool, "arguments": arguments, "call_id": f"c{at}"}],
            "done",
        )
    ]


def outputs(requests: Path) -> list[JsonValue]:
    """The outputs that the model received for its calls."""
    last = json.loads(requests.read_text("utf-8").splitlines()[-1])
    items: Sequence[JsonValue] = last["input"]
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def test_an_orchestrator_that_reuses_its_ids_approves_and_runs_its_tool(home: Path) -> None:
    """A command accepted for the session needs no approval in the next turn."""
    touch = {"cmd": "touch done", "sandbox_permissions": "require_escalated"}
    query = {"query": "{ issues }"}
    script = scripted_calls(
        ("exec_command", touch), ("linear_graphql", query), ("exec_command", touch)
    )
    files = {
        "TREADLE_SCRIPT": str(write_script(home / "script", script)),
        "TREADLE_SCRIPT_REQUESTS": str(home / "requests"),
    }
    workspace = home.parent / "ABC-1"
    workspace.mkdir()
    with subprocess.Popen(
        ["bash", "-c", f"exec {TREADLE} app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=workspace,
        env=environment(home, **files),
    ) as process:
        driver = Orchestrator(process)
        driver.request(1, "initialize", HELLO["params"])
        driver.say({"method": "initialized", "params": {}})
        policy = {"approvalPolicy": "on-request", "sandbox": "read-only", "cwd": str(workspace)}
        started = driver.request(2, "thread/start", {**policy, "dynamicTools": [LINEAR]})
        turns = [driver.turn(started["thread"]["id"], f"go {at}") for at in range(3)]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0

    assert [turn["status"] for turn in turns] == ["completed"] * 3
    assert len({turn["id"] for turn in turns}) == 3
    assert driver.asked == ["item/commandExecution/requestApproval", "item/tool/call"]
    assert (workspace / "done").exists()
    assert "42 issues" in json.dumps(outputs(home / "requests")[1])
