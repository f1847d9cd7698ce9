"""Texts and items of any size from a client, and lists that repeat them."""

from __future__ import annotations

import json

import pytest

from tests.harness.model_server import says
from tests.harness.threads import Stage, text_input
from treadle.engine.conversation import model_context
from treadle.protocol.base import JsonValue
from treadle.server.paging import keyset
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS

LONG = "z" * 2_000_000
MODE = {"mode": "default", "settings": {"model": "x", "developer_instructions": LONG}}
TOOL = {"name": "find", "description": LONG * 3, "inputSchema": {"type": "object"}}
TEXTS: list[tuple[str, str, dict[str, JsonValue]]] = [
    ("thread/start", "baseInstructions", {"baseInstructions": LONG}),
    ("thread/start", "developerInstructions", {"developerInstructions": LONG}),
    ("thread/start", "model", {"model": LONG}),
    ("thread/start", "dynamicTools", {"dynamicTools": [TOOL]}),
    ("thread/resume", "dynamicTools", {"dynamicTools": [TOOL]}),
    ("thread/start", "config", {"config": {"developer_instructions": LONG}}),
    ("thread/fork", "developerInstructions", {"developerInstructions": LONG}),
    (
        "thread/settings/update",
        "collaborationMode.settings.developer_instructions",
        {"collaborationMode": MODE},
    ),
    ("thread/settings/update", "model", {"model": LONG}),
    ("thread/goal/set", "objective", {"objective": LONG}),
    ("turn/start", "clientUserMessageId", {"clientUserMessageId": LONG, "input": []}),
    (
        "turn/start",
        "collaborationMode.settings.developer_instructions",
        {"collaborationMode": MODE, "input": []},
    ),
]


@pytest.mark.parametrize(("method", "path", "params"), TEXTS)
async def test_a_setting_that_is_too_long_is_refused_by_its_name(
    stage: Stage, method: str, path: str, params: dict[str, JsonValue]
) -> None:
    """Ours: each change stores all settings again; 60 changes of 10 MB took 655 MB."""
    client = await stage.client(experimentalApi=True)
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("hi"))
    await client.run(thread_id)
    named = {} if method == "thread/start" else {"threadId": thread_id}
    refused = await client.refusal(method, {**named, **params})
    assert path in str(refused)
    assert len(str(refused)) < 1000


async def test_the_preview_of_a_thread_is_cut_in_every_list(stage: Stage) -> None:
    """Ours: twelve first messages of 10 MB made a list of 120 MB, above the limit of a message."""
    text = "y" * (2 * MAX_PREVIEW_CHARACTERS)
    client = await stage.client(experimentalApi=True)
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("hi"))
    await client.run(thread_id, text)
    previews = [(await client.read(thread_id))["preview"]]
    for params in ({}, {"useStateDbOnly": True}, {"searchTerm": "yyy"}):
        previews += [
            each["preview"] for each in (await client.request("thread/list", params))["data"]
        ]
    await stage.restart()
    client = await stage.client(experimentalApi=True)
    listed = await client.request("thread/list", {})
    previews += [each["preview"] for each in listed["data"]]
    resumed = await client.request("thread/resume", {"threadId": thread_id})
    previews.append(resumed["thread"]["preview"])
    assert previews == [text[:MAX_PREVIEW_CHARACTERS]] * 6
    assert resumed["thread"]["turns"][0]["items"][0]["content"][0]["text"] == text


async def test_a_page_of_history_ends_early_and_the_next_one_continues(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyset, "MAX_PAGE_BYTES", 5000)
    client = await stage.client(experimentalApi=True)
    thread_id = await client.start(cwd=str(stage.workspace))
    for _ in range(3):
        stage.model.plays(says("hi"))
        await client.run(thread_id, "y" * 3000)
    for method, count in (("thread/turns/list", 3), ("thread/items/list", 6)):
        entries, cursor = [], None
        while True:
            page = await client.request(method, {"threadId": thread_id, "cursor": cursor})
            assert len(json.dumps(page)) < 10_000
            entries += page["data"]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert len(entries) == count


async def test_the_model_context_of_a_thread_has_a_limit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: 30 injected items of 20 MB took 671 MB."""
    monkeypatch.setattr(model_context, "MAX_HISTORY_BYTES", 200_000)
    client = await stage.client(experimentalApi=True)
    thread_id = await client.start(cwd=str(stage.workspace))
    content = [{"type": "input_text", "text": "x" * 90_000}]
    item = {"type": "message", "role": "user", "content": content}
    for _ in range(2):
        await client.request("thread/inject_items", {"threadId": thread_id, "items": [item]})
    refused = await client.refusal("thread/inject_items", {"threadId": thread_id, "items": [item]})
    assert "items is too large" in str(refused)
    assert "at most 200000 bytes" in str(refused)
    large = {"threadId": thread_id, "input": [text_input("x" * 90_000)]}
    assert "input is too large" in str(await client.refusal("turn/start", large))
    stage.model.plays(says("hi"))
    await client.run(thread_id, "a short message starts a turn, which may compact the history")


async def test_instructions_of_turns_count_toward_the_limit_of_the_context(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: 120 turns with 1 MB of instructions made a context of 120 MB."""
    monkeypatch.setattr(model_context, "MAX_HISTORY_BYTES", 200_000)
    client = await stage.client(experimentalApi=True)
    thread_id = await client.start(cwd=str(stage.workspace))

    def mode(number: int) -> JsonValue:
        text = f"{number}{'z' * 90_000}"
        return {"mode": "default", "settings": {"model": "x", "developer_instructions": text}}

    for number in range(2):
        stage.model.plays(says("hi"))
        await client.run(thread_id, "go on", collaborationMode=mode(number))
    params = {"threadId": thread_id, "input": [text_input("go on")], "collaborationMode": mode(2)}
    refused = await client.refusal("turn/start", params)
    assert "input is too large" in str(refused)
