"""Calls and messages whose ids collide, with each other or with the server's own keys.

Each has its own item, output and approval.
"""

from __future__ import annotations

import json

import pytest

from tests.harness.model_server import Reply, completed, created, done, message, says
from tests.harness.threads import Client, Stage, params_of, words
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"


def twice(call_id: str, *commands: str) -> Reply:
    """Return an answer with one call for each command, all with the same id."""
    items: list[JsonValue] = [
        {
            "type": "function_call",
            "call_id": call_id,
            "name": "exec_command",
            "arguments": json.dumps(
                {
                    "cmd": command,
                    "login": False,
                    "sandbox_permissions": "require_escalated",
                    "justification": "it has to be",
                }
            ),
        }
        for command in commands
    ]
    return Reply([created("resp-1"), *map(done, items), completed("resp-1")])


async def two_open_approvals(
    stage: Stage, call_id: str
) -> tuple[Client, str, str, list[JsonValue]]:
    """Begin a turn with two calls that share an id, and wait until both request approval."""
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="on-request", sandbox="read-only"
    )
    stage.model.plays(twice(call_id, "touch one", "touch two"), says("ok"))
    turn_id = await client.start_turn(thread_id)
    questions = [(await client.until(ASK))[-1] for _ in range(2)]
    return client, thread_id, turn_id, questions


async def accept(client: Client, question: JsonValue) -> None:
    await client.peer.send({"id": question["id"], "result": {"decision": "accept"}})


@pytest.mark.parametrize("call_id", ["same", "x" * 64])
async def test_each_call_has_an_item_and_an_output(stage: Stage, call_id: str) -> None:
    client, _thread, turn_id, questions = await two_open_approvals(stage, call_id)
    for question in questions:
        await accept(client, question)
    messages = await client.end_of(turn_id)

    assert params_of(messages, "turn/completed")[-1]["turn"]["status"] == "completed"
    ids = [question["params"]["itemId"] for question in questions]
    assert call_id in ids
    assert len(set(ids)) == 2
    assert max(map(len, ids)) <= 64  # providers refuse longer ids
    assert set(stage.model.requests[-1].outputs()) == set(ids)
    assert {path.name for path in stage.workspace.iterdir()} >= {"one", "two"}


async def test_the_second_approval_survives_the_answer_to_the_first(stage: Stage) -> None:
    client, thread_id, turn_id, questions = await two_open_approvals(stage, "same")
    await accept(client, questions[0])
    await client.until("serverRequest/resolved")

    other = await stage.client()
    answer = await other.request("thread/resume", {"threadId": thread_id})
    assert answer["thread"]["status"]["activeFlags"] == ["waitingOnApproval"]
    again = (await other.until(ASK))[-1]
    assert again["params"]["itemId"] == questions[1]["params"]["itemId"]

    await accept(other, again)
    messages = await client.end_of(turn_id)
    assert params_of(messages, "turn/completed")[-1]["turn"]["status"] == "completed"


async def test_calls_of_two_answers_that_share_an_id_have_two_items(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="on-request", sandbox="read-only"
    )
    stage.model.plays(twice("same", "touch one"), twice("same", "touch two"), says("ok"))
    turn_id = await client.start_turn(thread_id)
    ids = []
    for _ in range(2):
        question = (await client.until(ASK))[-1]
        ids.append(question["params"]["itemId"])
        await accept(client, question)
    messages = await client.end_of(turn_id)

    assert params_of(messages, "turn/completed")[-1]["turn"]["status"] == "completed"
    assert ids[0] == "same"
    assert len(set(ids)) == 2
    assert list(stage.model.requests[-1].outputs()) == ids
    items = (await client.read(thread_id))["turns"][0]["items"]
    assert [item["id"] for item in items if item["type"] == "commandExecution"] == ids


async def test_a_call_after_a_restart_does_not_get_the_id_of_an_earlier_one(stage: Stage) -> None:
    _client, thread_id, _turn_id, _questions = await two_open_approvals(stage, "same")
    await stage.restart()
    stage.model.replies.clear()
    stage.model.plays(twice("same", "touch three"), says("ok"))
    again = await stage.client()
    await again.request("thread/resume", {"threadId": thread_id})
    ids = []
    for _ in range(3):
        question = (await again.until(ASK))[-1]
        ids.append(question["params"]["itemId"])
        await accept(again, question)
    await again.until("turn/completed")

    assert len(set(ids)) == 3
    assert set(stage.model.requests[-1].outputs()) == set(ids)


async def test_messages_that_share_an_id_are_all_kept(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    call: JsonValue = {"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}
    first = Reply([created("r1"), *message("one", "m", ["o", "ne"]), done(call), completed("r1")])
    stage.model.plays(first, says("two", "m", ["t", "wo"]))
    messages = await client.run(thread_id)

    deltas = params_of(messages, "item/agentMessage/delta")
    by_item: dict[str, str] = {}
    for delta in deltas:
        by_item[delta["itemId"]] = by_item.get(delta["itemId"], "") + delta["delta"]
    assert list(by_item.values()) == ["one", "two"]
    assert words(await client.read(thread_id)) == [["hi", "one", "two"]]


async def test_an_approval_is_not_mistaken_for_that_of_a_retry(stage: Stage) -> None:
    """The first call once skipped its approval after a restart, and asked to leave the sandbox."""
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="untrusted", sandbox="workspace-write"
    )
    commands: list[JsonValue] = [
        {"type": "function_call", "name": "shell", "call_id": id_, "arguments": arguments}
        for id_, arguments in (
            ("a", '{"command": ["touch", "one"]}'),
            ("a/retry", '{"command": ["touch", "two"]}'),
        )
    ]
    stage.model.plays(Reply([created(), *map(done, commands), completed()]), says("ok"))
    await client.start_turn(thread_id)
    before = [(await client.until(ASK))[-1]["params"] for _ in commands]
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    after = [(await client.until(ASK))[-1]["params"] for _ in commands]

    assert [each.get("reason") for each in (*before, *after)] == [None] * 4
    assert {each["command"] for each in after} == {"touch one", "touch two"}
    assert {each["itemId"] for each in after} == {each["itemId"] for each in before}
