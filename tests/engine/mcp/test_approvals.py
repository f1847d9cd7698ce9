"""When a tool needs approval, and what an MCP server asks the user itself."""

from __future__ import annotations

import tomllib

import pytest

from tests.harness.mcp import call, item_of, settled, stdio, text_of
from tests.harness.mcp_plain import FORM
from tests.harness.model_server import calls
from tests.harness.questions import answer, question, refuse
from tests.harness.threads import Client, Stage, params_of
from treadle.protocol.base import JsonValue

ASK = "mcpServer/elicitation/request"
WAITING = {"type": "active", "activeFlags": ["waitingOnApproval"]}
REJECTED = "user rejected MCP tool call"


async def ready(
    stage: Stage, more: str = "", policy: JsonValue = "on-request"
) -> tuple[Client, str]:
    """A thread whose one MCP server is ready, and whose user can be asked."""
    stage.configure(stdio() + more)
    client = await stage.client()
    thread_id = await client.start(approvalPolicy=policy)
    await settled(client, "mini")
    return client, thread_id


async def asked_about(stage: Stage, client: Client, thread_id: str, tool: str) -> JsonValue:
    """Have the model call a tool, and give the question that follows."""
    stage.model.plays(calls(f"mcp__mini__{tool}", {}))
    await client.start_turn(thread_id)
    return await question(client, ASK)


async def finish(stage: Stage, client: Client) -> tuple[JsonValue, str]:
    """The item as it ended, and the output that the model received."""
    messages = await client.until("turn/completed")
    return item_of(messages), text_of(stage.model.requests[-1].outputs()["call-1"])


async def test_a_tool_that_may_do_harm_needs_approval(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__plain", {"text": "hi"}))
    turn_id = await client.start_turn(thread_id)
    before = await client.until(ASK)
    await answer(client, before[-1], {"action": "accept"})
    after = await client.end_of(turn_id)

    assert before[-1]["params"] == {
        "threadId": thread_id,
        "turnId": turn_id,
        "serverName": "mini",
        "mode": "form",
        "message": 'Allow the mini MCP server to run tool "plain"?',
        "requestedSchema": {"type": "object", "properties": {}},
        "_meta": {
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session", "always"],
            "tool_description": "Say nothing of what it does.",
            "tool_params": {"text": "hi"},
            "tool_params_display": [{"name": "text", "value": "hi", "display_name": "text"}],
        },
    }
    assert params_of(before, "thread/status/changed")[-1]["status"] == WAITING
    assert item_of(before, "item/started")["status"] == "inProgress"
    assert item_of(after)["status"] == "completed"
    assert text_of(stage.model.requests[-1].outputs()["call-1"]) == "plain: hi"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"action": "decline"}, REJECTED),
        ({"action": "cancel"}, "user cancelled MCP tool call"),
        ({"nonsense": 1}, REJECTED),
        (None, REJECTED),
    ],
)
async def test_a_call_that_is_not_approved_is_not_made_and_the_turn_continues(
    stage: Stage, result: JsonValue, error: str
) -> None:
    client, thread_id = await ready(stage)
    asked = await asked_about(stage, client, thread_id, "danger")
    if result is None:
        await refuse(client, asked)
    else:
        await answer(client, asked, result)
    item, output = await finish(stage, client)

    assert (item["status"], item["error"], item["result"]) == ("failed", {"message": error}, None)
    assert output == error


async def test_a_session_approval_covers_only_this_tool(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    asked = await asked_about(stage, client, thread_id, "plain")
    await answer(client, asked, {"action": "accept", "_meta": {"persist": "session"}})
    await finish(stage, client)
    again, _ = await call(stage.model, client, thread_id, "mcp__mini__plain")
    other = await asked_about(stage, client, thread_id, "danger")
    await answer(client, other, {"action": "decline"})
    await finish(stage, client)

    assert again["status"] == "completed"


async def test_a_permanent_approval_is_written_to_the_configuration(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    text = (stage.home / "config.toml").read_text("utf-8")
    asked = await asked_about(stage, client, thread_id, "plain")
    await answer(client, asked, {"action": "accept", "_meta": {"persist": "always"}})
    await finish(stage, client)
    other = await client.start(approvalPolicy="never")
    await settled(client, "mini")
    item, _ = await call(stage.model, client, other, "mcp__mini__plain")

    written = (stage.home / "config.toml").read_text("utf-8")
    added = '\n[mcp_servers.mini.tools.plain]\napproval_mode = "approve"\n'
    assert (added in written, written.replace(added, "")) == (True, text)
    tools = tomllib.loads(written)["mcp_servers"]["mini"]["tools"]
    assert tools == {"plain": {"approval_mode": "approve"}}
    assert item["status"] == "completed"


async def test_without_approvals_the_denial_names_the_rule_and_the_remedy(
    stage: Stage,
) -> None:
    client, thread_id = await ready(stage, policy="never")
    item, output = await call(stage.model, client, thread_id, "mcp__mini__plain")

    error = (
        "MCP tool call requires approval, but approval policy is never (to allow it "
        'without approval, set mcp_servers.mini.tools.plain.approval_mode = "approve")'
    )
    assert (item["status"], item["error"]) == ("failed", {"message": error})
    assert text_of(output) == error


async def test_without_approvals_the_configured_rules_decide(stage: Stage) -> None:
    rules = '[mcp_servers.mini.tools.danger]\napproval_mode = "approve"\n'
    rules += '[mcp_servers.mini.tools.echo]\napproval_mode = "prompt"\n'
    client, thread_id = await ready(stage, rules, policy="never")
    danger, _ = await call(stage.model, client, thread_id, "mcp__mini__danger")
    echo, _ = await call(stage.model, client, thread_id, "mcp__mini__echo")

    assert (danger["status"], echo["status"]) == ("completed", "failed")


async def test_a_tool_that_always_needs_approval_offers_no_session_approval(stage: Stage) -> None:
    rules = '[mcp_servers.mini.tools.echo]\napproval_mode = "prompt"\n'
    client, thread_id = await ready(stage, rules)
    for _ in range(2):
        asked = await asked_about(stage, client, thread_id, "echo")
        assert "persist" not in asked["params"]["_meta"]
        await answer(client, asked, {"action": "accept", "_meta": {"persist": "session"}})
        await finish(stage, client)


async def test_an_approval_can_be_given_after_a_restart(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__plain", {"text": "hi"}))
    turn_id = await client.start_turn(thread_id)
    await question(client, ASK)
    await stage.restart()
    later = await stage.client()
    await later.request("thread/resume", {"threadId": thread_id})
    asked = await question(later, ASK)
    await answer(later, asked, {"action": "accept"})
    messages = await later.end_of(turn_id)

    assert item_of(messages)["status"] == "completed"
    assert text_of(stage.model.requests[-1].outputs()["call-1"]) == "plain: hi"


async def test_the_user_fills_in_a_form_elicitation(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    stage.model.plays(calls("mcp__mini__ask", {}))
    turn_id = await client.start_turn(thread_id)
    before = await client.until(ASK)
    await answer(client, before[-1], {"action": "accept", "content": {"name": "Bob"}})
    item, output = await finish(stage, client)

    assert before[-1]["params"] == {
        "threadId": thread_id,
        "turnId": turn_id,
        "serverName": "mini",
        "mode": "form",
        "_meta": None,
        "message": "Name?",
        "requestedSchema": FORM,
    }
    assert params_of(before, "thread/status/changed")[-1]["status"] == WAITING
    assert (item["status"], output) == ("completed", "accept Bob")


async def test_the_user_opens_the_page_of_a_url_elicitation(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    asked = await asked_about(stage, client, thread_id, "ask_url")
    await answer(client, asked, {"action": "accept"})
    _, output = await finish(stage, client)

    shown = {key: asked["params"][key] for key in ("mode", "message", "url", "elicitationId")}
    assert shown == {
        "mode": "url",
        "message": "Sign here",
        "url": "https://example.com/sign",
        "elicitationId": "e-1",
    }
    assert output == "accept"


async def test_an_invalid_answer_declines_an_elicitation(stage: Stage) -> None:
    client, thread_id = await ready(stage)
    asked = await asked_about(stage, client, thread_id, "ask")
    await refuse(client, asked)
    item, output = await finish(stage, client)

    assert (item["status"], output) == ("completed", "decline")


@pytest.mark.parametrize(
    "policy",
    ["never", {"granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": False}}],
)
async def test_without_approvals_an_elicitation_is_declined_at_once(
    stage: Stage, policy: JsonValue
) -> None:
    client, thread_id = await ready(stage, policy=policy)
    _, output = await call(stage.model, client, thread_id, "mcp__mini__ask")

    assert text_of(output) == "decline"


async def test_the_time_of_an_elicitation_does_not_count_for_the_tool(stage: Stage) -> None:
    """Its limit stands still while its question is open."""
    stage.configure(stdio(tool_timeout_sec=0.4))
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request")
    await settled(client, "mini")
    asked = await asked_about(stage, client, thread_id, "ask")
    for _ in range(3):
        await call_aside(client, thread_id)
    await answer(client, asked, {"action": "accept", "content": {"name": "Bob"}})
    _, output = await finish(stage, client)

    assert output == "accept Bob"


async def call_aside(client: Client, thread_id: str) -> None:
    """Let a call of the same server run into the same limit, so that time has passed."""
    params = {"threadId": thread_id, "server": "mini", "tool": "linger"}
    await client.refusal("mcpServer/tool/call", params)
