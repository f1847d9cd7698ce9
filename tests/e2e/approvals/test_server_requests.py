"""Server requests: sent to every client, resolved once, and kept when a client or server ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.commands import LOGIN_SHELL
from tests.harness.processes import spawn_server
from tests.harness.scripted import (
    SECONDS,
    client_of,
    over,
    playing,
    scripted_server,
    write_script,
)
from tests.harness.threads import Client, outline, params_of, words
from treadle.model.scripted.script import AnyStep, calls, says
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"
POLICY = {"approvalPolicy": "on-request", "sandbox": "read-only"}


def wants(command: str, **more: JsonValue) -> AnyStep:
    """The model requests a command outside the sandbox."""
    arguments = {"cmd": command, "login": False, "sandbox_permissions": "require_escalated"}
    return calls(
        "exec_command", {**arguments, "justification": "it has to be", **more}, call_id="call-1"
    )


def script(command: str) -> list[list[AnyStep]]:
    """One command and a final message."""
    return [[wants(command)], [says("done")]]


async def next_request(client: Client, method: str = ASK) -> JsonValue:
    """Wait for a server request and return it whole."""
    return (await client.until(method))[-1]


async def answer(client: Client, question: JsonValue, decision: JsonValue) -> None:
    """Answer a command approval."""
    await client.peer.send({"id": question["id"], "result": {"decision": decision}})


def rollout_of(thread: JsonValue) -> str:
    """The thread's journal on disk."""
    return Path(thread["path"]).read_text("utf-8")


def commands(messages: list[JsonValue]) -> list[JsonValue]:
    """The completed commands, without what differs from run to run."""
    kept = ("id", "status", "exitCode", "aggregatedOutput")
    return [
        {key: params["item"][key] for key in kept}
        for params in params_of(messages, "item/completed")
        if params["item"]["type"] == "commandExecution"
    ]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@asynccontextmanager
async def asking(home: Path, work: Path, command: str) -> AsyncIterator[tuple[Client, str, str]]:
    """A client with a turn whose command waits for an answer."""
    async with playing(home, script(command)) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        yield client, thread_id, await client.start_turn(thread_id)


async def test_an_accepted_command_runs_and_the_turn_continues(home: Path, work: Path) -> None:
    async with asking(home, work, "touch a && echo made") as (client, _thread, turn_id):
        messages = await client.until(ASK)
        await answer(client, messages[-1], "accept")
        messages += await client.end_of(turn_id)
    assert outline(messages)[4:] == [
        "thread/status/changed active",
        "item/started commandExecution",
        ASK,
        "serverRequest/resolved",
        "thread/status/changed active",
        "item/commandExecution/outputDelta",
        "item/completed commandExecution",
        "item/started agentMessage",
        "item/completed agentMessage",
        "thread/status/changed idle",
        "turn/completed completed",
    ]
    assert commands(messages) == [
        {"id": "call-1", "status": "completed", "exitCode": 0, "aggregatedOutput": "made\n"}
    ]
    flags = [p["status"].get("activeFlags") for p in params_of(messages, "thread/status/changed")]
    assert flags == [[], ["waitingOnApproval"], [], None]
    assert (work / "a").exists()


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ({"result": {"decision": "decline"}}, "declined"),
        ({"result": {"decision": "maybe"}}, "failed"),
        ({"result": "nonsense"}, "failed"),
        ({}, "failed"),
        ({"error": {"code": -32000, "message": "the client is broken"}}, "failed"),
    ],
)
async def test_anything_but_an_acceptance_declines_and_the_turn_continues(
    home: Path, work: Path, reply: JsonValue, status: str
) -> None:
    async with asking(home, work, "touch a") as (client, _thread, turn_id):
        question = await next_request(client)
        await client.peer.send({"id": question["id"], **reply})
        messages = await client.end_of(turn_id)
    assert commands(messages) == [
        {"id": "call-1", "status": status, "exitCode": None, "aggregatedOutput": None}
    ]
    assert outline(messages)[-1] == "turn/completed completed"
    assert not (work / "a").exists()


async def test_cancel_ends_the_turn(home: Path, work: Path) -> None:
    async with asking(home, work, "touch a") as (client, thread_id, turn_id):
        await answer(client, await next_request(client), "cancel")
        messages = await client.end_of(turn_id)
        again = await client.run(thread_id, "go on")
    assert [item["status"] for item in commands(messages)] == ["declined"]
    assert outline(messages)[-1] == "turn/completed interrupted"
    assert outline(again)[-1] == "turn/completed completed"
    assert not (work / "a").exists()


async def test_an_interrupted_turn_ends_and_resolves_its_server_request(
    home: Path, work: Path
) -> None:
    async with asking(home, work, "touch a") as (client, thread_id, turn_id):
        question = await next_request(client)
        await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        messages = await client.until("serverRequest/resolved")
        assert params_of(messages, "serverRequest/resolved") == [
            {"threadId": thread_id, "requestId": question["id"]}
        ]
        await answer(client, question, "accept")
        assert await client.settled() == []
    assert outline(messages)[-2:] == ["turn/completed interrupted", "serverRequest/resolved"]
    assert not (work / "a").exists()


async def test_every_client_receives_the_request_and_the_first_answer_wins(
    home: Path, work: Path
) -> None:
    async with playing(home, script("echo ran >> a")) as server, client_of(server) as one:
        thread_id = await one.start(cwd=str(work), **POLICY)
        async with client_of(server) as two:
            await two.request("thread/resume", {"threadId": thread_id})
            turn_id = await one.start_turn(thread_id)
            question = await next_request(one)
            assert (await next_request(two))["id"] == question["id"]
            await answer(two, question, "accept")
            await answer(one, question, "decline")
            for client in (one, two):
                messages = await client.end_of(turn_id)
                assert [item["status"] for item in commands(messages)] == ["completed"]
                assert len(params_of(messages, "serverRequest/resolved")) == 1
    assert (work / "a").read_text() == "ran\n"


async def test_a_client_that_cannot_answer_does_not_decide_for_one_that_can(
    home: Path, work: Path
) -> None:
    async with playing(home, script("touch a")) as server, client_of(server) as one:
        thread_id = await one.start(cwd=str(work), **POLICY)
        async with client_of(server) as two:
            await two.request("thread/resume", {"threadId": thread_id})
            turn_id = await one.start_turn(thread_id)
            question = await next_request(one)
            await next_request(two)
            error = {"code": -32601, "message": "unknown method"}
            await two.peer.send({"id": question["id"], "error": error})
            await two.settled()
            await answer(one, question, "accept")
            messages = await one.end_of(turn_id)
    assert [item["status"] for item in commands(messages)] == ["completed"]


async def test_a_refusal_counts_when_the_other_clients_are_gone(home: Path, work: Path) -> None:
    async with playing(home, script("touch a")) as server, client_of(server) as one:
        thread_id = await one.start(cwd=str(work), **POLICY)
        async with client_of(server) as two:
            await two.request("thread/resume", {"threadId": thread_id})
            turn_id = await one.start_turn(thread_id)
            question = await next_request(one)
            await next_request(two)
            await one.peer.send({"id": question["id"], "error": {"code": 1, "message": "no"}})
            await one.settled()
        messages = await one.end_of(turn_id)
    assert [item["status"] for item in commands(messages)] == ["failed"]


async def test_a_client_that_joins_later_receives_open_server_requests(
    home: Path, work: Path
) -> None:
    async with playing(home, script("touch a")) as server:
        async with client_of(server) as first:
            thread_id = await first.start(cwd=str(work), **POLICY)
            turn_id = await first.start_turn(thread_id)
            question = await next_request(first)
        async with client_of(server) as second:
            resumed = await second.request("thread/resume", {"threadId": thread_id})
            assert resumed["thread"]["status"] == {
                "type": "active",
                "activeFlags": ["waitingOnApproval"],
            }
            again = await next_request(second)
            assert again == question
            await answer(second, again, "accept")
            await second.end_of(turn_id)
    assert (work / "a").exists()


async def test_a_client_that_reconnects_with_a_position_receives_the_request_again(
    home: Path, work: Path
) -> None:
    async with playing(home, script("touch a")) as server:
        async with client_of(server) as first:
            thread_id = await first.start(cwd=str(work), **POLICY)
            turn_id = await first.start_turn(thread_id)
            messages = await first.until(ASK)
        seq = max(message.get("seq", 0) for message in messages)
        async with client_of(server) as second:
            await second.request("thread/resume", {"threadId": thread_id, "afterSeq": seq})
            again = await next_request(second)
            await answer(second, again, "accept")
            rest = await second.end_of(turn_id)
    assert again["params"] == messages[-1]["params"]
    seqs = [message["seq"] for message in rest if "seq" in message]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_an_answer_after_a_restart_continues_the_same_turn(home: Path, work: Path) -> None:
    first = scripted_server(home, [[wants("echo ran >> a")]])
    try:
        async with client_of(first) as client:
            thread_id = await client.start(cwd=str(work), **POLICY)
            turn_id = await client.start_turn(thread_id, "do it")
            before = await client.until(ASK)
            await first.close()
    finally:
        await first.close()
    async with playing(home, [[says("done")]]) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        assert resumed["thread"]["status"]["type"] == "active"
        assert [turn["status"] for turn in resumed["thread"]["turns"]] == ["inProgress"]
        question = await next_request(client)
        left, right = dict(question["params"]), dict(before[-1]["params"])
        assert left.pop("startedAtMs") >= right.pop("startedAtMs")
        assert left == right
        await answer(client, question, "accept")
        messages = await client.end_of(turn_id)
        assert commands(messages) == [
            {"id": "call-1", "status": "completed", "exitCode": 0, "aggregatedOutput": None}
        ]
        thread = await client.read(thread_id)
    assert words(thread) == [["do it", "commandExecution", "done"]]
    assert (work / "a").read_text() == "ran\n"


async def test_an_answer_after_a_kill_continues_the_same_turn(home: Path, work: Path) -> None:
    command: JsonValue = {"type": "calls", "tool": "exec_command", "call_id": "call-1"}
    command["arguments"] = {"cmd": "echo ran >> a", "sandbox_permissions": "require_escalated"}
    first = write_script(home.parent / "first.json", [[command]])
    last = write_script(home.parent / "last.json", [[{"type": "says", "text": "done"}]])
    killed = spawn_server(home, TREADLE_SCRIPT=str(first))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        await next_request(client)
        os.kill(killed.pid, signal.SIGKILL)
    async with asyncio.timeout(SECONDS), over(spawn_server(home, TREADLE_SCRIPT=str(last))) as back:
        await back.request("thread/resume", {"threadId": thread_id})
        await answer(back, await next_request(back), "accept")
        messages = await back.end_of(turn_id)
    assert [item["status"] for item in commands(messages)] == ["completed"]
    assert outline(messages)[-1] == "turn/completed completed"
    assert (work / "a").read_text() == "ran\n"


async def test_a_deadline_resolves_the_request_without_a_client(home: Path, work: Path) -> None:
    (home / "config.toml").write_text('[asks]\ndeadline_ms = 1\ndecision = "decline"\n')
    async with asking(home, work, "touch a") as (client, _thread, turn_id):
        messages = await client.end_of(turn_id)
    assert [item["status"] for item in commands(messages)] == ["declined"]
    assert len(params_of(messages, "serverRequest/resolved")) == 1
    assert not (work / "a").exists()


async def test_each_decision_is_recorded_in_the_journal(home: Path, work: Path) -> None:
    script_: list[list[AnyStep]] = [
        [calls("exec_command", {"cmd": "ls", "login": False}, call_id="call-0")],
        [wants("touch a")],
        [says("done")],
    ]
    async with playing(home, script_) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        await answer(client, await next_request(client), "accept")
        await client.end_of(turn_id)
        text = rollout_of(await client.read(thread_id))
    lines = [json.loads(line).get("treadle") or {} for line in text.splitlines()]
    decided = [line for line in lines if line.get("record") in ("decided", "askAnswered")]
    for line in decided:
        assert line.pop("at_ms") > 0
    assert decided == [
        {
            "record": "decided",
            "call_id": "call-0",
            "turn_id": turn_id,
            "action": f"{LOGIN_SHELL} -c ls",
            "decision": "allowed",
            "by": "known to be safe",
        },
        {
            "record": "askAnswered",
            "id": f"{turn_id}/call-1",
            "by": "client probe",
            "answer": {"decision": "accept"},
        },
    ]


async def test_a_client_may_choose_the_older_form_of_approvals(home: Path, work: Path) -> None:
    async with (
        playing(home, script("touch a")) as server,
        client_of(server, extensions={"legacyApprovals": True}) as client,
    ):
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        question = await next_request(client, "execCommandApproval")
        assert question["params"] == {
            "callId": "call-1",
            "command": [LOGIN_SHELL, "-c", "touch a"],
            "conversationId": thread_id,
            "cwd": str(work),
            "parsedCmd": [{"type": "unknown", "cmd": "touch a"}],
            "approvalId": None,
            "reason": "it has to be",
        }
        await answer(client, question, "approved")
        await client.end_of(turn_id)
    assert (work / "a").exists()


async def test_a_client_without_the_experimental_api_receives_the_decisions_too(
    home: Path, work: Path
) -> None:
    async with (
        playing(home, script("touch a")) as server,
        client_of(server, experimentalApi=False) as client,
    ):
        thread_id = await client.start(cwd=str(work), **POLICY)
        turn_id = await client.start_turn(thread_id)
        question = await next_request(client)
        assert question["params"]["availableDecisions"][0] == "accept"
        await answer(client, question, "accept")
        await client.end_of(turn_id)
