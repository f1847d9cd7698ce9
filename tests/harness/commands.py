"""A thread whose model runs commands, and checks of their results."""

from __future__ import annotations

import json
import os
import re
import select
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness.model_server import Reply, calls, completed, created, done
from tests.harness.threads import Client, Stage, params_of, staged
from treadle.engine.terminals.shell import user_shell
from treadle.protocol.base import JsonValue

LOGIN_SHELL = user_shell()
"""The shell in which commands run unless the model names one."""

FREE: JsonValue = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
"""Commands run unasked, outside any sandbox."""

HEAD = r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\n"
TAIL = "\nOriginal token count: {tokens}\nOutput:\n{output}"
"""What the model reads before and after how a command stands."""


@dataclass(slots=True)
class Bench:
    """One thread of one client, and the model that it talks to."""

    stage: Stage
    client: Client
    thread_id: str

    async def call(
        self, tool: str, arguments: JsonValue, call_id: str = "call-1"
    ) -> tuple[list[JsonValue], str]:
        """Let the model call a tool; return the messages of the turn and the tool's output."""
        self.stage.model.plays(calls(tool, arguments, call_id))
        messages = await self.client.run(self.thread_id)
        return messages, self.output(call_id)

    async def start_call(self, tool: str, arguments: JsonValue, call_id: str = "call-1") -> str:
        """Let the model call a tool; return the id of the turn without waiting for its end."""
        self.stage.model.plays(calls(tool, arguments, call_id))
        return await self.client.start_turn(self.thread_id)

    def output(self, call_id: str = "call-1") -> str:
        """The output that the model received for a call."""
        text: str = self.stage.model.requests[-1].outputs()[call_id]
        return text


@asynccontextmanager
async def bench(home: Path, more: str = "", **params: JsonValue) -> AsyncIterator[Bench]:
    """Set up a thread with its own workspace."""
    async with staged(home) as stage:
        stage.configure(more)
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace), **params)
        yield Bench(stage, client, thread_id)


def together(*wanted: tuple[str, JsonValue, str]) -> Reply:
    """A reply with several calls: tools, arguments and ids."""
    items = [
        {
            "type": "function_call",
            "call_id": call_id,
            "name": tool,
            "arguments": json.dumps(arguments),
        }
        for tool, arguments, call_id in wanted
    ]
    return Reply([created("resp-t"), *(done(item) for item in items), completed("resp-t")])


def commands(messages: Sequence[JsonValue], method: str = "item/completed") -> list[JsonValue]:
    """The commands that were started or completed."""
    items = [params["item"] for params in params_of(messages, method)]
    return [item for item in items if item["type"] == "commandExecution"]


def streamed(messages: Sequence[JsonValue], item_id: str = "call-1") -> str:
    """The published output of a command."""
    deltas = params_of(messages, "item/commandExecution/outputDelta")
    return "".join(delta["delta"] for delta in deltas if delta["itemId"] == item_id)


def exited(code: int, tokens: int, output: str) -> str:
    """A pattern of what the model reads of a command that has ended."""
    text = f"Process exited with code {code}" + TAIL.format(tokens=tokens, output=output)
    return HEAD + re.escape(text) + r"\Z"


def session_of(output: str) -> int:
    """The session that an output names."""
    found = re.search(r"Process running with session ID (\d+)\n", output)
    assert found is not None, output
    return int(found[1])


def wait_until_gone(pid: int) -> None:
    """Block until a process that is not our child has ended."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], 10)[0], f"{pid} lives on"
        finally:
            os.close(descriptor)
