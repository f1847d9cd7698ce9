"""Steer, interrupt, a second start: upstream's steps, and the races between them."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import Reply, calls, refuses, says
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    PROLOGUE,
    Client,
    Stage,
    outline,
    params_of,
    text_input,
    words,
)

INTERRUPTED = ["thread/status/changed idle", "turn/completed interrupted"]
MESSAGE = PROLOGUE[2:]


async def slow_turn(stage: Stage, client: Client, gate: asyncio.Event) -> tuple[str, str]:
    """A turn whose model has said "part" and waits."""
    stage.model.plays(says("part one", "m1", ["part"], gate))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    return thread_id, turn_id


async def test_steering_is_refused_when_nothing_runs(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()

    async def steer(**params: str) -> tuple[int, str, str | None]:
        asked = {"threadId": thread_id, "input": [text_input("more")], **params}
        refused = await client.refusal("turn/steer", asked)
        return refused.code, refused.message, refused.kind

    idle = "no active turn to steer"
    assert await steer(expectedTurnId="abc") == (-32600, idle, "noActiveTurn")
    empty = "expectedTurnId must not be empty"
    assert await steer(expectedTurnId="") == (-32600, empty, "invalidParams")
    missing = await steer()
    assert missing[1].startswith("Invalid request: missing field `expectedTurnId`")
    assert (missing[0], missing[2]) == (-32600, "invalidParams")
    refused = await client.refusal("turn/interrupt", {"threadId": thread_id, "turnId": "abc"})
    assert (refused.code, refused.message, refused.kind) == (
        -32600,
        "no active turn to interrupt",
        "noActiveTurn",
    )


async def test_a_steer_is_taken_up_after_the_current_response_and_nothing_is_lost(
    stage: Stage,
) -> None:
    """Upstream 0.118; 0.163 cuts the answer off."""
    gate, client = asyncio.Event(), await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, gate)
    steer = {"threadId": thread_id, "input": [text_input("more")], "expectedTurnId": turn_id}

    wrong = await client.refusal("turn/steer", {**steer, "expectedTurnId": "wrong"})
    empty = await client.refusal("turn/steer", {**steer, "input": []})
    answer = await client.request("turn/steer", steer)
    gate.set()
    messages = await client.end_of(turn_id)

    assert wrong.message == f"expected active turn id `wrong` but found `{turn_id}`"
    assert (wrong.kind, empty.message) == ("wrongTurn", "input must not be empty")
    assert answer == {"turnId": turn_id}
    first = ["item/completed agentMessage", "thread/tokenUsage/updated"]
    assert outline(messages) == [*first, *MESSAGE, *ANSWER, *EPILOGUE]
    assert stage.model.requests[1].conversation() == [
        ("user", "slow"),
        ("assistant", "part one"),
        ("user", "more"),
    ]
    assert words(await client.read(thread_id)) == [["slow", "part one", "more", "done"]]


async def test_a_second_start_joins_the_active_turn_and_returns_its_id(stage: Stage) -> None:
    """Upstream 0.163; 0.118 answers an id of a turn that never starts."""
    gate, client = asyncio.Event(), await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, gate)

    joined = await client.start_turn(thread_id, "second start")
    status = (await client.request("thread/read", {"threadId": thread_id}))["thread"]["status"]
    gate.set()
    messages = await client.end_of(turn_id)

    assert joined == turn_id
    assert status == {"type": "active", "activeFlags": []}
    assert outline(messages)[2:4] == MESSAGE
    assert stage.model.requests[1].conversation()[-1] == ("user", "second start")


async def test_a_thread_cannot_be_rolled_back_while_a_turn_runs(stage: Stage) -> None:
    """Upstream refuses too, but then reports a system error; we continue normally."""
    gate, client = asyncio.Event(), await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, gate)

    await client.refusal("thread/rollback", {"threadId": thread_id, "numTurns": 1})
    gate.set()

    assert outline(await client.end_of(turn_id))[-2:] == EPILOGUE


@pytest.mark.parametrize("word", ["archive", "delete"])
async def test_archiving_or_deleting_a_thread_interrupts_it_first(stage: Stage, word: str) -> None:
    """Upstream: the turn ends before the thread goes."""
    client = await stage.client()
    thread_id, _ = await slow_turn(stage, client, asyncio.Event())

    await client.request(f"thread/{word}", {"threadId": thread_id})
    messages = await client.until(f"thread/{word}d")

    assert outline(messages) == [
        "item/completed agentMessage",
        *INTERRUPTED,
        "thread/status/changed notLoaded",
        f"thread/{word}d",
    ]


async def test_a_fork_of_a_running_thread_ends_its_copy_of_the_turn(stage: Stage) -> None:
    """Upstream: the running turn is `interrupted` in the fork and goes on in the source."""
    gate, client = asyncio.Event(), await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, gate)

    forked = (await client.request("thread/fork", {"threadId": thread_id}))["thread"]
    gate.set()
    await client.end_of(turn_id)

    assert [(turn["id"], turn["status"]) for turn in forked["turns"]] == [(turn_id, "interrupted")]
    assert words(forked) == [["slow"]]
    assert (await client.read(thread_id))["turns"][0]["status"] == "completed"
    messages = await client.run(forked["id"], "go on")
    assert outline(messages)[-1] == "turn/completed completed"


async def test_an_interrupted_turn_keeps_its_text_and_informs_the_model(stage: Stage) -> None:
    """Upstream: idle, then `turn/completed`; the half-said message is completed here only."""
    client = await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, asyncio.Event())

    wrong = await client.refusal("turn/interrupt", {"threadId": thread_id, "turnId": "wrong"})
    assert await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id}) == {}
    messages = await client.end_of(turn_id)
    await client.run(thread_id, "after")

    assert wrong.message == f"expected active turn id wrong but found {turn_id}"
    assert outline(messages) == ["item/completed agentMessage", *INTERRUPTED]
    assert messages[-1]["params"]["turn"]["error"] is None
    conversation = stage.model.requests[1].conversation()
    assert [role for role, _ in conversation] == ["user", "user", "user"]
    assert conversation[1][1].startswith("<turn_aborted>")
    assert words(await client.read(thread_id)) == [["slow", "part"], ["after", "done"]]


async def test_a_turn_can_be_interrupted_as_soon_as_turn_start_is_sent(stage: Stage) -> None:
    """Ours: the two requests arrive together, and the interrupt is not lost."""
    client = await stage.client()
    stage.model.plays(says("never", "m1", [], asyncio.Event()))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    asked = {"threadId": thread_id, "turnId": turn_id}
    await client.request("turn/interrupt", asked)
    messages = await client.end_of(turn_id)

    assert outline(messages) == [*PROLOGUE, *INTERRUPTED]
    assert words(await client.read(thread_id)) == [["hi"]]


async def test_a_second_interrupt_changes_nothing(stage: Stage) -> None:
    client = await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, asyncio.Event())
    asked = {"method": "turn/interrupt", "params": {"threadId": thread_id, "turnId": turn_id}}

    await client.peer.send({"id": "a", **asked}, {"id": "b", **asked})
    messages = await client.end_of(turn_id)
    rest = await client.settled()

    ended = [each for each in [*messages, *rest] if each.get("method") == "turn/completed"]
    assert len(ended) == 1


async def test_a_steer_that_comes_with_an_interrupt_is_kept_for_the_next_turn(
    stage: Stage,
) -> None:
    """Ours: the user's message is delivered, though the turn that took it was stopped."""
    client = await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, asyncio.Event())
    steer = {"threadId": thread_id, "input": [text_input("more")], "expectedTurnId": turn_id}
    await client.request("turn/steer", steer)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.end_of(turn_id)
    await client.run(thread_id, "after")

    assert outline(messages) == ["item/completed agentMessage", *MESSAGE, *INTERRUPTED]
    assert [text for _, text in stage.model.requests[1].conversation()][1] == "more"


async def test_a_call_without_output_gets_one_when_its_turn_is_interrupted(stage: Stage) -> None:
    """No provider takes a call without its output back."""
    client = await stage.client()
    stage.model.plays(calls("exec_command", {"cmd": "sleep 600", "login": False}))
    thread_id = await client.start(sandbox="danger-full-access")
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda params: params["item"]["type"] == "commandExecution")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)
    await client.run(thread_id, "after")

    assert stage.model.requests[1].outputs() == {"call-1": "aborted by user"}


async def test_a_call_that_was_done_when_its_turn_is_interrupted_keeps_its_output(
    stage: Stage,
) -> None:
    """The model has not finished speaking then, and has not read it yet."""
    gate, client = asyncio.Event(), await stage.client()
    reply = calls("update_plan", {"plan": []})
    steps = [*reply.steps]
    steps.insert(2, gate)
    stage.model.plays(Reply(steps))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    await client.until("turn/plan/updated")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)
    await client.run(thread_id, "after")

    assert stage.model.requests[1].outputs() == {"call-1": "Plan updated"}


async def test_a_turn_can_be_interrupted_while_it_waits_to_try_again(stage: Stage) -> None:
    stage.configure(retries=5)
    refusal = {"error": {"message": "slow down, try again in 60s"}}
    stage.model.plays(*[refuses(429, refusal)] * 3)
    client = await stage.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    retry = (await client.until("error"))[-1]["params"]
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.end_of(turn_id)

    assert (retry["willRetry"], retry["turnId"]) == (True, turn_id)
    assert outline(messages) == INTERRUPTED


async def test_closing_the_server_interrupts_its_turns(stage: Stage) -> None:
    client = await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, asyncio.Event())
    await stage.restart()
    client = await stage.client()

    turns = (await client.read(thread_id))["turns"]

    assert [(turn["id"], turn["status"]) for turn in turns] == [(turn_id, "interrupted")]


async def test_a_running_turn_can_be_adjusted_without_changing_later_ones(stage: Stage) -> None:
    """Upstream 0.163: `turn/settings/update`."""
    gate, client = asyncio.Event(), await stage.client()
    thread_id, turn_id = await slow_turn(stage, client, gate)
    change = {"threadId": thread_id, "turnId": turn_id, "model": "mock-2", "effort": "high"}

    applied = await client.request("turn/settings/update", change)
    late = await client.request("turn/settings/update", {**change, "turnId": "another"})
    steer = {"threadId": thread_id, "input": [text_input("more")], "expectedTurnId": turn_id}
    await client.request("turn/steer", steer)
    gate.set()
    await client.end_of(turn_id)
    await client.run(thread_id, "after")

    assert (applied, late) == ({"status": "applied"}, {"status": "targetUnavailable"})
    assert [asked.body["model"] for asked in stage.model.requests] == [
        "mock-model",
        "mock-2",
        "mock-model",
    ]
    assert stage.model.requests[1].body["reasoning"] == {"effort": "high"}
    assert not params_of(client.received, "thread/settings/updated")
