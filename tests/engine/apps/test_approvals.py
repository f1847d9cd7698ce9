"""Approvals of calls of the tools of apps."""

from __future__ import annotations

import tomllib

import pytest

from tests.engine.apps.ground import (
    ASKS,
    CALENDAR,
    ELICITATION,
    AppsGround,
    calls_app,
    items_of,
    outputs_of,
)
from tests.harness.apps_service import TOOLS
from tests.harness.model_server import says
from tests.harness.threads import Client
from treadle.protocol.base import JsonValue

NAME = "google_calendar_create_event"


async def begin(ground: AppsGround, client: Client, thread: str, text: str = "x") -> JsonValue:
    """Start a turn whose call needs approval; return the server request."""
    call = calls_app(CALENDAR, "_create_event", {"text": text})
    ground.apps.replies.extend([call, says("ok")])
    await client.start_turn(thread)
    return (await client.until(ELICITATION))[-1]


async def end(client: Client, asked: JsonValue, answer: JsonValue) -> JsonValue:
    """Answer a server request; return the item of the call."""
    await client.peer.send({"id": asked["id"], "result": answer})
    (item,) = items_of(await client.until("turn/completed"))
    return item


async def run(ground: AppsGround, client: Client, thread: str, text: str = "x") -> JsonValue:
    """Run a turn whose call needs no approval of a client; return the item of the call."""
    call = calls_app(CALENDAR, "_create_event", {"text": text})
    ground.apps.replies.extend([call, says("ok")])
    (item,) = items_of(await client.run(thread))
    return item


async def test_a_tool_that_changes_something_needs_approval(ground: AppsGround) -> None:
    """Upstream: the request of 0.163.0, which names the app."""
    client, thread = await ground.thread(**ASKS)
    asked = await begin(ground, client, thread)
    item = await end(client, asked, {"action": "accept", "content": None})

    turn = asked["params"]["turnId"]
    assert asked["params"] == {
        "threadId": thread,
        "turnId": turn,
        "serverName": "codex_apps",
        "mode": "form",
        "_meta": {
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session", "always"],
            "tool_title": "create_event",
            "tool_description": "Does google_calendar_create_event.",
            "source": "connector",
            "connector_id": "calendar",
            "link_id": "link-1",
            "connector_name": "Google Calendar",
            "connector_description": "Plans days.",
            "tool_params": {"text": "x"},
            "tool_params_display": [{"name": "text", "value": "x", "display_name": "text"}],
        },
        "message": f'Allow Google Calendar to run tool "{NAME}"?',
        "requestedSchema": {"type": "object", "properties": {}},
    }
    assert item["status"] == "completed"
    assert [call["arguments"] for call in ground.apps.calls] == [{"text": "x"}]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"action": "decline"}, "user rejected MCP tool call"),
        ({"action": "cancel"}, "user cancelled MCP tool call"),
        ({"nonsense": 1}, "user rejected MCP tool call"),
    ],
)
async def test_a_call_that_is_not_approved_is_not_made(
    ground: AppsGround, answer: JsonValue, error: str
) -> None:
    client, thread = await ground.thread(**ASKS)
    item = await end(client, await begin(ground, client, thread), answer)

    assert (item["status"], item["error"]) == ("failed", {"message": error})
    assert ground.apps.calls == []
    assert outputs_of(ground.requests[1]) == {"call-1": error}


async def test_an_approval_for_the_session_covers_later_calls(ground: AppsGround) -> None:
    """Upstream: of this tool, in this thread."""
    client, thread = await ground.thread(**ASKS)
    accepted = {"action": "accept", "_meta": {"persist": "session"}}
    await end(client, await begin(ground, client, thread), accepted)
    again = await run(ground, client, thread, "y")

    assert again["status"] == "completed"
    assert [call["arguments"]["text"] for call in ground.apps.calls] == ["x", "y"]


async def test_a_permanent_approval_is_stored_with_the_app(ground: AppsGround) -> None:
    """Upstream: in `[apps.ID.tools.TOOL]` of the user's file."""
    client, thread = await ground.thread(**ASKS)
    accepted = {"action": "accept", "_meta": {"persist": "always"}}
    await end(client, await begin(ground, client, thread), accepted)
    other = await client.start(**ASKS)
    item = await run(ground, client, other)

    written = tomllib.loads((ground.home / "config.toml").read_text("utf-8"))
    assert written["apps"] == {"calendar": {"tools": {NAME: {"approval_mode": "approve"}}}}
    assert item["status"] == "completed"


@pytest.mark.parametrize(
    "table",
    [
        '[apps.calendar]\ndefault_tools_approval_mode = "approve"\n',
        '[apps._default]\ndefault_tools_approval_mode = "approve"\n',
        f'[apps.calendar.tools.{NAME}]\napproval_mode = "approve"\n',
        '[apps.calendar.tools."Google Calendar_create_event"]\napproval_mode = "approve"\n',
    ],
)
async def test_the_configuration_approves(ground: AppsGround, table: str) -> None:
    """Upstream: a tool is named by its name or its title."""
    client, thread = await ground.thread(table, **ASKS)

    assert (await run(ground, client, thread))["status"] == "completed"


async def test_without_approvals_the_denial_names_the_key(ground: AppsGround) -> None:
    client, thread = await ground.thread(approvalPolicy="never")
    item = await run(ground, client, thread)

    assert item["error"] == {
        "message": "MCP tool call requires approval, but approval policy is never (to allow it "
        f'without approval, set apps.calendar.tools.{NAME}.approval_mode = "approve")'
    }
    assert ground.apps.calls == []


async def test_hints_of_a_tool_decide_by_default(ground: AppsGround) -> None:
    """Upstream: a tool without hints counts as one that may do harm."""
    plain = {key: value for key, value in TOOLS[0].items() if key != "annotations"}
    ground.apps.tools = [plain]
    client, thread = await ground.thread(**ASKS)
    item = await end(client, await begin(ground, client, thread), {"action": "decline"})

    assert item["status"] == "failed"


async def test_an_app_may_have_its_own_reviewer(ground: AppsGround) -> None:
    """Upstream: `approvals_reviewer` of its table; the guardian asks the model."""
    said = {"risk_level": "low", "user_authorization": "high", "rationale": "fine"}
    verdict = f'{{"outcome": "allow", {str(said)[1:-1]}}}'.replace("'", '"')
    call = calls_app(CALENDAR, "_create_event", {"text": "x"})
    ground.apps.replies.extend([call, says(verdict), says("ok")])
    client, thread = await ground.thread(
        '[apps.calendar]\napprovals_reviewer = "auto_review"\n', **ASKS
    )
    messages = await client.run(thread)

    reviews = [each for each in messages if "autoApprovalReview" in each.get("method", "")]
    assert [each["params"]["action"]["connectorId"] for each in reviews] == ["calendar"] * 2
    assert [item["status"] for item in items_of(messages)] == ["completed"]
