"""`threadSection/*` and `thread/section/move`: upstream's answers, unless a test says otherwise."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.threads import UNKNOWN_THREAD, Client
from tests.server.organization.ground import Ground, ground
from tests.server.serving import client_of, running
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue

PINNED = {"id": "01984de2-8f74-7c91-a3b2-5c5e937cf318", "name": "Pinned", "appearance": None}
FILE = "organization.sqlite"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground(tmp_path) as found:
        yield found


async def create(place: Ground, name: str = "A") -> str:
    """Create a section and return its id."""
    created = await place.request("threadSection/create", name=name)
    section_id: str = created["section"]["id"]
    return section_id


async def test_the_pinned_section_exists_before_anything_is_written(place: Ground) -> None:
    listed = await place.request("threadSection/list")

    assert listed == {"data": [PINNED], "nextCursor": None}
    assert not (place.stage.home / FILE).exists()


async def test_sections_are_created_changed_and_deleted(place: Ground) -> None:
    look = {"color": "red", "icon": "x"}
    created = await place.request("threadSection/create", name=" A ", appearance=look)
    section = created["section"]
    renamed = await place.request("threadSection/update", sectionId=section["id"], name="B")
    plain = await place.request(
        "threadSection/update", sectionId=section["id"], name="C", appearance=None
    )
    listed = await place.request("threadSection/list")
    await place.request("threadSection/delete", sectionId=section["id"])

    assert (section["name"], section["appearance"]) == ("A", look)
    assert (renamed["section"]["name"], renamed["section"]["appearance"]) == ("B", look)
    assert plain["section"]["appearance"] is None
    assert listed["data"] == [PINNED, plain["section"]]
    assert (await place.request("threadSection/list"))["data"] == [PINNED]


async def test_threads_have_a_place_in_their_section(place: Ground) -> None:
    first, second, third = place.threads
    section = await create(place)
    for thread_id, before in ((first, None), (second, None), (third, second)):
        await place.request(
            "thread/section/move", threadId=thread_id, sectionId=section, beforeThreadId=before
        )
        moved = (await place.client.until("thread/section/changed"))[-1]["params"]
        assert moved == {"threadId": thread_id, "sectionId": section}

    in_order = {"sectionId": section, "sortKey": "section_position"}
    assert await place.listed(**in_order) == [0, 2, 1]
    assert await place.listed(**in_order, sortDirection="desc") == [1, 2, 0]
    assert await place.listed(sectionId=section) == [2, 1, 0]
    assert await place.listed(sectionId=None) == []
    await place.request("thread/section/move", threadId=first, sectionId=None)
    assert await place.listed(sectionId=None) == [0]
    assert await place.listed(**in_order) == [2, 1]


async def test_the_order_of_a_section_has_pages(place: Ground) -> None:
    section = await create(place)
    for thread_id in place.threads:
        await place.request("thread/section/move", threadId=thread_id, sectionId=section)
    params = {"sectionId": section, "sortKey": "section_position", "limit": 2}
    page = await place.request("thread/list", **params)
    last = await place.request("thread/list", **params, cursor=page["nextCursor"])

    assert [each["id"] for each in page["data"]] == place.threads[:2]
    assert [each["id"] for each in last["data"]] == place.threads[2:]
    assert last["nextCursor"] is None


async def test_a_thread_shows_its_section_wherever_it_is_returned(place: Ground) -> None:
    section, thread_id = await create(place), place.threads[0]
    await place.request("thread/section/move", threadId=thread_id, sectionId=section)
    answers = [
        await place.request("thread/read", threadId=thread_id),
        await place.request("thread/read", threadId=thread_id, includeTurns=True),
        await place.request("thread/resume", threadId=thread_id),
    ]
    await place.restart()
    answers += [
        await place.request("thread/read", threadId=thread_id),
        await place.request("thread/resume", threadId=thread_id),
    ]

    assert [each["thread"]["section"]["name"] for each in answers] == ["A"] * 5
    assert all(isinstance(each["thread"]["sectionEnteredAt"], int) for each in answers)


async def test_an_archived_thread_keeps_its_place_and_a_deleted_one_does_not(
    place: Ground,
) -> None:
    section = await create(place)
    for thread_id in place.threads:
        await place.request("thread/section/move", threadId=thread_id, sectionId=section)
    in_order = {"sectionId": section, "sortKey": "section_position"}
    await place.request("thread/archive", threadId=place.threads[1])
    assert await place.listed(**in_order) == [0, 2]
    await place.request("thread/unarchive", threadId=place.threads[1])
    assert await place.listed(**in_order) == [0, 1, 2]
    await place.request("thread/delete", threadId=place.threads[1])
    assert await place.listed(**in_order) == [0, 2]


async def test_a_deleted_section_leaves_its_threads(place: Ground) -> None:
    section = await create(place)
    await place.request("thread/section/move", threadId=place.threads[0], sectionId=section)
    await place.request("threadSection/delete", sectionId=section)
    read = await place.request("thread/read", threadId=place.threads[0])

    assert read["thread"]["section"] is None
    assert await place.listed() == [2, 1, 0]


@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("threadSection/create", {"name": " "}, (-32602, "section name must not be empty")),
        ("threadSection/create", {"name": "x" * 1001}, (-32602, "at most 1000 characters")),
        ("threadSection/update", {"sectionId": "x", "name": "A"}, (-32602, "not found: x")),
        (
            "threadSection/update",
            {"sectionId": PINNED["id"], "name": "A"},
            (-32602, "the built-in pinned section cannot be renamed"),
        ),
        (
            "threadSection/delete",
            {"sectionId": PINNED["id"]},
            (-32602, "the built-in pinned section cannot be deleted"),
        ),
        ("threadSection/delete", {"sectionId": "x"}, (-32602, "thread section not found: x")),
        ("threadSection/list", {"cursor": "x"}, (-32600, "invalid cursor: x")),
        ("thread/section/move", {"sectionId": "x"}, (-32600, "section x does not exist")),
        (
            "thread/section/move",
            {"sectionId": PINNED["id"], "threadId": UNKNOWN_THREAD},
            (-32600, f"thread not found: {UNKNOWN_THREAD}"),
        ),
        (
            "thread/section/move",
            {"sectionId": PINNED["id"], "beforeThreadId": "x"},
            (-32600, f"before thread x is not in section {PINNED['id']}"),
        ),
        (
            "thread/list",
            {"sortKey": "section_position"},
            (-32600, "section-position sorting requires a section filter"),
        ),
        (
            "thread/list",
            {"sortKey": "section_position", "sectionId": PINNED["id"], "cursor": "x"},
            (-32600, "x"),
        ),
    ],
)
async def test_a_wrong_request_is_refused_and_changes_nothing(
    place: Ground, method: str, params: JsonValue, answer: tuple[int, str]
) -> None:
    given = {"threadId": place.threads[0], **params} if "section/move" in method else params
    code, message = await place.refused(method, **given)

    assert code == answer[0]
    assert answer[1] in message
    assert (await place.request("threadSection/list"))["data"] == [PINNED]


async def test_a_thread_is_not_moved_before_itself(place: Ground) -> None:
    thread_id = place.threads[0]
    code, message = await place.refused(
        "thread/section/move",
        threadId=thread_id,
        sectionId=PINNED["id"],
        beforeThreadId=thread_id,
    )

    assert (code, message) == (-32600, f"thread {thread_id} cannot be moved before itself")


async def test_an_ephemeral_thread_is_not_organized(place: Ground) -> None:
    thread_id = await place.client.start(ephemeral=True)
    refused = await place.client.refusal(
        "thread/section/move", {"threadId": thread_id, "sectionId": PINNED["id"]}
    )

    assert refused.kind == "ephemeralThread"


async def test_the_file_is_private_and_a_damaged_one_is_set_aside(place: Ground) -> None:
    """Ours: nothing else is lost with it."""
    await create(place)
    path = place.stage.home / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    path.write_bytes(b"damaged" * 1000)
    assert (await place.request("threadSection/list"))["data"] == [PINNED]
    assert await place.listed() == [2, 1, 0]
    assert path.with_name(f"{FILE}.damaged").exists()
    await create(place, "B")


async def test_another_server_sees_the_sections(place: Ground) -> None:
    """Ours: servers of one home share them, whichever changes them."""
    section = await create(place)
    thread_id = place.threads[0]
    configuration = Configuration(place.stage.home)
    async with running(configuration) as server, client_of(server) as peer:
        other = Client(peer)
        await other.request("thread/section/move", {"threadId": thread_id, "sectionId": section})

    assert await place.listed(sectionId=section) == [0]
    read = await place.request("thread/read", threadId=thread_id)
    assert read["thread"]["section"]["id"] == section
