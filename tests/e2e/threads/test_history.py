"""Reading a thread in pages, in both directions, and searching it."""

from __future__ import annotations

import pytest

from tests.harness.model_server import calls, says
from tests.harness.threads import Client, Stage, words
from treadle.protocol.base import JsonValue


async def spoken(stage: Stage, client: Client, *texts: str) -> str:
    """A thread with these messages."""
    thread_id = await client.start()
    for text in texts:
        # The same id in every turn: providers name items as they like.
        stage.model.plays(says(f"re: {text}", "m1"))
        await client.run(thread_id, text)
    return thread_id


async def test_turns_are_paged_in_both_directions(stage: Stage) -> None:
    """Upstream: the backwards cursor includes the entry that it names."""
    client = await stage.client()
    thread_id = await spoken(stage, client, "one", "two", "three", "four")

    async def page(**params: JsonValue) -> tuple[list[str], JsonValue]:
        answer = await client.request("thread/turns/list", {"threadId": thread_id, **params})
        return [turn[0] for turn in words({"turns": answer["data"]})], answer

    newest, first = await page(limit=2)
    older, second = await page(limit=2, cursor=first["nextCursor"])
    back, _ = await page(cursor=second["backwardsCursor"], sortDirection="asc")

    assert (newest, older) == (["four", "three"], ["two", "one"])
    assert second["nextCursor"] is None
    assert back == ["two", "three", "four"]
    assert (await page(sortDirection="asc", limit=1))[0] == ["one"]
    bad = await client.refusal("thread/turns/list", {"threadId": thread_id, "cursor": "nope"})
    assert (bad.code, bad.kind) == (-32600, "invalidCursor")


@pytest.mark.parametrize(
    ("view", "shown"), [("notLoaded", []), ("summary", ["hi", "re: hi"]), (None, ["hi", "re: hi"])]
)
async def test_a_turn_shows_as_many_items_as_its_view_says(
    stage: Stage, view: str | None, shown: list[str]
) -> None:
    client = await stage.client()
    thread_id = await spoken(stage, client, "hi")
    answer = await client.request("thread/turns/list", {"threadId": thread_id, "itemsView": view})

    assert words({"turns": answer["data"]}) == [shown]
    assert answer["data"][0]["itemsView"] == (view or "summary")


async def test_items_are_paged_across_turns_though_their_ids_repeat(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await spoken(stage, client, "one", "two", "three")
    found: list[str] = []
    cursor = None
    while True:
        asked = {"threadId": thread_id, "limit": 2, "cursor": cursor}
        page = await client.request("thread/items/list", asked)
        found += [entry["item"]["id"] for entry in page["data"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break

    whole = await client.read(thread_id)
    assert found == [item["id"] for turn in whole["turns"] for item in turn["items"]]
    turn = whole["turns"][1]
    of_turn = {"threadId": thread_id, "turnId": turn["id"]}
    page = await client.request("thread/items/list", of_turn)
    assert [entry["item"] for entry in page["data"]] == turn["items"]
    after = {**of_turn, "cursor": {"type": "item", "itemId": turn["items"][0]["id"]}}
    page = await client.request("thread/items/list", after)
    assert [entry["item"]["id"] for entry in page["data"]] == ["m1"]


async def test_items_are_read_by_their_ids(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await spoken(stage, client, "one", "two")
    turn = (await client.read(thread_id))["turns"][1]
    asked = {"threadId": thread_id, "turnId": turn["id"], "itemIds": ["m1", "unknown"]}

    answer = await client.request("thread/items/read", asked)
    none = await client.refusal("thread/items/read", {**asked, "itemIds": []})

    assert [entry["item"]["text"] for entry in answer["data"]] == ["re: two"]
    assert [entry["turnId"] for entry in answer["data"]] == [turn["id"]]
    assert none.message == "itemIds must contain 1 to 100 IDs"


async def test_threads_are_found_by_what_was_said_in_them(stage: Stage) -> None:
    client = await stage.client()
    first = await spoken(stage, client, "hello", "the needle is here")
    await spoken(stage, client, "nothing of the kind")

    answer = await client.request("thread/search", {"searchTerm": "NEEDLE"})

    assert [result["thread"]["id"] for result in answer["data"]] == [first]
    assert "needle" in answer["data"][0]["snippet"]
    blank = await client.refusal("thread/search", {"searchTerm": " "})
    assert blank.message == "searchTerm must not be empty"


async def test_every_occurrence_in_a_thread_is_found_with_its_place(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await spoken(stage, client, "\N{GRINNING FACE} Needle", "hay")
    turn = (await client.read(thread_id))["turns"][0]
    asked = {"threadId": thread_id, "searchTerm": "needle"}

    found = await client.request("thread/searchOccurrences", asked)
    first = await client.request("thread/searchOccurrences", {**asked, "limit": 1})

    assert [each["itemId"] for each in found["data"]] == [item["id"] for item in turn["items"]]
    assert found["data"][0] == {
        "itemId": turn["items"][0]["id"],
        "snippet": "\N{GRINNING FACE} Needle",
        # In UTF-16 code units, of which the face has two.
        "snippetMatchRange": {"start": 3, "end": 9},
        "turnCursor": found["data"][0]["turnCursor"],
        "turnId": turn["id"],
    }
    assert (len(first["data"]), first["nextCursor"]) == (1, "1")
    place = {"threadId": thread_id, "cursor": found["data"][0]["turnCursor"], "limit": 1}
    page = await client.request("thread/turns/list", place)
    assert page["data"][0]["id"] == turn["id"]


async def test_the_timeline_has_starts_items_and_ends_of_turns(stage: Stage) -> None:
    """Upstream 0.169: the latest entries, in order; the cursor leads to those before them."""
    client = await stage.client()
    thread_id = await spoken(stage, client, "one", "two")
    about = {"threadId": thread_id}
    whole = await client.request("thread/timeline/list", about)
    turns = (await client.request("thread/read", {**about, "includeTurns": True}))["thread"][
        "turns"
    ]
    pages = [await client.request("thread/timeline/list", {**about, "limit": 3})]
    while cursor := pages[-1]["nextCursor"]:
        params = {**about, "limit": 3, "cursor": cursor}
        pages.append(await client.request("thread/timeline/list", params))

    kinds = [entry["type"] for entry in whole["data"]]
    assert kinds == ["turnStarted", "item", "item", "turnCompleted"] * 2
    assert [entry["position"] for entry in whole["data"]] == list(range(1, 9))
    assert [entry["turnId"] for entry in whole["data"]] == [
        turn["id"] for turn in turns for _ in range(4)
    ]
    assert [entry["item"] for entry in whole["data"] if entry["type"] == "item"] == [
        item for turn in turns for item in turn["items"]
    ]
    end = whole["data"][-1]
    assert (end["status"], end["durationMs"]) == ("completed", turns[1]["durationMs"])
    assert whole["activeRealtimeSessionAtPageStart"] is None
    assert [entry for page in pages[::-1] for entry in page["data"]] == whole["data"]
    bad = await client.refusal("thread/timeline/list", {**about, "cursor": "nope"})
    assert bad.kind == "invalidCursor"


async def test_outputs_of_successful_commands_can_be_fetched_later(stage: Stage) -> None:
    """Upstream 0.169: `deferOutput` of one turn."""
    client = await stage.client()
    policy: JsonValue = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
    thread_id = await client.start(**policy)
    for number, command in enumerate(("echo out", "echo out; exit 3", "true")):
        stage.model.plays(calls("exec_command", {"cmd": command}, f"c{number}"))
    messages = await client.run(thread_id, "go")
    turn_id = messages[-1]["params"]["turn"]["id"]
    about = {"threadId": thread_id, "turnId": turn_id}
    params = {**about, "deferOutput": {"commandExecution": True}}
    listed = (await client.request("thread/items/list", params))["data"]
    read = await client.request("thread/items/read", {**about, "itemIds": ["c0"]})
    whole = (await client.request("thread/items/list", about))["data"]
    refused = await client.refusal(
        "thread/items/list", {"threadId": thread_id, "deferOutput": {"commandExecution": True}}
    )

    outputs = {
        entry["item"]["id"]: (entry["item"]["aggregatedOutput"], entry.get("outputDeferred"))
        for entry in listed
        if entry["item"]["type"] == "commandExecution"
    }
    assert outputs == {"c0": (None, True), "c1": ("out\n", None), "c2": (None, None)}
    assert read["data"][0]["item"]["aggregatedOutput"] == "out\n"
    assert not any("outputDeferred" in entry for entry in whole)
    assert refused.data == {"kind": "invalidParams", "path": "deferOutput"}
