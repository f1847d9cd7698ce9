"""MCP servers, side by side with the reference server, the same model and the same MCP server.

The differences are written down here with their reasons.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.mcp import STATUS, namespaced, settled, stdio, table
from tests.harness.model_server import calls
from tests.harness.questions import answer, question, refuse
from tests.harness.scenarios import Scenario, Scene, check
from treadle.protocol.base import JsonValue

ASK = "mcpServer/elicitation/request"
# Notifications of processes that start beside everything else.
LOOSE = frozenset({STATUS})


async def begin(scene: Scene, policy: JsonValue = "on-request", name: str = "mini") -> str:
    """A thread whose MCP server has started, or has not."""
    # The reference may report the server's start before that of the thread.
    params = {"cwd": scene.cwd, "approvalPolicy": policy}
    thread_id: str = (await scene.client.request("thread/start", params))["thread"]["id"]
    await settled(scene.client, name)
    return thread_id


async def called(scene: Scene) -> None:
    """Tools of every kind."""
    thread_id = await begin(scene)
    tools = {"echo": '{"text":"hi"}', "note": "{}", "add": '{"a":1,"b":2}', "picture": "{}"}
    for tool, arguments in {**tools, "fail": "{}"}.items():
        scene.model.plays(namespaced(tool, arguments))
        await scene.client.run(thread_id)


async def asked(scene: Scene) -> None:
    """Questions about tools, and of the server itself."""
    thread_id = await begin(scene)
    for tool, result in (
        ("plain", {"action": "accept", "_meta": {"persist": "session"}}),
        ("danger", {"action": "decline"}),
        ("danger", {"action": "cancel"}),
        ("ask", {"action": "accept", "content": {"name": "Bob"}}),
        ("ask", {"action": "decline"}),
        ("ask_url", {"action": "accept"}),
        ("danger", None),
    ):
        scene.model.plays(namespaced(tool))
        await scene.client.start_turn(thread_id)
        put = await question(scene.client, ASK)
        if result is None:
            await refuse(scene.client, put)
        else:
            await answer(scene.client, put, result)
        await scene.client.until("turn/completed")
    scene.model.plays(namespaced("plain"))
    await scene.client.run(thread_id)


async def unattended(scene: Scene) -> None:
    """Approvals are disabled."""
    thread_id = await begin(scene, "never")
    for tool in ("echo", "plain", "ask"):
        scene.model.plays(namespaced(tool))
        await scene.client.run(thread_id)


async def read(scene: Scene) -> None:
    """Documents, by the model and by the client."""
    thread_id = await begin(scene)
    for tool, arguments in (
        ("list_mcp_resources", {}),
        ("list_mcp_resource_templates", {"server": "mini"}),
        ("read_mcp_resource", {"server": "mini", "uri": "memo://first"}),
        ("list_mcp_resources", {"server": "zip"}),
    ):
        scene.model.plays(calls(tool, arguments))
        await scene.client.run(thread_id)
    reading = {"server": "mini", "uri": "memo://first", "threadId": thread_id}
    await scene.client.request("mcpServer/resource/read", reading)
    await scene.client.refusal("mcpServer/resource/read", {**reading, "server": "zip"})


async def listed(scene: Scene) -> None:
    """What clients do by themselves."""
    thread_id = await begin(scene)
    client = scene.client
    for params in ({}, {"threadId": thread_id}, {"limit": 1}, {"serverName": "mini"}):
        await client.request("mcpServerStatus/list", params)
    await client.refusal("mcpServerStatus/list", {"cursor": "zz"})
    calling = {"threadId": thread_id, "server": "mini", "tool": "echo", "arguments": {"text": "a"}}
    await client.request("mcpServer/tool/call", calling)
    await client.request("mcpServer/tool/call", {**calling, "tool": "fail"})
    await client.refusal("mcpServer/tool/call", {**calling, "server": "zip"})
    await client.request("config/mcpServer/reload", None)
    await client.refusal("mcpServer/oauth/login", {"name": "nope"})
    await client.refusal("mcpServer/oauth/login", {"name": "mini"})


async def broken(scene: Scene) -> None:
    """A server that cannot be started."""
    thread_id = await begin(scene, name="bad")
    await scene.client.run(thread_id)
    await scene.client.request("mcpServerStatus/list", {})


SCENARIOS: dict[str, Scenario] = {
    "called": Scenario(called, config=stdio(), loose=LOOSE, outputs=False),
    "asked": Scenario(asked, config=stdio(), loose=LOOSE, outputs=False),
    # The refusal says more here: which setting allows the call.
    "unattended": Scenario(
        unattended, config=stdio(), loose=LOOSE, outputs=False, values=frozenset({"message"})
    ),
    "read": Scenario(read, config=stdio(), loose=LOOSE),
    "listed": Scenario(listed, config=stdio(), loose=LOOSE),
    "broken": Scenario(broken, config=table("bad", command="/no/such/program"), loose=LOOSE),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_servers_say_the_same_in_the_same_order(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden, name, SCENARIOS[name], tmp_path)
