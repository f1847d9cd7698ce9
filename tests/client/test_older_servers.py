"""How servers of earlier releases differ, played by a fake server."""

from __future__ import annotations

import asyncio

from treadle import AsyncClient
from treadle.client.events import ThreadStarted
from treadle.protocol.base import JsonValue
from treadle.testing import FakeAppServer, FakeConnection, VirtualClock, fake

SECONDS = 20
BEGUN: JsonValue = {"id": "0", "items": [], "status": "inProgress"}


def ids(request: JsonValue) -> JsonValue:
    return {"threadId": request["params"]["threadId"], "turnId": "0"}


async def end(connection: FakeConnection, request: JsonValue, text: str) -> None:
    """Send the message of a turn, and its end."""
    params = {**ids(request), "item": fake.message(text, f"item-{text}")}
    await connection.notify("item/started", params)
    await connection.notify("item/completed", params)
    ended = {**BEGUN, "status": "completed"}
    await connection.notify("turn/completed", {"threadId": params["threadId"], "turn": ended})


async def test_turns_with_the_same_id_in_two_threads_are_two_turns() -> None:
    """Upstream 0.98: turn ids restart in each thread."""
    first: list[JsonValue] = []

    async def hold(connection: FakeConnection, request: JsonValue) -> None:
        first.append(request)
        await connection.answer(request, {"turn": BEGUN})

    async def end_both(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"turn": BEGUN})
        await end(connection, request, "two")
        await end(connection, first[0], "one")

    server = FakeAppServer().on("turn/start", hold, end_both)
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        slow, quick = await client.start_thread(), await client.start_thread()
        turn = await slow.start_turn("1")
        results = [await quick.run("2"), await turn.result()]
    assert [result.agent_message for result in results] == ["two", "one"]


async def test_an_approval_belongs_to_the_turn_of_its_own_thread() -> None:
    paths: list[str] = []

    async def hold(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"turn": BEGUN})

    async def ask(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"turn": BEGUN})
        changes = [{"path": "a", "kind": {"type": "add"}, "diff": "x"}]
        item = {"type": "fileChange", "id": "i", "changes": changes, "status": "inProgress"}
        await connection.notify("item/started", {**ids(request), "item": item})
        # The same turn id in another thread ends: the file changes of this one must be kept.
        ended = {**BEGUN, "status": "completed"}
        await connection.notify("turn/completed", {"threadId": "thr-1", "turn": ended})
        params = {**ids(request), "itemId": "i"}
        await connection.ask("item/fileChange/requestApproval", params)
        await end(connection, request, "done")

    server = FakeAppServer().on("turn/start", hold, ask)
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        client.on_file_change(lambda question: paths.extend(each.path for each in question.changes))
        await (await client.start_thread()).start_turn("1")
        await (await client.start_thread()).run("2")
    assert paths == ["a"]


async def test_a_turn_that_never_starts_ends_with_the_one_that_took_its_input(
    virtual_clock: VirtualClock,
) -> None:
    """Upstream up to 0.118: a busy thread answers with a separate id for each input."""
    first: list[JsonValue] = []

    async def hold(connection: FakeConnection, request: JsonValue) -> None:
        first.append(request)
        await connection.answer(request, {"turn": BEGUN})

    async def join(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"turn": {**BEGUN, "id": "1"}})
        await connection.notify("turn/started", {**ids(request), "turn": {**BEGUN, "id": "1"}})
        await end(connection, first[0], "both")

    server = FakeAppServer().on("turn/start", hold, join)
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        thread = await client.start_thread()
        turn = await thread.start_turn("1")
        with virtual_clock:
            results = [await thread.run("2"), await turn.result()]
    assert [(each.turn.id, each.agent_message) for each in results] == [("0", "both")] * 2


async def test_a_turn_that_starts_a_moment_later_is_separate(virtual_clock: VirtualClock) -> None:
    first: list[JsonValue] = []

    async def hold(connection: FakeConnection, request: JsonValue) -> None:
        first.append(request)
        await connection.answer(request, {"turn": {**BEGUN, "id": "first"}})

    async def follow(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"turn": BEGUN})
        ended = {"id": "first", "items": [], "status": "completed"}
        await connection.notify(
            "turn/completed", {**ids(request), "turnId": "first", "turn": ended}
        )
        await asyncio.sleep(1)
        await connection.notify("turn/started", {**ids(request), "turn": BEGUN})
        await asyncio.sleep(5)
        await end(connection, request, "own")

    server = FakeAppServer().on("turn/start", hold, follow)
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        thread = await client.start_thread()
        await thread.start_turn("1")
        with virtual_clock:
            result = await thread.run("2")
    assert (result.turn.id, result.agent_message) == ("0", "own")


async def test_duplicated_events_reach_listeners_but_not_the_stream() -> None:
    """Upstream 0.98: each event is sent a second time, in the format of an older protocol."""
    params = {"id": "0", "msg": {"type": "task_started"}, "conversationId": "thr-1"}
    twice = fake.steps(fake.notifies("codex/event/task_started", params), fake.turn())
    server = FakeAppServer().on("turn/start", twice)
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        events: list[JsonValue] = []
        client.on("codex:event:task_started", events.append)
        stream = client.events()
        thread = await client.start_thread()
        await thread.run("hi")
    assert [event.params for event in events] == [params]
    assert [type(event) async for event in stream] == [ThreadStarted]
