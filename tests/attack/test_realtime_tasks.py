"""Realtime services are not trusted: what they send, or never answer, is limited."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.realtime_service import RealtimeService, realtime_service
from tests.harness.threads import Client, Stage, staged
from treadle.protocol.base import JsonValue
from treadle.server.realtime import session as realtime_session
from treadle.server.realtime.delegation import Delegation

SECONDS = 10.0


class SilentService:
    """Accepts connections, and answers none; a test waits for their ends."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one connection to its end."""
        await self._count("opened")
        while await reader.read(65536):
            pass
        writer.close()
        await self._count("closed")

    async def wait(self, name: str, number: int) -> None:
        """Wait until this many connections were opened, or closed."""
        async with self._changed, asyncio.timeout(SECONDS):
            await self._changed.wait_for(lambda: getattr(self, name) >= number)

    async def _count(self, name: str) -> None:
        async with self._changed:
            setattr(self, name, getattr(self, name) + 1)
            self._changed.notify_all()


@asynccontextmanager
async def silent_service() -> AsyncIterator[tuple[SilentService, str]]:
    service = SilentService()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server:
        yield service, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def start_params(thread_id: str) -> JsonValue:
    return {"threadId": thread_id, "outputModality": "audio"}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path / "home") as stage:
        yield stage


async def client_of(stage: Stage, url: str) -> tuple[Client, str]:
    stage.configure(f'experimental_realtime_ws_base_url = "{url}"\n')
    client = await stage.client()
    return client, await client.start()


async def test_a_conversation_that_is_stopped_before_it_begins_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user has ended it: a service that answers late must not open it after all."""
    monkeypatch.setattr(realtime_session, "CONNECT_SECONDS", 300.0)
    async with silent_service() as (service, url):
        client, thread_id = await client_of(stage, url)
        await client.request("thread/realtime/start", start_params(thread_id))
        await service.wait("opened", 1)
        await client.request("thread/realtime/stop", {"threadId": thread_id})
        await service.wait("closed", 1)
        messages = await client.until("thread/realtime/closed")

    assert messages[-1]["params"]["reason"] == "requested"


async def test_conversations_that_replace_each_other_leave_one_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could end those that were replaced while they connected: no request finds them."""
    monkeypatch.setattr(realtime_session, "CONNECT_SECONDS", 300.0)
    async with silent_service() as (service, url):
        client, thread_id = await client_of(stage, url)
        for number in range(1, 4):
            await client.request("thread/realtime/start", start_params(thread_id))
            await service.wait("opened", number)
            await service.wait("closed", number - 1)
        await client.request("thread/archive", {"threadId": thread_id})
        await service.wait("closed", 3)


async def test_notes_of_conversations_must_leave_room_in_the_context(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each beginning and each end adds a text of the client to the context."""
    monkeypatch.setattr("treadle.engine.conversation.model_context.MAX_HISTORY_BYTES", 10_000)
    async with silent_service() as (_, url):
        client, thread_id = await client_of(stage, url)
        refused = await client.refusal(
            "thread/realtime/start",
            {**start_params(thread_id), "realtimeStartInstructions": "x" * 10_000},
        )

    assert refused.data["path"] == "realtimeStartInstructions"


# -- what a service sends


@asynccontextmanager
async def conversation(stage: Stage) -> AsyncIterator[tuple[RealtimeService, Client]]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(SECONDS))
        service = await stack.enter_async_context(realtime_service())
        client, thread_id = await client_of(stage, service.url)
        await client.request("thread/realtime/start", start_params(thread_id))
        await client.until("thread/realtime/started")
        yield service, client


def task(call_id: str) -> JsonValue:
    call = {"type": "function_call", "name": "background_agent", "call_id": call_id, "id": "i"}
    item = {**call, "arguments": json.dumps({"prompt": "Do it."})}
    return {"type": "conversation.item.done", "item": item}


async def test_no_more_tasks_are_read_than_may_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that does not read the answers would fill the memory with its tasks."""
    running = peak = done = 0
    go_on = asyncio.Event()
    changed = asyncio.Condition()

    async def run(*_: object) -> None:
        nonlocal running, peak, done
        running, peak = running + 1, max(peak, running + 1)
        async with changed:
            changed.notify_all()
        await go_on.wait()
        running, done = running - 1, done + 1
        async with changed:
            changed.notify_all()

    monkeypatch.setattr(realtime_session, "MAX_TASKS", 2)
    monkeypatch.setattr(Delegation, "run", run)
    async with conversation(stage) as (service, _), changed:
        await service.send(*[task(f"c{number}") for number in range(6)])
        await changed.wait_for(lambda: running >= 2)
        go_on.set()
        await changed.wait_for(lambda: done == 6)

    assert peak == 2


async def test_a_task_with_a_long_id_is_skipped(stage: Stage) -> None:
    """The id is repeated in answers, events and names of tasks."""
    async with conversation(stage) as (service, client):
        await service.send(task("c" * 2000), {"type": "response.output_text.done", "text": "ok"})
        messages = await client.until("thread/realtime/transcript/done")

    assert "thread/realtime/itemAdded" not in [message.get("method") for message in messages]


async def test_unreadable_messages_do_not_fill_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A service sends thousands of them per second."""
    with caplog.at_level(logging.WARNING):
        async with conversation(stage) as (service, client):
            await service.send(*["{}"] * 100)
            await service.send({"type": "response.output_text.done", "text": "ok"})
            await client.until("thread/realtime/transcript/done")

    skipped = [each for each in caplog.records if each.message == "realtime event skipped"]
    assert len(skipped) == realtime_session.MAX_LOUD_FAULTS
