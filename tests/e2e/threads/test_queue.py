"""`thread/queue/*`: input that becomes turns one after the other, also under another server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.model_server import Reply, refuses, says
from tests.harness.scripted import client_of, playing
from tests.harness.stalls import stalled
from tests.harness.threads import Client, Stage, params_of, text_input
from treadle.engine.conversation import input as engine_input
from treadle.engine.conversation.queue import SubmissionQueue
from treadle.protocol.base import JsonValue


def queued(thread_id: str, name: str, **more: JsonValue) -> JsonValue:
    input_ = [text_input(f"queued {name}")]
    return {"threadId": thread_id, "clientUserMessageId": name, "input": input_, **more}


async def add(client: Client, thread_id: str, *names: str) -> list[str]:
    """Queue input, and return the ids."""
    ids = []
    for name in names:
        added = await client.request("thread/queue/add", queued(thread_id, name))
        ids.append(added["queuedSubmission"]["id"])
    return ids


async def listed(client: Client, thread_id: str) -> list[str]:
    answer = await client.request("thread/queue/list", {"threadId": thread_id})
    return [each["clientUserMessageId"] for each in answer["data"]]


async def in_a_turn(stage: Stage, *replies: Reply) -> tuple[Client, str, str, asyncio.Event]:
    """Return a client, a thread, its active turn, and what ends the turn."""
    gate = asyncio.Event()
    stage.model.plays(says("slow", "m0", ["part"], gate), *replies)
    client = await stage.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id, "slow")
    await client.until("item/agentMessage/delta")
    return client, thread_id, turn_id, gate


def users(stage: Stage) -> list[str]:
    """Return the last message of the user in each request."""
    return [request.messages("user")[-1][1] for request in stage.model.requests]


async def test_a_thread_whose_queued_turn_is_about_to_begin_stays_in_memory(stage: Stage) -> None:
    """Without it the input waited, until a client started the queue again."""
    image = stage.workspace / "image.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n")
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("ok"))
    parts: JsonValue = [{"type": "localImage", "path": str(image)}]
    with stalled(engine_input, "read_for_model") as stall:
        await client.request("thread/queue/add", {**queued(thread_id, "a"), "input": parts})
        await stall.reached()
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        stage.server.threads.release_idle()
    await client.until("thread/closed")
    (turn,) = (await client.read(thread_id))["turns"]
    assert turn["status"] == "completed"


async def test_input_becomes_turns_in_its_order(stage: Stage) -> None:
    """Upstream 0.163."""
    client, thread_id, turn_id, gate = await in_a_turn(stage)
    await add(client, thread_id, "a", "b")
    assert await listed(client, thread_id) == ["a", "b"]
    client.unread.clear()
    gate.set()
    await client.end_of(turn_id)
    first = await client.until("turn/completed")
    second = await client.until("turn/completed")

    assert users(stage) == ["slow", "queued a", "queued b"]
    assert await listed(client, thread_id) == []
    for messages in (first, second):
        methods = [message["method"] for message in messages]
        assert methods.index("thread/queue/changed") < methods.index("turn/started")


async def test_an_idle_thread_starts_the_turn_after_the_answer(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await add(client, thread_id, "now")
    await client.until("turn/completed")
    assert users(stage) == ["queued now"]
    read = await client.request("thread/read", {"threadId": thread_id, "includeTurns": True})
    (turn,) = read["thread"]["turns"]
    assert turn["items"][0]["clientId"] == "now"


async def test_the_queue_is_changed_while_it_waits(stage: Stage) -> None:
    client, thread_id, turn_id, gate = await in_a_turn(stage)
    a, b, c = await add(client, thread_id, "a", "b", "c")
    order = {"threadId": thread_id, "queuedSubmissionIds": [c, b, a]}
    assert await client.request("thread/queue/reorder", order) == {}
    changed = await client.request(
        "thread/queue/update",
        {"threadId": thread_id, "queuedSubmissionId": c, "input": [text_input("changed")]},
    )
    gone = {"threadId": thread_id, "queuedSubmissionId": b}
    assert await client.request("thread/queue/delete", gone) == {"deleted": True}
    assert await client.request("thread/queue/delete", gone) == {"deleted": False}
    gate.set()
    await client.end_of(turn_id)
    await client.until("turn/completed")
    await client.until("turn/completed")

    assert changed["queuedSubmission"]["clientUserMessageId"] == "c"
    assert users(stage) == ["slow", "changed", "queued a"]


@pytest.mark.parametrize("end", ["interrupt", "failure"])
async def test_an_interrupt_or_a_failure_stops_the_queue(stage: Stage, end: str) -> None:
    """Ours: the user decides whether the rest still makes sense."""
    refused = refuses(400, {"error": {"message": "no"}})
    client, thread_id, turn_id, gate = await in_a_turn(stage, refused)
    _, b = await add(client, thread_id, "a", "b")
    if end == "interrupt":
        stage.model.replies.clear()
        await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        left = ["a", "b"]
    else:
        gate.set()
        await client.end_of(turn_id)
        left = ["b"]
    await client.until("turn/completed", lambda params: params["turn"]["status"] != "completed")
    await client.settled()
    assert await listed(client, thread_id) == left

    params = {"threadId": thread_id, "queuedSubmissionId": b}
    answer = await client.request("thread/queue/start", params)
    await client.end_of(answer["turn"]["id"])
    assert users(stage)[1 if end == "interrupt" else 2] == "queued b"


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (
            "add",
            {"clientUserMessageId": "x", "input": []},
            "only user input can be added to the user-message queue",
        ),
        (
            "update",
            {"queuedSubmissionId": "none", "input": [text_input("x")]},
            "no such queued submission",
        ),
        (
            "reorder",
            {"queuedSubmissionIds": []},
            "queue reorder must include every queued submission exactly once",
        ),
        ("start", {}, "thread already has an active or pending turn"),
        (
            "add",
            {"clientUserMessageId": "x", "input": [text_input("x" * 5 * 1024 * 1024)]},
            "the queue would have",
        ),
    ],
)
async def test_an_invalid_change_is_refused_and_changes_nothing(
    stage: Stage, method: str, params: JsonValue, message: str
) -> None:
    client, thread_id, _, gate = await in_a_turn(stage)
    await add(client, thread_id, "a")
    error = await client.refusal(f"thread/queue/{method}", {"threadId": thread_id, **params})
    assert (error.code, error.message[: len(message)]) == (-32600, message)
    assert await listed(client, thread_id) == ["a"]
    gate.set()


async def test_input_whose_file_is_gone_stays_with_a_warning(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    missing = [{"type": "localImage", "path": "/missing.png"}]
    await client.request("thread/queue/add", queued(thread_id, "a", input=missing))
    messages = await client.until("warning", lambda params: "queue" in params["message"])
    (warning,) = [
        each
        for each in params_of(messages, "warning")
        if "the queue of the thread" in each["message"]
    ]
    assert "/missing.png" in warning["message"]
    assert await listed(client, thread_id) == ["a"]


async def test_the_queue_survives_the_server(home: Path) -> None:
    async with playing(home, ["first"]) as server, client_of(server) as client:
        thread_id = await client.start()
        await client.run(thread_id, "hi")
        missing = [{"type": "localImage", "path": str(home / "late.png")}]
        await client.request("thread/queue/add", queued(thread_id, "a", input=missing))
        await client.request("thread/queue/add", queued(thread_id, "b"))
        await client.until("warning", lambda params: "queue" in params["message"])
    async with playing(home, ["second"]) as server, client_of(server) as client:
        assert await listed(client, thread_id) == ["a", "b"]
        await client.request("thread/resume", {"threadId": thread_id})
        await client.settled()
        assert await listed(client, thread_id) == ["a", "b"]
        await client.request(
            "thread/queue/start",
            {
                "threadId": thread_id,
                "queuedSubmissionId": (
                    await client.request("thread/queue/list", {"threadId": thread_id})
                )["data"][1]["id"],
            },
        )
        messages = await client.until("turn/completed")
        assert params_of(messages, "turn/completed")[0]["turn"]["status"] == "completed"
        assert await listed(client, thread_id) == ["a"]


async def test_input_that_a_turn_took_before_the_server_was_killed_is_not_listed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its removal is stored after the turn: a kill in between leaves it in both."""
    client = await stage.client()
    thread_id = await client.start()
    with monkeypatch.context() as patched:
        patched.setattr(SubmissionQueue, "remove", lambda _queue, _id: True)
        await add(client, thread_id, "a")
        await client.until("turn/completed")
    await stage.restart()

    client = await stage.client()
    assert await listed(client, thread_id) == []
    await client.request("thread/resume", {"threadId": thread_id})
    assert await listed(client, thread_id) == []


async def test_a_fork_has_its_own_queue(stage: Stage) -> None:
    client, thread_id, turn_id, gate = await in_a_turn(stage)
    await add(client, thread_id, "a")
    fork = await client.request("thread/fork", {"threadId": thread_id})
    assert await listed(client, fork["thread"]["id"]) == []
    gate.set()
    await client.end_of(turn_id)
