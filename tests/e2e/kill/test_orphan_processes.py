"""A server that ends, in any way, ends every command, whatever the command does to survive."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path

import pytest

from tests.harness.model_server import calls, model_server
from tests.harness.processes import TREADLE
from tests.harness.threads import Client, configure, spawned
from tests.sandbox.commands import new_token, processes_with, wait_until_gone
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport

SECONDS = 20
# One in the foreground, one that ignores signals, and a daemon without parent or environment.
SCRIPT = """
(env -i setsid bash -c '(exec -a TOKEN-1 sleep 1000) &' </dev/null >/dev/null 2>&1 &)
(trap '' TERM HUP INT; exec -a TOKEN-2 sleep 1000) &
exec -a TOKEN-3 sleep 1000
"""
POLICIES: dict[str, JsonValue] = {
    "workspace-write": {"type": "workspaceWrite"},
    "danger-full-access": {"type": "dangerFullAccess"},
}


async def until_there(*tokens: str) -> None:
    """Poll for processes of the server: their start is not observable as an event."""
    wanted = [f"{token}-{number}" for token in tokens for number in (1, 2, 3)]
    async with asyncio.timeout(SECONDS):
        while not all(map(processes_with, wanted)):  # noqa: ASYNC110 - no event of ours
            await asyncio.sleep(0.01)


async def end(client: Client, how: str) -> None:
    transport = client.peer.transport
    assert isinstance(transport, SubprocessTransport)
    if how == "hang-up":
        await transport.close()
    else:
        os.kill(transport.pid, signal.SIGKILL if how == "kill -9" else signal.SIGTERM)


@pytest.mark.parametrize("how", ["kill -9", "terminate", "hang-up"])
@pytest.mark.parametrize("sandbox", POLICIES)
async def test_no_process_is_left_of_a_server_that_ends(
    home: Path, tmp_path: Path, sandbox: str, how: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    piped, typed, own, asked = tokens = [new_token() for _ in range(4)]
    async with model_server() as model:
        configure(home, model)
        async with spawned([TREADLE, "app-server"], home) as client:
            thread_id = await client.start(cwd=str(work), sandbox=sandbox, approvalPolicy="never")
            for token, is_terminal in ((piped, False), (typed, True)):
                script = {"cmd": SCRIPT.replace("TOKEN", token), "shell": "bash"}
                model.plays(
                    calls("exec_command", {**script, "tty": is_terminal, "yield_time_ms": 250})
                )
                await client.run(thread_id)
            command = f"bash -c {shlex.quote(SCRIPT.replace('TOKEN', own))}"
            await client.request("thread/shellCommand", {"threadId": thread_id, "command": command})
            params = {
                "command": ["bash", "-c", SCRIPT.replace("TOKEN", asked)],
                "cwd": str(work),
                "disableTimeout": True,
                "sandboxPolicy": POLICIES[sandbox],
            }
            await client.peer.send({"id": "own", "method": "command/exec", "params": params})
            await until_there(*tokens)
            await end(client, how)
            for token in tokens:
                wait_until_gone(token)
