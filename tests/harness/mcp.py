"""Threads with MCP servers: how they are configured, called and waited for."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

from tests.harness.model_server import (
    ModelServer,
    ReceivedRequest,
    Reply,
    calls,
    completed,
    created,
    done,
)
from tests.harness.threads import Client, Stage, params_of
from treadle.protocol.base import JsonValue

ROOT = Path(__file__).parents[2]
PLAIN = [str(ROOT / "tests" / "harness" / "mcp_plain.py")]
OFFICIAL = ["-m", "tests.harness.mcp_server"]
STATUS = "mcpServer/startupStatus/updated"
SECONDS = 30


def table(name: str, **settings: JsonValue) -> str:
    """The table of one server in `config.toml`."""
    lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
    return "\n".join([f"[mcp_servers.{name}]", *lines, ""])


def stdio(name: str = "mini", **settings: JsonValue) -> str:
    """The table of the server that is written by hand, on pipes."""
    return table(name, command=sys.executable, args=PLAIN, **settings)


def official(name: str = "mini", **settings: JsonValue) -> str:
    """The table of the server that is made with the official SDK, on pipes."""
    given = {"command": sys.executable, "args": [*OFFICIAL, "stdio"], "cwd": str(ROOT)}
    return table(name, **given, **settings)


def _toml(value: JsonValue) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(value)


@asynccontextmanager
async def http_server(kind: str = "http", port: int = 0) -> AsyncIterator[str]:
    """The SDK's server at its own address, until the block ends; yields the address."""
    pid, url = await asyncio.to_thread(_forks().start, kind, port)
    try:
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await gone(pid)


class _Forks:
    """The process that starts the SDK's servers as its children; it ends with this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *OFFICIAL, "forks"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.communicate)

    def start(self, kind: str, port: int) -> tuple[int, str]:
        """Start a server; return its process and its address."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(kind, port, file=self._process.stdin, flush=True)
        pid, url = self._process.stdout.readline().split()
        return int(pid), url


_forks = cache(_Forks)


async def settled(client: Client, *names: str) -> dict[str, JsonValue]:
    """Wait until these servers are ready or have failed; return the last status of each."""
    last: dict[str, JsonValue] = {}

    def is_last(params: JsonValue) -> bool:
        last[params["name"]] = params
        return all(last.get(name, {}).get("status") not in (None, "starting") for name in names)

    await client.until(STATUS, is_last)
    return last


async def call(
    model: ModelServer, client: Client, thread_id: str, tool: str, arguments: JsonValue = None
) -> tuple[JsonValue, JsonValue]:
    """Let the model call a tool; return the completed item and the model's output."""
    model.plays(calls(tool, arguments or {}))
    messages = await client.run(thread_id)
    return item_of(messages), model.requests[-1].outputs()["call-1"]


def namespaced(tool: str, arguments: str = "{}") -> Reply:
    """A call as the reference wants it, and as we understand it too."""
    item = {
        "type": "function_call",
        "call_id": "call-1",
        "namespace": "mcp__mini",
        "name": tool,
        "arguments": arguments,
    }
    return Reply([created(), done(item), completed()])


def item_of(messages: list[JsonValue], method: str = "item/completed") -> JsonValue:
    """The last published call of an MCP tool."""
    items = [params["item"] for params in params_of(messages, method)]
    found = [item for item in items if item["type"] == "mcpToolCall"]
    return found[-1] if found else None


def text_of(output: JsonValue) -> str:
    """What an output says, without the time that the call took."""
    header, *parts = output
    assert header["text"].startswith("Wall time: ")
    return "".join(part.get("text", "[picture]") for part in parts)


def offered(stage: Stage) -> list[str]:
    """The tools that the model was offered last."""
    return tools_of(stage.model.requests[-1])


def tools_of(request: ReceivedRequest) -> list[str]:
    """The tools that a request offers."""
    return [tool.get("name", "") for tool in request.body["tools"]]


async def gone(pid: int) -> None:
    """Wait until a process has ended, by its pidfd: it may not be our child."""
    async with asyncio.timeout(SECONDS):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
