"""`thread/attachment/*`: upstream's answers, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.threads import UNKNOWN_THREAD
from tests.server.organization.ground import Ground, ground
from treadle.protocol.base import JsonValue

PR = {"attachmentType": "pr", "identityKey": "1"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground(tmp_path) as found:
        yield found


async def test_an_attachment_is_added_once(place: Ground) -> None:
    thread_id = place.threads[0]
    added = await place.request("thread/attachment/add", threadId=thread_id, **PR, payload={"x": 1})
    published = (await place.client.until("thread/attachment/updated"))[-1]["params"]
    again = await place.request("thread/attachment/add", threadId=thread_id, **PR, payload={"x": 2})
    await place.restart()
    listed = await place.request("thread/attachment/list", threadId=thread_id)

    attachment = added["attachment"]
    assert added["outcome"] == "created"
    assert attachment["payload"] == {"x": 1}
    assert again == {"attachment": attachment, "outcome": "existing"}
    assert listed == {"data": [attachment], "nextCursor": None}
    assert published == {
        "threadId": thread_id,
        **PR,
        "attachmentId": attachment["id"],
        "operation": "created",
    }


async def test_the_threads_of_an_attachment_are_found(place: Ground) -> None:
    for thread_id in place.threads:
        await place.request("thread/attachment/add", threadId=thread_id, **PR, payload=None)
    await place.request("thread/archive", threadId=place.threads[1])

    async def owners(**params: JsonValue) -> list[tuple[int, bool]]:
        answer = await place.request("thread/attachmentOwner/list", **PR, **params)
        return [
            (place.threads.index(each["threadId"]), each["archived"]) for each in answer["data"]
        ]

    assert await owners() == [(0, False), (1, True), (2, False)]
    assert await owners(archived=True) == [(1, True)]
    assert await owners(archived=False) == [(0, False), (2, False)]
    page = await place.request("thread/attachmentOwner/list", **PR, limit=1)
    assert await owners(cursor=page["nextCursor"]) == [(1, True), (2, False)]
    await place.request("thread/delete", threadId=place.threads[0])
    assert await owners() == [(1, True), (2, False)]


async def test_an_attachment_is_removed_once(place: Ground) -> None:
    thread_id = place.threads[0]
    await place.request("thread/attachment/add", threadId=thread_id, **PR, payload="s")
    await place.client.until("thread/attachment/updated")
    await place.request("thread/attachment/remove", threadId=thread_id, **PR)
    published = (await place.client.until("thread/attachment/updated"))[-1]["params"]
    await place.request("thread/attachment/remove", threadId=thread_id, **PR)

    assert published["operation"] == "deleted"
    assert (await place.request("thread/attachment/list", threadId=thread_id))["data"] == []


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"attachmentType": ""}, "attachmentType must not be empty"),
        ({"identityKey": " "}, "identityKey must not be empty"),
        ({"identityKey": "x" * 1025}, "identityKey must have at most 1024"),
        ({"payload": "x" * 65_536}, "attachment payload must not exceed 65536 bytes"),
        ({"threadId": UNKNOWN_THREAD}, f"thread not found: {UNKNOWN_THREAD}"),
    ],
)
async def test_a_wrong_request_is_refused_and_changes_nothing(
    place: Ground, params: JsonValue, message: str
) -> None:
    given = {"threadId": place.threads[0], **PR, "payload": 1, **params}
    _, said = await place.refused("thread/attachment/add", **given)

    assert message in said
    listed = await place.request("thread/attachment/list", threadId=place.threads[0])
    assert listed["data"] == []


async def test_a_page_of_large_attachments_ends_early(
    place: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 attachments of 64 KiB would not fit into a message that clients can read."""
    monkeypatch.setattr("treadle.server.handlers.attachment.MAX_PAGE_BYTES", 3_000)
    thread = {"threadId": place.threads[0]}
    for number in range(3):
        about = {"attachmentType": "pr", "identityKey": str(number), "payload": "x" * 1_000}
        await place.request("thread/attachment/add", **thread, **about)
    pages: list[list[str]] = []
    cursor: JsonValue = None
    while cursor is not None or not pages:
        answer = await place.request("thread/attachment/list", **thread, cursor=cursor)
        pages.append([each["identityKey"] for each in answer["data"]])
        cursor = answer["nextCursor"]

    assert pages == [["0", "1"], ["2"]]
