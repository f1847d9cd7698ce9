"""Resuming a thread: in a new server, by id, by path, with a history, with overrides."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.model_server import calls, says
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    PROLOGUE,
    Stage,
    outline,
    params_of,
    text_input,
    words,
)


async def test_a_thread_continues_in_a_new_server_where_it_stopped(stage: Stage) -> None:
    """Upstream: read without loading, refuse turns before the resume, then carry on."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("final", "msg-0"))
    await client.run(thread_id, "first")
    before = await client.read(thread_id)
    await stage.restart()
    client = await stage.client()
    id_ = {"threadId": thread_id}

    unloaded = await client.read(thread_id)
    listed = (await client.request("thread/list", {}))["data"]
    early = await client.refusal("turn/start", {**id_, "input": [text_input("x")]})
    resumed = await client.request("thread/resume", id_)
    messages = await client.settled()
    turn = await client.run(thread_id, "second")

    assert unloaded["turns"] == resumed["thread"]["turns"] == before["turns"]
    assert [item["id"] for item in before["turns"][0]["items"]][1] == "msg-0"
    assert (unloaded["status"], unloaded["environments"]) == ({"type": "notLoaded"}, None)
    assert [thread["preview"] for thread in listed] == ["first"]
    assert early.message == f"thread not found: {thread_id}"
    assert resumed["thread"]["status"] == {"type": "idle"}
    assert resumed["collaborationMode"]["mode"] == "default"
    assert sorted(outline(messages)) == ["thread/goal/cleared", "thread/status/changed idle"]
    assert outline(turn) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    assert [role for role, _ in stage.model.requests[1].messages()] == [
        "developer",
        "user",
        "user",
        "assistant",
        "user",
    ]
    usage = params_of(turn, "thread/tokenUsage/updated")[-1]["tokenUsage"]["total"]
    assert usage["totalTokens"] == 30


async def test_a_thread_is_resumed_with_the_model_and_effort_it_had(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, model="mock-2", effort="high")
    await stage.restart()
    client = await stage.client()

    kept = await client.request("thread/resume", {"threadId": thread_id})
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    await client.until("thread/closed")
    other = await client.request("thread/resume", {"threadId": thread_id, "model": "mock-3"})
    await client.run(thread_id, "again")

    assert (kept["model"], kept["reasoningEffort"]) == ("mock-2", "high")
    # Naming a model gives up the stored one and its effort.
    assert (other["model"], other["reasoningEffort"]) == ("mock-3", None)
    switch = [text for role, text in stage.model.requests[-1].messages("developer")][-1]
    assert switch.startswith("<model_switch>")
    assert "mock-2" in switch


async def test_a_change_of_folder_is_reported_to_the_model(stage: Stage) -> None:
    other = stage.workspace / "other"
    other.mkdir()
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    await client.run(thread_id)
    await client.run(thread_id, cwd=str(other))
    await client.run(thread_id)

    counts = [
        sum("<environment_context>" in text for _, text in asked.messages())
        for asked in stage.model.requests
    ]
    assert counts == [1, 2, 2]
    assert f"<cwd>{other}</cwd>" in stage.model.requests[1].messages("user")[-2][1]


async def test_a_thread_is_found_by_the_path_of_its_file(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "first")
    path = (await client.read(thread_id))["path"]

    joined = await client.request("thread/resume", {"threadId": "", "path": path})
    await stage.restart()
    client = await stage.client()
    loaded = await client.request("thread/resume", {"threadId": "", "path": path})
    missing = await client.refusal("thread/resume", {"threadId": "", "path": "/no/such.jsonl"})

    assert joined["thread"]["id"] == loaded["thread"]["id"] == thread_id
    assert words(loaded["thread"]) == [["first", "done"]]
    assert missing.message == "no rollout found at /no/such.jsonl"


async def test_a_history_that_the_client_kept_begins_a_new_thread(stage: Stage) -> None:
    client = await stage.client()
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "yes"}],
        },
    ]
    asked = {"threadId": "any", "history": history, "cwd": str(stage.workspace)}
    thread_id = (await client.request("thread/resume", asked))["thread"]["id"]
    await client.run(thread_id, "new")

    assert stage.model.requests[0].conversation()[:2] == [("user", "old"), ("assistant", "yes")]
    assert stage.model.requests[0].conversation()[-1] == ("user", "new")


async def test_a_resume_can_bring_a_page_of_turns_and_cursors_to_the_rest(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    for text in ("one", "two", "three"):
        await client.run(thread_id, text)
    page = {"limit": 1, "itemsView": "full"}
    answer = await client.request(
        "thread/resume", {"threadId": thread_id, "excludeTurns": True, "initialTurnsPage": page}
    )

    assert answer["thread"]["turns"] == []
    assert words({"turns": answer["initialTurnsPage"]["data"]}) == [["three", "done"]]
    rest = await client.request(
        "thread/turns/list",
        {"threadId": thread_id, "cursor": answer["initialTurnsPage"]["nextCursor"]},
    )
    assert words({"turns": rest["data"]}) == [["two", "done"], ["one", "done"]]
    whole = await client.request(
        "thread/turns/list", {"threadId": thread_id, "cursor": answer["turnsBackwardsCursor"]}
    )
    assert len(whole["data"]) == 3
    items = await client.request(
        "thread/items/list",
        {
            "threadId": thread_id,
            "cursor": answer["itemsBackwardsCursor"],
            "sortDirection": "desc",
            "limit": 2,
        },
    )
    assert [entry["item"]["type"] for entry in items["data"]] == ["agentMessage", "userMessage"]


async def test_a_running_thread_can_be_joined_by_resume(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.model.plays(says("part one", "m1", ["part"], gate))
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    await client.until("item/agentMessage/delta")

    joined = (await other.request("thread/resume", {"threadId": thread_id}))["thread"]
    gate.set()
    messages = await other.end_of(turn_id)

    assert [(turn["id"], turn["status"]) for turn in joined["turns"]] == [(turn_id, "inProgress")]
    assert outline(messages)[-4:] == ["item/completed agentMessage", ANSWER[2], *EPILOGUE]


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_fork_goes_its_own_way(stage: Stage, ephemeral: bool) -> None:
    """Upstream: the same turns and items, another id, usage carried on and not counted twice."""
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "one")
    source = await client.read(thread_id)
    asked = {"threadId": thread_id, "ephemeral": ephemeral}
    forked = (await client.request("thread/fork", asked))["thread"]
    (started,) = await client.until("thread/started")
    messages = await client.run(forked["id"], "two")
    await client.run(thread_id, "three")

    assert forked["forkedFromId"] == thread_id
    assert (forked["ephemeral"], forked["path"] is None) == (ephemeral, ephemeral)
    assert forked["turns"] == source["turns"]
    assert started["params"]["thread"] == {**forked, "turns": []}
    assert words(await client.read(forked["id"])) == [["one", "done"], ["two", "done"]]
    assert words(await client.read(thread_id)) == [["one", "done"], ["three", "done"]]
    usage = params_of(messages, "thread/tokenUsage/updated")[0]["tokenUsage"]["total"]
    assert usage["totalTokens"] == 30


async def test_a_fork_may_end_with_a_turn_or_before_it(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    for text in ("one", "two", "three"):
        await client.run(thread_id, text)
    ids = [turn["id"] for turn in (await client.read(thread_id))["turns"]]

    async def fork(**cut: str) -> list[list[str]]:
        forked = (await client.request("thread/fork", {"threadId": thread_id, **cut}))["thread"]
        await client.run(forked["id"], "next")
        heard = [text for role, text in stage.model.requests[-1].conversation() if role == "user"]
        assert heard == [turn[0] for turn in words(forked)] + ["next"]
        return words(forked)

    assert await fork(lastTurnId=ids[1]) == [["one", "done"], ["two", "done"]]
    assert await fork(beforeTurnId=ids[1]) == [["one", "done"]]
    unknown = {"threadId": thread_id, "lastTurnId": "nope"}
    assert (await client.refusal("thread/fork", unknown)).kind == "turnNotFound"


@pytest.mark.parametrize("ephemeral", [False, True])
@pytest.mark.parametrize("source", [{}, {"ephemeral": True}])
async def test_a_fork_of_a_running_turn_records_its_interruption(
    stage: Stage, source: dict[str, bool], ephemeral: bool
) -> None:
    """Upstream: the fork records what `turn/interrupt` records; the source continues.

    A provider refuses a history that ends in a call without an output.
    """
    client = await stage.client()
    asking = {"approvalPolicy": "untrusted", "cwd": str(stage.workspace)}
    thread_id = await client.start(**asking, **source)
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}))
    turn_id = await client.start_turn(thread_id, "run it")
    approval = (await client.until("item/commandExecution/requestApproval"))[-1]
    asked = {"threadId": thread_id, "ephemeral": ephemeral}
    forked = (await client.request("thread/fork", asked))["thread"]
    await client.run(forked["id"], "after the fork")
    request = stage.model.requests[-1]
    await client.peer.send({"id": approval["id"], "result": {"decision": "decline"}})
    await client.end_of(turn_id)

    assert [turn["status"] for turn in forked["turns"]] == ["interrupted"]
    assert request.outputs() == {"call-1": "aborted by user"}
    said = [text for role, text in request.conversation() if role == "user"]
    assert [said[0], said[-1]] == ["run it", "after the fork"]
    assert said[1].startswith("<turn_aborted>")
    assert [turn["status"] for turn in (await client.read(thread_id))["turns"]] == ["completed"]


async def test_a_turn_that_its_server_did_not_finish_ends_as_interrupted(stage: Stage) -> None:
    """Ours: the items it had are kept, and it says why it ended."""
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(says("never", "m1", ["ne"], asyncio.Event()))
    turn_id = await client.start_turn(thread_id, "doomed")
    await client.until("item/agentMessage/delta")
    thread = stage.server.threads.get(thread_id)
    # A server that is killed writes nothing more: its journal ends here.
    thread.journal.close()
    await stage.restart()
    client = await stage.client()

    resumed = (await client.request("thread/resume", {"threadId": thread_id}))["thread"]
    await client.run(thread_id, "next")

    (turn,) = resumed["turns"]
    assert (turn["id"], turn["status"]) == (turn_id, "interrupted")
    assert turn["error"]["message"] == "the server ended while this turn was running"
    assert words(resumed) == [["doomed"]]
    assert stage.model.requests[-1].conversation()[1][1].startswith("<turn_aborted>")
