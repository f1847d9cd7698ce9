"""When items began and ended, and how many tokens messages have."""

from __future__ import annotations

import pytest

from tests.harness.model_server import Reply, calls, completed, created, done, says
from tests.harness.threads import Client, Stage, params_of
from treadle.protocol.base import JsonValue

FREE: JsonValue = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
METADATA = "internal_chat_message_metadata_passthrough"


def times(item: JsonValue) -> tuple[JsonValue, JsonValue]:
    return item["startedAtMs"], item["completedAtMs"]


async def everywhere(client: Client, thread_id: str) -> list[list[JsonValue]]:
    """The items of a thread as each method returns them."""
    read = await client.read(thread_id)
    named = {"threadId": thread_id}
    listed = await client.request("thread/items/list", named)
    turns = await client.request("thread/turns/list", {**named, "itemsView": "full"})
    for entry in listed["data"]:
        assert times(entry) == times(entry["item"])
    return [
        read["turns"][0]["items"],
        [entry["item"] for entry in listed["data"]],
        turns["data"][0]["items"],
    ]


async def test_items_have_their_times_wherever_they_are_shown(stage: Stage) -> None:
    """Upstream: those of the notifications, live, stored, and after a restart."""
    stage.model.plays(calls("exec_command", {"cmd": "echo hi"}), says("done", "m1"))
    client = await stage.client()
    thread_id = await client.start(**FREE)
    messages = await client.run(thread_id, "go")

    started = params_of(messages, "item/started")
    ended = params_of(messages, "item/completed")
    items = [params["item"] for params in ended]
    assert [item["type"] for item in items] == ["userMessage", "commandExecution", "agentMessage"]
    assert [times(each["item"]) for each in started] == [
        (each["startedAtMs"], None) for each in started
    ]
    assert [times(item) for item in items] == [
        (begun["startedAtMs"], over["completedAtMs"])
        for begun, over in zip(started, ended, strict=True)
    ]
    assert all(began <= over for began, over in map(times, items))
    (end,) = params_of(messages, "turn/completed")
    assert end["turn"]["items"] == items[-1:]
    assert await everywhere(client, thread_id) == [items] * 3

    await stage.restart()
    client = await stage.client()
    assert await everywhere(client, thread_id) == [items] * 3
    resumed = await client.request("thread/resume", {"threadId": thread_id})
    assert resumed["thread"]["turns"][0]["items"] == items


async def test_items_of_ephemeral_threads_have_times(stage: Stage) -> None:
    stage.model.plays(says("done", "m1"))
    client = await stage.client()
    thread_id = await client.start(ephemeral=True)
    messages = await client.run(thread_id, "go")

    items = [params["item"] for params in params_of(messages, "item/completed")]
    assert (await client.read(thread_id))["turns"][0]["items"] == items


async def test_a_command_that_outlives_its_turn_keeps_its_start(stage: Stage) -> None:
    """Ours: its item ends with another turn, or with none."""
    stage.model.plays(
        calls("exec_command", {"cmd": "cat", "tty": True, "yield_time_ms": 250}), says("on", "m1")
    )
    client = await stage.client()
    thread_id = await client.start(**FREE)
    messages = await client.run(thread_id, "go")
    began = params_of(messages, "item/started")[1]["startedAtMs"]
    joined = await stage.client()
    await joined.request("thread/resume", {"threadId": thread_id})
    seen = await joined.until("item/started")

    await client.request("thread/backgroundTerminals/clean", {"threadId": thread_id})
    after = await client.until("item/completed")

    assert times(seen[-1]["params"]["item"]) == (began, None)
    over = after[-1]["params"]
    assert times(over["item"]) == (began, over["completedAtMs"])


@pytest.mark.parametrize(
    ("metadata", "count"),
    [
        ({"content_token_count": 7}, 7),
        ({"content_token_count": 0}, 0),
        ({"content_token_count": -1}, None),
        ({"content_token_count": "7"}, None),
        ({"content_token_count": 1.5}, None),
        ({"content_token_count": True}, None),
        ({"content_token_count": 1 << 60}, None),
        ({}, None),
        ([7], None),
    ],
)
async def test_the_tokens_of_a_message_are_those_that_the_provider_reports(
    stage: Stage, metadata: JsonValue, count: int | None
) -> None:
    """Upstream: this field of a message of the agent; null in all other cases."""
    text = [{"type": "output_text", "text": "hello"}]
    item = {"type": "message", "role": "assistant", "id": "m1", "content": text}
    thought = {"type": "reasoning", "id": "r1", "summary": [], METADATA: metadata}
    steps = [done(thought), done({**item, METADATA: metadata})]
    stage.model.plays(Reply([created(), *steps, completed()]))
    client = await stage.client()

    messages = await client.run(await client.start(), "go")

    ended = params_of(messages, "item/completed")
    assert [params["contentTokenCount"] for params in ended] == [None, None, count]
