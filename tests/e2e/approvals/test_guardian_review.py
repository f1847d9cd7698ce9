"""`thread/guardianReview`: the guardian's opinion of a call that a client added to a thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, fails, waits_for
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it has to be"}
ADDS = "*** Begin Patch\n*** Add File: /nowhere/new.txt\n+one\n*** End Patch"


class Reviewer:
    """A model that plays the guardian."""

    def __init__(self) -> None:
        self.says: Response = verdict("allow")
        self.model = ScriptedModel(self._play)

    def _play(self, request: ModelRequest) -> Response:
        return self.says if request.subagent == "guardian" else "done"

    @property
    def action(self) -> JsonValue:
        """The action that the guardian was shown last."""
        text = self.model.requests[-1].input[0]["content"][0]["text"]
        return json.loads(text.rpartition("<action>")[2].partition("</action>")[0])


def verdict(outcome: str) -> str:
    about = {"risk_level": "medium", "risk_score": 7, "user_authorization": "high"}
    return json.dumps({**about, "rationale": "because", "outcome": outcome})


def exists(path: str) -> bool:
    return Path(path).exists()


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
async def server(home: Path, reviewer: Reviewer) -> AsyncIterator[Server]:
    async with playing(home, reviewer.model) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client


def function(name: str, arguments: JsonValue, call_id: str = "c1") -> JsonValue:
    """A call as an item of the Responses API."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


async def with_call(client: Client, item: JsonValue, **params: JsonValue) -> JsonValue:
    """Params that name a thread whose last item is this one."""
    settings = {"approvalPolicy": "on-request", "sandbox": "workspace-write", **params}
    thread_id = await client.start(**settings)
    await client.request("thread/inject_items", {"threadId": thread_id, "items": [item]})
    return {"threadId": thread_id}


@pytest.mark.parametrize("outcome", ["allow", "deny"])
@pytest.mark.parametrize(
    "item",
    [
        function("exec_command", {"cmd": "touch /x", **ESCALATED}),
        function("shell_command", {"command": "touch /x", **ESCALATED}),
        function("shell", {"command": ["touch", "/x"], **ESCALATED}),
        function("apply_patch", {"input": ADDS}),
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": ADDS},
    ],
    ids=["exec", "script", "argv", "patch", "free patch"],
)
async def test_a_call_that_needs_approval_is_assessed(
    client: Client, reviewer: Reviewer, tmp_path: Path, item: JsonValue, outcome: str
) -> None:
    """Upstream 0.169: the outcome, and why; nothing runs."""
    reviewer.says = verdict(outcome)
    params = await with_call(client, item, cwd=str(tmp_path))
    answer = await client.request("thread/guardianReview", params)

    assert answer == {
        "callId": "c1",
        "assessment": {
            "outcome": outcome,
            "rationale": "because",
            "riskLevel": "medium",
            "userAuthorization": "high",
        },
    }
    assert reviewer.action["type"] in ("command", "applyPatch")
    assert not any(map(exists, ("/x", "/nowhere")))


@pytest.mark.parametrize(
    ("item", "params"),
    [
        (function("exec_command", {"cmd": "ls"}), {}),
        (function("exec_command", {"cmd": "touch x", **ESCALATED}), {"approvalPolicy": "never"}),
        (function("apply_patch", {"input": ADDS.replace("/nowhere/", "")}), {}),
    ],
    ids=["known safe", "policy never", "inside the workspace"],
)
async def test_a_call_whose_policy_needs_no_review_is_not_assessed(
    client: Client, reviewer: Reviewer, tmp_path: Path, item: JsonValue, params: JsonValue
) -> None:
    """Upstream 0.169: null when the policy or a remembered approval skips the review."""
    named = await with_call(client, item, cwd=str(tmp_path), **params)
    answer = await client.request("thread/guardianReview", named)

    assert answer == {"callId": "c1", "assessment": None}
    assert list(reviewer.model.requests) == []


async def test_a_review_that_fails_is_a_denial(
    client: Client, reviewer: Reviewer, tmp_path: Path
) -> None:
    """Ours: fail closed."""
    reviewer.says = fails("overloaded")
    item = function("exec_command", {"cmd": "touch /x", **ESCALATED})
    params = await with_call(client, item, cwd=str(tmp_path))
    assessment = (await client.request("thread/guardianReview", params))["assessment"]

    assert (assessment["outcome"], assessment["riskLevel"]) == ("deny", "high")
    assert "overloaded" in assessment["rationale"]


async def test_the_caller_is_subscribed_to_the_thread(
    server: Server, client: Client, tmp_path: Path
) -> None:
    """Upstream 0.169: until it unsubscribes or disconnects."""
    params = await with_call(client, function("exec_command", {"cmd": "ls"}), cwd=str(tmp_path))
    async with client_of(server) as other:
        await other.request("thread/guardianReview", params)
        answer = await other.request("thread/unsubscribe", params)

    assert answer == {"status": "unsubscribed"}


async def test_other_requests_for_the_thread_do_not_wait_for_a_review(
    client: Client, reviewer: Reviewer, tmp_path: Path
) -> None:
    may_end = asyncio.Event()
    reviewer.says = [waits_for(may_end), verdict("allow")]
    item = function("exec_command", {"cmd": "touch /x", **ESCALATED})
    params = await with_call(client, item, cwd=str(tmp_path))
    await client.peer.send({"id": "r1", "method": "thread/guardianReview", "params": params})
    await client.request("thread/read", params)
    refused = await client.refusal("thread/guardianReview", params)
    may_end.set()
    async with asyncio.timeout(20):
        while (answer := await client.peer.receive()).get("id") != "r1":
            pass

    assert f"a review of thread {params['threadId']} is running" in refused.message
    assert answer["result"]["assessment"]["outcome"] == "allow"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"type": "message", "role": "user", "content": []}, "expected a call of a command tool"),
        (function("view_image", {"path": "x"}), "not of view_image"),
        (function("nope", {}), "not of nope"),
        (function("exec_command", {"cmd": 5}), "the call c1 is invalid"),
        (function("exec_command", "{"), "the call c1 is invalid"),
        (function("apply_patch", {"input": "no patch"}), "the call c1 is invalid"),
        ({"type": "function_call", "name": "exec_command"}, "expected a call of a command tool"),
    ],
    ids=["message", "another tool", "unknown", "type", "JSON", "patch", "no id"],
)
async def test_what_cannot_be_assessed_is_refused(
    client: Client, reviewer: Reviewer, tmp_path: Path, item: JsonValue, message: str
) -> None:
    params = await with_call(client, item, cwd=str(tmp_path))
    refused = await client.refusal("thread/guardianReview", params)

    assert (refused.code, message in refused.message) == (-32600, True), refused.message
    assert list(reviewer.model.requests) == []


@pytest.mark.parametrize("thread_id", ["nope", "00000000-0000-7000-8000-000000000000", 5])
async def test_a_thread_that_is_not_loaded_is_refused(client: Client, thread_id: JsonValue) -> None:
    refused = await client.refusal("thread/guardianReview", {"threadId": thread_id})
    assert refused.code == -32600


async def test_an_empty_thread_has_nothing_to_assess(client: Client) -> None:
    """Upstream 0.169 refuses it too."""
    params = {"threadId": await client.start()}
    refused = await client.refusal("thread/guardianReview", params)
    assert "expected a call" in refused.message
