"""Servers that send unexpected messages, over every transport: the client continues."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.client.conftest import Reach
from tests.client.fake import THREAD, TURN
from tests.client.scenarios import HUGE
from treadle import (
    AsyncClient,
    RequestRefused,
    TurnFailed,
    TurnInterrupted,
    TurnTimeout,
    UnknownItem,
)
from treadle.client._compat.lenient import Unknown
from treadle.client.events import AgentMessageDelta, UnknownNotification
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfoDetail, HttpStatus
from treadle.protocol.item import AgentMessageThreadItem, CommandExecutionThreadItem
from treadle.testing import FakeAppServer, fake


async def test_invalid_lines_are_ignored_and_unknown_messages_are_reported_as_such(
    server: Reach,
) -> None:
    """Seed 000: lines that are not JSON are tolerated; users, 36 and 37."""
    unknown: list[UnknownNotification] = []
    async with server("noise") as (client, _):
        client.on("brand:new", unknown.append)
        async with client:
            thread = await client.start_thread()
            stream = thread.stream("hi")
            events = [event async for event in stream]
            result = await stream.result()
    assert unknown == [UnknownNotification("brand/new", {})]
    params = {"threadId": THREAD, "turnId": TURN, "sparkle": 1}
    assert UnknownNotification("turn/sparkled", params, THREAD, TURN) in events
    assert AgentMessageDelta("half \ufffd", "item-1", THREAD, TURN) in events
    assert result.items == [
        UnknownItem("hologram", {"type": "hologram", "id": "h-1", "depth": 3}, "h-1"),
        CommandExecutionThreadItem(
            command="x",
            command_actions=[Unknown("dance", {"type": "dance"})],  # type: ignore[list-item]  # new
            cwd="/",
            id="c-1",
            status="paused",  # type: ignore[arg-type]  # a word of tomorrow
        ),
        AgentMessageThreadItem(id="item-1", text="done"),
    ]
    assert result.agent_message == "done"


async def test_a_message_of_32_mib_is_accepted(server: Reach) -> None:
    """Users, 34 and 35: the line reader has no lower limit."""
    async with server("huge") as (client, _), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
    assert len(result.agent_message) == HUGE


async def test_a_failed_turn_is_raised_with_its_cause(server: Reach) -> None:
    """Seed 001 and users, 17: the status decides; the text need not be parsed."""
    async with server("fails") as (client, _), client:
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="the model is gone") as caught:
            await thread.run("hi")
    failed = caught.value
    detail = CodexErrorInfoDetail(response_stream_disconnected=HttpStatus(503))
    assert (failed.codex_error_info, failed.http_status) == (detail, 503)
    assert failed.result.agent_message == "some"
    assert failed.turn.id == TURN


async def test_older_notifications_for_the_end_of_a_turn_are_understood(in_memory: Reach) -> None:
    """Seed 000, section 4."""
    async with in_memory("fails in old words") as (client, _), client:
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="the model is gone"):
            await thread.run("hi")


async def test_a_cancelled_turn_is_raised_as_interrupted(in_memory: Reach) -> None:
    """Seed 000, section 4."""
    async with in_memory("cancelled in old words") as (client, _), client:
        thread = await client.start_thread()
        with pytest.raises(TurnInterrupted):
            await thread.run("hi")


async def test_a_completion_without_params_ends_the_only_turn(in_memory: Reach) -> None:
    """Seed 000, section 2: `{"method":"turn/completed"}` is a complete message."""
    async with in_memory("completes without params") as (client, _), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
    assert (result.agent_message, result.turn.status) == ("short", "completed")


async def test_the_minimal_answers_of_old_servers_are_enough(in_memory: Reach) -> None:
    """Seed 000, section 3: a client needs only the id in an answer."""
    async with in_memory("minimal") as (client, _), client:
        thread = await client.start_thread()
        result = await thread.run("hi")
        assert client.server.user_agent == "old/0.98"
    assert (thread.id, thread.info.turns, result.agent_message) == (THREAD, [], "short")


async def test_an_unloaded_thread_is_resumed_for_the_next_turn(
    in_memory: Reach,
) -> None:
    async with in_memory("unloads") as (client, log), client:
        thread = await client.start_thread()
        closed = asyncio.Event()
        client.on("thread:closed", lambda _event: closed.set())
        await thread.run("hi")
        await closed.wait()
        await thread.run("hi")
    assert log.calls("thread/resume") == [{"threadId": THREAD, "excludeTurns": True}]


PIECES = """
import sys, time
def say(text):
    for at in range(0, len(text), 7):
        sys.stdout.write(text[at:at + 7])
        sys.stdout.flush()
sys.stdin.readline()
say('stray words of a library\\n')
say('{"id":0,"result":{"userAgent":"x","codexHome":"/","platformFamily":"u","platformOs":"l"}}\\r\\n')
sys.stdin.readline()
sys.stdin.readline()
say('{"id":1,"result":{"data":[],"nextCursor":"after"}}')
"""


async def test_lines_may_arrive_in_pieces_and_the_last_one_without_a_newline(
    tmp_path: Path,
) -> None:
    """Seed 000: an incomplete line is kept until the rest arrives."""
    async with asyncio.timeout(20), AsyncClient([sys.executable, "-c", PIECES]) as client:
        assert (await client.list_models()).next_cursor == "after"


NO_OBJECT: list[JsonValue] = [{}, {"thread": None, "turn": 5}, [], None]


async def test_an_answer_of_another_shape_is_refused() -> None:
    server = FakeAppServer()
    server.on("thread/start", *map(fake.answers, NO_OBJECT), fake.answers({"thread": {"id": "t"}}))
    server.on("turn/start", *map(fake.answers, NO_OBJECT))
    async with AsyncClient(server) as client:
        for _ in NO_OBJECT:
            with pytest.raises(RequestRefused, match="answer cannot be read"):
                await client.start_thread()
        thread = await client.start_thread()
        for _ in NO_OBJECT:
            with pytest.raises(RequestRefused, match="answer cannot be read"):
                await thread.run("hi")


async def test_a_silent_turn_ends_although_the_thread_cannot_be_read() -> None:
    """Ours: an answer without a thread ended the task that was to end the turn."""
    turn: JsonValue = {"id": "u", "items": [], "status": "inProgress", "error": None}
    server = FakeAppServer()
    server.on("turn/start", fake.answers({"turn": turn}))
    server.on("thread/read", *map(fake.answers, NO_OBJECT))
    async with AsyncClient(server, turn_idle_timeout=0.01) as client:
        thread = await client.start_thread()
        for _ in NO_OBJECT:
            with pytest.raises(TurnTimeout):
                await thread.run("hi")


@pytest.mark.parametrize(
    ("item", "end"),
    [
        (None, {"items": "x"}),
        (5, {"items": [1, None]}),
        ({"type": "agentMessage", "id": [1], "text": 5}, {"items": [{"id": {}}]}),
    ],
)
async def test_items_of_another_shape_are_unknown(item: JsonValue, end: JsonValue) -> None:
    turn: JsonValue = {"id": "u", "items": [], "status": "inProgress", "error": None}

    async def play(connection: fake.FakeConnection, request: JsonValue) -> None:
        about = {"threadId": request["params"]["threadId"], "turnId": "u"}
        ended = {"turn": {**turn, "status": "failed", "error": "broken", **end}}
        await connection.answer(request, {"turn": turn})
        await connection.notify("item/started", {**about, "item": item})
        await connection.notify("item/completed", {**about, "item": item})
        await connection.notify("turn/completed", {**about, **ended})

    server = FakeAppServer().on("turn/start", play)
    async with AsyncClient(server) as client:
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="broken") as failed:
            await thread.run("hi")
    assert all(isinstance(each, UnknownItem) for each in failed.value.result.items)
