"""Compaction of the model context: on request, at its limit, and when it fails."""

from __future__ import annotations

import asyncio

from tests.harness.model_server import fails, refuses, says
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    FAILURE,
    PROLOGUE,
    Stage,
    outline,
    params_of,
    text_input,
    words,
)

COMPACTION = [
    "item/started contextCompaction",
    "thread/tokenUsage/updated",
    "item/completed contextCompaction",
    "thread/compacted",
]
NOTES = "NOTES: the user said hello"


async def test_a_compaction_is_a_turn_that_takes_no_input(stage: Stage) -> None:
    """Upstream: its order, the refused steer, and a request without tools."""
    gate, client = asyncio.Event(), await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "hello there")
    stage.model.plays(says(NOTES, "m1", [NOTES], gate))

    assert await client.request("thread/compact/start", {"threadId": thread_id}) == {}
    begun = await client.until("item/started")
    turn_id = begun[-1]["params"]["turnId"]
    steer = {"threadId": thread_id, "input": [text_input("x")], "expectedTurnId": turn_id}
    refused = await client.refusal("turn/steer", steer)
    gate.set()
    messages = begun + await client.end_of(turn_id)
    await client.run(thread_id, "after")

    assert outline(messages) == [*PROLOGUE[:2], *COMPACTION, *EPILOGUE]
    assert refused.message == refused.data["message"] == "cannot steer a compact turn"
    assert refused.data["codexErrorInfo"] == {"activeTurnNotSteerable": {"turnKind": "compact"}}
    asked = stage.model.requests[1].body
    assert (asked["tools"], asked["parallel_tool_calls"]) == ([], False)
    conversation = stage.model.requests[2].conversation()
    assert [role for role, _ in conversation] == ["user", "user", "user"]
    assert conversation[0] == ("user", "hello there")
    assert conversation[1][1].endswith(NOTES)
    assert conversation[2] == ("user", "after")
    assert words(await client.read(thread_id)) == [
        ["hello there", "done"],
        ["contextCompaction"],
        ["after", "done"],
    ]


async def test_the_model_sees_the_same_after_a_compaction_and_a_restart(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "hello")
    stage.model.plays(says(NOTES, "m1"))
    await client.request("thread/compact/start", {"threadId": thread_id})
    await client.until("turn/completed")
    await client.run(thread_id, "one")
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    await client.run(thread_id, "two")

    before, after = stage.model.requests[2].body["input"], stage.model.requests[3].body["input"]
    assert after[: len(before)] == before
    assert stage.model.requests[3].conversation()[-3:] == [
        ("user", "one"),
        ("assistant", "done"),
        ("user", "two"),
    ]


async def test_a_full_context_is_compacted_before_the_next_message(stage: Stage) -> None:
    """Upstream: the compaction comes first, then the user's message and the answer."""
    stage.configure("model_auto_compact_token_limit = 1000")
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(says("long", "m1", tokens=(900, 200)), says(NOTES, "m2", tokens=(1000, 20)))
    await client.run(thread_id, "fill it")
    messages = await client.run(thread_id, "next")
    again = await client.run(thread_id, "and next")

    assert outline(messages) == [*PROLOGUE[:2], *COMPACTION, *PROLOGUE[2:], *ANSWER, *EPILOGUE]
    assert outline(again) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    assert stage.model.requests[2].conversation()[-2:] == [
        ("user", stage.model.requests[2].conversation()[-2][1]),
        ("user", "next"),
    ]
    assert NOTES in stage.model.requests[2].conversation()[-2][1]


async def test_a_failed_compaction_leaves_the_thread_as_it_was(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "hello")
    stage.model.plays(refuses(500, {}), says("  ", "m1"))
    failed = []
    for _ in range(2):
        await client.request("thread/compact/start", {"threadId": thread_id})
        failed.append(outline(await client.until("turn/completed"))[-3:])
    await client.run(thread_id, "after")

    assert failed == [FAILURE, FAILURE]
    assert stage.model.requests[-1].conversation() == [
        ("user", "hello"),
        ("assistant", "done"),
        ("user", "after"),
    ]


async def test_an_overflow_is_followed_by_a_compaction(stage: Stage) -> None:
    """Upstream: the turn fails, and the next one makes room first."""
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "hello")
    stage.model.plays(fails("context_length_exceeded", "too long"), says(NOTES, "m1"))
    failed = await client.run(thread_id, "too much")
    messages = await client.run(thread_id, "next")

    assert params_of(failed, "error")[0]["error"]["codexErrorInfo"] == "contextWindowExceeded"
    assert outline(messages) == [*PROLOGUE[:2], *COMPACTION, *PROLOGUE[2:], *ANSWER, *EPILOGUE]


async def test_a_history_too_long_to_summarize_loses_its_older_half(stage: Stage) -> None:
    """Ours, as upstream drops the oldest items one by one."""
    client = await stage.client()
    thread_id = await client.start()
    for text in ("one", "two", "three"):
        await client.run(thread_id, text)
    stage.model.plays(fails("context_length_exceeded", "too long"), says(NOTES, "m1"))
    await client.request("thread/compact/start", {"threadId": thread_id})
    messages = await client.until("turn/completed")

    assert outline(messages)[-2:] == EPILOGUE
    first, second = (asked.body["input"] for asked in stage.model.requests[-2:])
    assert len(second) < len(first)
    assert second[-1] == first[-1]


async def test_nothing_can_be_compacted_while_a_turn_runs(stage: Stage) -> None:
    gate, client = asyncio.Event(), await stage.client()
    stage.model.plays(says("done", "m1", ["d"], gate))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    refused = await client.refusal("thread/compact/start", {"threadId": thread_id})
    gate.set()
    await client.end_of(turn_id)

    assert refused.kind == "invalidParams"
