"""How MCP servers come and go, and what a thread does while they do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.mcp import PLAIN, STATUS, call, gone, offered, settled, stdio, table, text_of
from tests.harness.model_server import model_server
from tests.harness.processes import TREADLE
from tests.harness.threads import Stage, configure, params_of, spawned
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport


def change(thread_id: str, name: str, status: str, error: str | None = None) -> JsonValue:
    """A published step of a server's life."""
    about = {"threadId": thread_id, "name": name, "failureReason": None}
    return {**about, "status": status, "error": error}


async def test_a_server_is_reported_as_starting_and_ready_after_the_thread(stage: Stage) -> None:
    stage.configure(stdio())
    client = await stage.client()
    thread_id = await client.start()
    messages = await client.until(STATUS, lambda params: params["status"] == "ready")

    assert params_of(messages, STATUS) == [
        change(thread_id, "mini", "starting"),
        change(thread_id, "mini", "ready"),
    ]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"command": "/no/such/program"}, "No such file or directory (os error 2)"),
        ({"command": "sh", "args": ["-c", "echo bad luck >&2"]}, "bad luck"),
        (
            {"command": "echo", "args": ["this is not JSON"]},
            "wrote something that is not a protocol message",
        ),
        ({"url": "http://127.0.0.1:9/mcp"}, "error sending request for url"),
        ({"url": "http://127.0.0.1:9", "bearer_token_env_var": "NO_SUCH"}, "NO_SUCH is not set"),
        ({"command": "sh", "cwd": "/no/such/folder"}, "Not a directory (os error 20)"),
        ({"command": "sh", "url": "http://x"}, "url is not supported for stdio"),
        ({"args": ["x"]}, "invalid transport"),
        ({"command": "sh", "enabled_tools": "echo"}, "Expected `array | null`, got `str`"),
    ],
)
async def test_a_broken_server_is_reported_with_the_reason_and_the_thread_works(
    stage: Stage, settings: JsonValue, error: str
) -> None:
    stage.configure(table("bad", **settings))
    client = await stage.client()
    thread_id = await client.start()
    server = (await settled(client, "bad"))["bad"]
    end = await client.run(thread_id)

    assert server["status"] == "failed"
    assert server["error"].startswith("MCP client for `bad` failed to start: MCP startup failed: ")
    assert error in server["error"]
    assert end[-1]["params"]["turn"]["status"] == "completed"


async def test_a_server_that_takes_too_long_to_start_is_abandoned(stage: Stage) -> None:
    stage.configure(table("slow", command="sleep", args=["60"], startup_timeout_sec=0.2))
    client = await stage.client()
    await client.start()

    assert (await settled(client, "slow"))["slow"]["error"] == (
        "MCP client for `slow` timed out after 0.2 seconds. Add or adjust `startup_timeout_sec` "
        "in your config.toml:\n[mcp_servers.slow]\nstartup_timeout_sec = XX"
    )


async def test_a_slow_server_delays_no_turn_and_is_used_when_ready(stage: Stage) -> None:
    slow = stdio("slow", env={"MCP_LATE": "1.5"})
    stage.configure("mcp_optional_startup_grace_ms = 0\n" + slow)
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)
    before = offered(stage)
    await settled(client, "slow")
    await client.run(thread_id)

    assert "mcp__slow__echo" not in before
    assert "mcp__slow__echo" in offered(stage)


async def test_the_first_turn_gives_a_server_a_moment_to_start(stage: Stage) -> None:
    stage.configure("mcp_optional_startup_grace_ms = 20000\n" + stdio())
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)

    assert "mcp__mini__echo" in offered(stage)


async def test_a_turn_waits_for_a_required_server(stage: Stage) -> None:
    stage.configure("mcp_optional_startup_grace_ms = 0\n" + stdio(required=True))
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)

    assert "mcp__mini__echo" in offered(stage)


async def test_no_turn_runs_without_a_required_server(stage: Stage) -> None:
    stage.configure(table("bad", command="/no/such/program", required=True))
    client = await stage.client()
    thread_id = await client.start()
    messages = await client.run(thread_id)

    turn = messages[-1]["params"]["turn"]
    assert (turn["status"], turn["error"]["message"]) == (
        "failed",
        "required MCP servers failed to initialize: bad: No such file or directory (os error 2)",
    )
    assert stage.model.requests == []


async def test_a_disabled_server_is_not_started(stage: Stage) -> None:
    stage.configure(table("off", command="/no/such/program", enabled=False))
    client = await stage.client()
    thread_id = await client.start()
    messages = await client.run(thread_id)

    assert params_of(messages, STATUS) == []
    assert "list_mcp_resources" not in offered(stage)


async def test_a_thread_can_bring_its_own_server(stage: Stage) -> None:
    client = await stage.client()
    server = {"command": sys.executable, "args": PLAIN}
    thread_id = await client.start(config={"mcp_servers.own": server})
    await settled(client, "own")
    _, output = await call(stage.model, client, thread_id, "mcp__own__echo", {"text": "mine"})

    assert text_of(output) == "echo: mine"


async def test_loaded_threads_follow_the_configuration_on_request(stage: Stage) -> None:
    stage.configure(stdio("old"))
    client = await stage.client()
    thread_id = await client.start()
    await settled(client, "old")
    _, output = await call(stage.model, client, thread_id, "mcp__old__process")
    stage.configure(stdio("new"))
    await client.request("config/mcpServer/reload", None)
    await settled(client, "new")
    await client.run(thread_id)

    tools = {name.split("__")[1] for name in offered(stage) if name.startswith("mcp__")}
    assert tools == {"new"}
    await gone(int(text_of(output)))


@pytest.mark.parametrize("later", ["", stdio(env={"A": "b"})])
async def test_a_server_that_a_reload_ends_while_it_starts_is_cancelled(
    stage: Stage, later: str
) -> None:
    """Upstream: whether it is removed or replaced."""
    stage.configure(stdio(env={"MCP_LATE": "60"}))
    client = await stage.client()
    thread_id = await client.start()
    await client.until(STATUS)
    stage.configure(later)
    await client.request("config/mcpServer/reload", None)
    messages = await client.until(STATUS)
    if later:
        messages += await client.until(STATUS, lambda params: params["status"] == "ready")

    started = [change(thread_id, "mini", status) for status in ("starting", "ready")]
    assert params_of(messages, STATUS) == [
        change(thread_id, "mini", "cancelled"),
        *(started if later else ()),
    ]


async def test_two_threads_have_two_processes(stage: Stage) -> None:
    stage.configure(stdio())
    client = await stage.client()
    seen = []
    for _ in range(2):
        thread_id = await client.start()
        await settled(client, "mini")
        _, output = await call(stage.model, client, thread_id, "mcp__mini__process")
        seen.append(text_of(output))

    assert len(set(seen)) == 2


def family(folder: Path) -> str:
    """A server that has started another process, which does not hear that anybody is gone."""
    both = f"echo $$ > {folder}/server; trap '' TERM; sleep 600 & echo $! > {folder}/other"
    script = f"{both}; exec {sys.executable} {PLAIN[0]}"
    return table("mini", command="sh", args=["-c", script])


def members(folder: Path) -> list[int]:
    """The processes of such a server."""
    return [int((folder / name).read_text()) for name in ("server", "other")]


async def test_the_processes_end_with_the_thread(stage: Stage, tmp_path: Path) -> None:
    stage.configure(family(tmp_path))
    client = await stage.client()
    thread_id = await client.start()
    await settled(client, "mini")
    await client.run(thread_id)
    await client.request("thread/archive", {"threadId": thread_id})

    for pid in members(tmp_path):
        await gone(pid)


async def test_the_processes_end_with_the_server(stage: Stage, tmp_path: Path) -> None:
    stage.configure(family(tmp_path))
    client = await stage.client()
    await client.start()
    await settled(client, "mini")
    await stage.close()

    for pid in members(tmp_path):
        await gone(pid)


async def test_a_server_that_does_not_exit_is_killed(stage: Stage, tmp_path: Path) -> None:
    """It neither reads its stdin nor reacts to a signal to end."""
    stubborn = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 600; done"
    stage.configure(table("mini", command="sh", args=["-c", stubborn], startup_timeout_sec=0.5))
    client = await stage.client()
    await client.start()
    await settled(client, "mini")
    await stage.close()

    await gone(int((tmp_path / "pid").read_text()))


async def test_a_killed_server_leaves_no_process_behind(home: Path, tmp_path: Path) -> None:
    async with model_server() as model:
        configure(home, model, family(tmp_path))
        async with spawned([TREADLE, "app-server"], home) as client:
            transport = client.peer.transport
            assert isinstance(transport, SubprocessTransport)
            await client.start()
            await settled(client, "mini")
            os.kill(transport.pid, signal.SIGKILL)
            for pid in members(tmp_path):
                await gone(pid)


async def test_a_server_that_sends_only_invalid_output_is_abandoned(stage: Stage) -> None:
    """One line after the other, or one that does not end."""
    endless = table("endless", command="cat", args=["/dev/zero"], startup_timeout_sec=25)
    stage.configure(table("babble", command="yes", startup_timeout_sec=25) + endless)
    client = await stage.client()
    thread_id = await client.start()
    servers = await settled(client, "babble", "endless")

    why = (
        "handshaking with MCP server failed: the server wrote something that is not a protocol "
        "message"
    )
    for name in ("babble", "endless"):
        assert servers[name]["status"] == "failed"
        assert servers[name]["error"].endswith(why)
    assert (await client.run(thread_id))[-1]["params"]["turn"]["status"] == "completed"


WITHOUT_SDK = [
    sys.executable,
    "-c",
    "import sys; sys.modules['mcp'] = None; from treadle.__main__ import main; main()",
    "app-server",
]


async def test_the_sdk_is_not_needed_without_mcp_servers(home: Path) -> None:
    async with model_server() as model:
        configure(home, model)
        async with spawned(WITHOUT_SDK, home) as client:
            messages = await client.run(await client.start())

    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_without_the_sdk_a_server_fails_with_the_remedy(home: Path) -> None:
    async with model_server() as model:
        configure(home, model, stdio())
        async with spawned(WITHOUT_SDK, home) as client:
            await client.start()
            server = (await settled(client, "mini"))["mini"]

    assert server["status"] == "failed"
    assert server["error"].endswith("to install it: pip install 'treadle[mcp]'")
