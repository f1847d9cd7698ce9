"""Calls of MCP tools that a model decides on in the user's stead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.mcp import item_of, settled, stdio, text_of
from tests.harness.scripted import client_of, playing
from tests.harness.threads import params_of
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, calls
from treadle.model.scripted.script import Response

REVIEWED = {"approvalPolicy": "on-request", "approvalsReviewer": "auto_review"}


@pytest.mark.parametrize(
    ("outcome", "status", "output"),
    [("allow", "completed", "plain: "), ("deny", "failed", "too risky")],
)
async def test_the_reviewer_decides_whether_a_tool_is_called(
    home: Path, outcome: str, status: str, output: str
) -> None:
    said = {"risk_level": "low", "risk_score": 7, "user_authorization": "high"}
    verdict = json.dumps({**said, "rationale": "too risky", "outcome": outcome})

    def play(request: ModelRequest) -> Response:
        if request.subagent == "guardian":
            return verdict
        if any("output" in item for item in request.input):
            return "done"
        return calls("mcp__mini__plain", {}, call_id="c1")

    model = ScriptedModel(play)
    (home / "config.toml").write_text(stdio(), "utf-8")
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start(**REVIEWED)
        await settled(client, "mini")
        messages = await client.run(thread_id)

    (review,) = params_of(messages, "item/autoApprovalReview/started")
    assert review["action"] == {
        "type": "mcpToolCall",
        "server": "mini",
        "toolName": "plain",
        "connectorId": None,
        "connectorName": None,
        "toolTitle": None,
    }
    assert item_of(messages)["status"] == status
    (given,) = (item["output"] for item in model.requests[-1].input if "output" in item)
    assert text_of(given) == output


@pytest.mark.parametrize(("size", "status"), [(10_000, "approved"), (99_999, "denied")])
async def test_the_reviewer_sees_all_arguments_or_does_not_approve(
    home: Path, size: int, status: str
) -> None:
    said = {"risk_level": "low", "risk_score": 7, "user_authorization": "high"}
    hidden = f"{'a' * size}hidden{'a' * size}"

    def play(request: ModelRequest) -> Response:
        if request.subagent == "guardian":
            return json.dumps({**said, "rationale": "fine", "outcome": "allow"})
        if any("output" in item for item in request.input):
            return "done"
        return calls("mcp__mini__plain", {"text": hidden}, call_id="c1")

    model = ScriptedModel(play)
    (home / "config.toml").write_text(stdio(), "utf-8")
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start(**REVIEWED)
        await settled(client, "mini")
        messages = await client.run(thread_id)

    (review,) = params_of(messages, "item/autoApprovalReview/completed")
    assert review["review"]["status"] == status
    asked = [request for request in model.requests if request.subagent == "guardian"]
    shown = [request.input[0]["content"][0]["text"].rpartition("<action>")[2] for request in asked]
    assert [hidden in text for text in shown] == ([True] if status == "approved" else [])
