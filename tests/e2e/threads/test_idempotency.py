"""`clientUserMessageId`: the same id and content are the same message, whatever happens."""

from __future__ import annotations

import asyncio

from tests.harness.model_server import refuses, says
from tests.harness.threads import Stage, params_of, text_input, words


async def test_a_message_that_is_sent_twice_counts_once(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    first = await client.start_turn(thread_id, "hi", clientUserMessageId="msg-1")
    messages = await client.end_of(first)
    asked = {"threadId": thread_id, "input": [text_input("hi")], "clientUserMessageId": "msg-1"}
    again = (await client.request("turn/start", asked))["turn"]

    assert params_of(messages, "item/completed")[0]["item"]["clientId"] == "msg-1"
    assert (again["id"], again["status"], again["items"]) == (first, "completed", [])
    assert words(await client.read(thread_id)) == [["hi", "done"]]
    assert len(stage.model.requests) == 1


async def test_a_repeated_message_joins_its_turn_while_that_runs(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.model.plays(says("done", "m1", ["d"], gate))
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start()
    first = await client.start_turn(thread_id, "hi", clientUserMessageId="msg-1")
    await stage.model.wait_for_request(1)
    again = await other.start_turn(thread_id, "hi", clientUserMessageId="msg-1")
    gate.set()
    await client.end_of(first)

    assert again == first
    assert words(await client.read(thread_id)) == [["hi", "done"]]


async def test_an_id_with_other_content_is_a_conflict(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "hi", clientUserMessageId="msg-1")
    asked = {"threadId": thread_id, "input": [text_input("other")], "clientUserMessageId": "msg-1"}

    start = await client.refusal("turn/start", asked)
    steer = await client.refusal("turn/steer", {**asked, "expectedTurnId": "any"})

    assert (start.code, start.kind) == (-32600, "messageConflict")
    assert steer.kind == "messageConflict"
    assert "msg-1" in start.message


async def test_a_repeated_steer_answers_the_turn_that_took_it(stage: Stage) -> None:
    gate, client = asyncio.Event(), await stage.client()
    stage.model.plays(says("one", "m1", ["o"], gate))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    await stage.model.wait_for_request(1)
    steer = {
        "threadId": thread_id,
        "input": [text_input("more")],
        "expectedTurnId": turn_id,
        "clientUserMessageId": "msg-2",
    }
    first = await client.request("turn/steer", steer)
    second = await client.request("turn/steer", steer)
    gate.set()
    await client.end_of(turn_id)
    late = await client.request("turn/steer", steer)

    assert first == second == late == {"turnId": turn_id}
    assert words(await client.read(thread_id)) == [["hi", "one", "more", "done"]]


async def test_a_message_is_known_after_a_restart(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(refuses(400, {}))
    first = await client.start_turn(thread_id, "hi", clientUserMessageId="msg-1")
    await client.end_of(first)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    asked = {"threadId": thread_id, "input": [text_input("hi")], "clientUserMessageId": "msg-1"}

    again = (await client.request("turn/start", asked))["turn"]
    conflict = await client.refusal("turn/start", {**asked, "input": [text_input("other")]})

    assert (again["id"], again["status"]) == (first, "failed")
    assert again["error"]["codexErrorInfo"] == "badRequest"
    assert conflict.kind == "messageConflict"
    assert words(await client.read(thread_id)) == [["hi"]]


async def test_a_message_whose_turn_was_rolled_back_may_be_sent_again(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "one")
    first = await client.start_turn(thread_id, "hi", clientUserMessageId="msg-1")
    await client.end_of(first)
    await client.request("thread/rollback", {"threadId": thread_id, "numTurns": 1})

    again = await client.start_turn(thread_id, "hi", clientUserMessageId="msg-1")
    await client.end_of(again)

    assert again != first
    assert words(await client.read(thread_id)) == [["one", "done"], ["hi", "done"]]


async def test_a_fork_knows_nothing_of_the_ids_of_its_source(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "hi", clientUserMessageId="msg-1")
    forked = (await client.request("thread/fork", {"threadId": thread_id}))["thread"]

    await client.run(forked["id"], "other", clientUserMessageId="msg-1")

    assert words(await client.read(forked["id"])) == [["hi", "done"], ["other", "done"]]
