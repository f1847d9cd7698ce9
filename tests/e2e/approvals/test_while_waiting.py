"""What clients can do with a thread that waits for an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.questions import answer, question, refuse
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, outline, params_of
from treadle.model.scripted.script import AnyStep, calls, custom_call, says
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

ASK = "item/commandExecution/requestApproval"
POLICY: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "read-only"}
SCRIPT: list[list[AnyStep]] = [
    [
        calls(
            "exec_command",
            {"cmd": "touch a", "login": False, "sandbox_permissions": "require_escalated"},
            call_id="call-1",
        )
    ],
    [says("done")],
]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@asynccontextmanager
async def waiting(home: Path, work: Path) -> AsyncIterator[tuple[Server, Client, str, JsonValue]]:
    """A thread that waits for an answer, and its server request."""
    async with playing(home, SCRIPT) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        await client.start_turn(thread_id)
        yield server, client, thread_id, await question(client, ASK)


async def finish(client: Client, asked: JsonValue) -> list[JsonValue]:
    """Accept, and wait for the end of the turn."""
    await answer(client, asked, {"decision": "accept"})
    return await client.end_of(asked["params"]["turnId"])


async def test_it_can_be_read_and_listed(home: Path, work: Path) -> None:
    async with waiting(home, work) as (_, client, thread_id, asked):
        thread = await client.read(thread_id)
        listed = await client.request("thread/list", {})
        messages = await finish(client, asked)
    status = {"type": "active", "activeFlags": ["waitingOnApproval"]}
    assert thread["status"] == status
    assert [turn["status"] for turn in thread["turns"]] == ["inProgress"]
    assert [entry["status"] for entry in listed["data"]] == [status]
    assert outline(messages)[-1] == "turn/completed completed"


async def test_a_fork_of_it_has_no_open_request_and_can_be_used(home: Path, work: Path) -> None:
    async with waiting(home, work) as (_, client, thread_id, asked):
        forked = await client.request("thread/fork", {"threadId": thread_id})
        fork = forked["thread"]
        messages = await client.run(fork["id"], "go on")
        await finish(client, asked)
    assert ASK not in outline(messages)
    assert outline(messages)[-1] == "turn/completed completed"
    assert [turn["status"] for turn in fork["turns"]] == ["interrupted"]
    assert (work / "a").exists()


async def test_it_cannot_be_rolled_back(home: Path, work: Path) -> None:
    async with waiting(home, work) as (_, client, thread_id, asked):
        refused = await client.refusal("thread/rollback", {"threadId": thread_id, "numTurns": 1})
        messages = await finish(client, asked)
    assert "turn" in refused.message
    assert outline(messages)[-1] == "turn/completed completed"


async def test_it_keeps_waiting_when_its_last_client_unsubscribes(home: Path, work: Path) -> None:
    async with waiting(home, work) as (server, client, thread_id, _):
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        async with client_of(server) as other:
            await other.request("thread/resume", {"threadId": thread_id})
            messages = await finish(other, await question(other, ASK))
    assert outline(messages)[-1] == "turn/completed completed"
    assert (work / "a").exists()


async def test_a_refusal_counts_when_the_other_clients_have_unsubscribed(
    home: Path, work: Path
) -> None:
    async with waiting(home, work) as (server, client, thread_id, _), client_of(server) as other:
        await other.request("thread/resume", {"threadId": thread_id})
        asked = await question(other, ASK)
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        await refuse(other, asked)
        messages = await other.end_of(asked["params"]["turnId"])
    assert outline(messages)[-1] == "turn/completed completed"
    assert not (work / "a").exists()


async def test_a_client_that_unsubscribes_and_returns_can_still_answer(
    home: Path, work: Path
) -> None:
    async with (
        waiting(home, work) as (server, client, thread_id, asked),
        client_of(server) as other,
    ):
        await other.request("thread/resume", {"threadId": thread_id})
        theirs = await question(other, ASK)
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        await client.request("thread/resume", {"threadId": thread_id})
        await client.settled()
        await refuse(other, theirs)
        await other.settled()
        messages = await finish(client, asked)
    assert outline(messages)[-1] == "turn/completed completed"
    assert (work / "a").exists()


@pytest.mark.parametrize("method", ["thread/archive", "thread/delete"])
async def test_archiving_or_deleting_it_ends_the_turn_and_resolves_the_request(
    home: Path, work: Path, method: str
) -> None:
    async with waiting(home, work) as (_, client, thread_id, asked):
        await client.request(method, {"threadId": thread_id})
        messages = await client.settled()
        await answer(client, asked, {"decision": "accept"})
        await client.settled()
    assert "turn/completed interrupted" in outline(messages)
    assert params_of(messages, "serverRequest/resolved") == [
        {"threadId": thread_id, "requestId": asked["id"]}
    ]
    assert not (work / "a").exists()


PATCH = "*** Begin Patch\n*** Add File: b\n+b\n*** End Patch\n"
OPTIONS = [{"label": "this", "description": "d"}, {"label": "that", "description": "d"}]
QUESTIONS = {"questions": [{"id": "q", "header": "h", "question": "?", "options": OPTIONS}]}


@pytest.mark.parametrize(
    ("step", "method", "reply"),
    [
        (
            custom_call("apply_patch", PATCH, call_id="call-1"),
            "item/fileChange/requestApproval",
            {"decision": "accept"},
        ),
        (
            calls("request_user_input", QUESTIONS, call_id="call-1"),
            "item/tool/requestUserInput",
            {"answers": {"q": {"answers": ["this"]}}},
        ),
        (
            calls(
                "request_permissions",
                {"permissions": {"network": {"enabled": True}}},
                call_id="call-1",
            ),
            "item/permissions/requestApproval",
            {"permissions": {"network": {"enabled": True}}},
        ),
    ],
)
async def test_every_kind_of_server_request_outlives_its_server(
    home: Path, work: Path, step: AnyStep, method: str, reply: JsonValue
) -> None:
    config = {
        "features.request_permissions_tool": True,
        "features.default_mode_request_user_input": True,
    }
    async with playing(home, [[step]]) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), config=config, **POLICY)
        turn_id = await client.start_turn(thread_id)
        first = await question(client, method)
        await server.close()
    async with playing(home, [[says("done")]]) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id, "config": config})
        again = await question(client, method)
        await answer(client, again, reply)
        messages = await client.end_of(turn_id)
    for asked in (first, again):
        asked["params"].pop("startedAtMs", None)
    assert again["params"] == first["params"]
    assert outline(messages)[-1] == "turn/completed completed"
    assert (work / "b").exists() is (method == "item/fileChange/requestApproval")
