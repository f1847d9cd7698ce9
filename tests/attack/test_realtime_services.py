"""What a realtime service could do to the server, the thread and the user."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.attack.test_authorization import DENIAL, EVIL, REMOVAL, REVIEWED, users_entries
from tests.harness.commands import bench
from tests.harness.model_server import calls, says
from tests.harness.realtime_service import ACCEPTED, RealtimeService, realtime_service
from tests.harness.threads import Client, Stage
from treadle.engine.accounting import goals
from treadle.protocol.base import JsonValue
from treadle.server.realtime import session
from treadle.transport.websocket.frames import Encoder, accept_key
from treadle.transport.websocket.http import parse_request

START = "thread/realtime/start"
PARAMETER = "parameter-that-is-secret"


@asynccontextmanager
async def conversing(stage: Stage) -> AsyncIterator[tuple[RealtimeService, Client, str]]:
    """Start a conversation; yields its service, a client and the thread."""
    async with realtime_service() as service:
        stage.configure(f'experimental_realtime_ws_base_url = "{service.url}"\n')
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await start(client, thread_id)
        await client.until("thread/realtime/started")
        yield service, client, thread_id


async def start(client: Client, thread_id: str) -> None:
    """Start a conversation."""
    await client.request(START, {"threadId": thread_id, "outputModality": "audio"})


def task(call_id: str, prompt: str) -> JsonValue:
    """A task of the service."""
    arguments = json.dumps({"prompt": prompt})
    item = {"type": "function_call", "name": "background_agent", "call_id": call_id}
    return {"type": "conversation.item.done", "item": {**item, "arguments": arguments}}


async def test_a_task_is_not_what_the_user_wrote(home: Path) -> None:
    """The service could authorize, for the automatic reviewer, whatever its tasks lead to."""
    async with bench(home, **REVIEWED) as bench_, realtime_service() as service:
        bench_.stage.configure(f'experimental_realtime_ws_base_url = "{service.url}"\n')
        await start(bench_.client, bench_.thread_id)
        await bench_.client.until("thread/realtime/started")
        bench_.stage.model.plays(REMOVAL, DENIAL, says("done"))
        await service.send(task("c1", EVIL))
        await bench_.client.until("turn/completed")

        assert users_entries(bench_) == []


async def test_a_task_is_not_a_user_who_takes_part_in_a_goal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A goal starts only so many turns without one."""
    monkeypatch.setattr(goals, "MAX_CONTINUATIONS", 1)
    for number in range(6):
        create = calls("create_goal", {"objective": "more"}, f"c{number}")
        end = calls("update_goal", {"status": "complete"}, f"u{number}")
        stage.model.plays(create, end, create, says("ok", f"m{number}"))
    async with conversing(stage) as (service, client, thread_id):
        for expected in (2, 3):
            await service.send(task(f"task-{expected}", "go on"))
            await client.until(
                "thread/goal/updated", lambda params: params["goal"]["status"] == "budgetLimited"
            )
            assert len((await client.read(thread_id))["turns"]) == expected


class _SlowService:
    """Answers the handshakes of clients when a test lets it, and accepts their sessions at once."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.answers = asyncio.Event()
        self.ended = asyncio.Event()
        self.sent: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.connected.set()
        await self.answers.wait()
        key = accept_key(parse_request(head).header("sec-websocket-key") or "")
        fields = f"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {key}"
        writer.write(f"HTTP/1.1 101 Go\r\n{fields}\r\n\r\n".encode())
        for event in (ACCEPTED, task("c1", "do it")):
            writer.writelines(Encoder().text(json.dumps(event).encode()))
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.ended.set()
            writer.close()


@pytest.mark.parametrize("ends", ["thread/realtime/stop", START, "thread/delete"])
async def test_a_conversation_that_ends_before_it_is_accepted_never_opens(
    stage: Stage, ends: str
) -> None:
    """It would hand its tasks to the thread, and no request could end it."""
    service = _SlowService()
    async with await asyncio.start_server(service.serve, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        stage.configure(f'experimental_realtime_ws_base_url = "{url}"\n')
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await start(client, thread_id)
        await service.connected.wait()
        stage.configure('experimental_realtime_ws_base_url = "ws://127.0.0.1:9"\n')
        params: JsonValue = {"threadId": thread_id}
        await client.request(
            ends, {**params, **({"outputModality": "audio"} if ends == START else {})}
        )
        service.answers.set()
        async with asyncio.timeout(10):
            await service.ended.wait()
        await client.settled()

    methods = [each.get("method") for each in client.received]
    assert "thread/realtime/started" not in methods
    assert "turn/started" not in methods


def wide(parts: int) -> str:
    """Return an event with many parts."""
    return f'{{"type":"conversation.item.added","item":{{"a":[{"[]," * parts}1]}}}}'


async def test_a_message_with_too_many_parts_is_skipped(stage: Stage) -> None:
    """Decoding 60 MiB of them takes two seconds of the event loop, and 1.5 GB."""
    async with conversing(stage) as (service, client, _):
        await service.send(wide(150_000), {"type": "input_audio_buffer.speech_started"})
        (*_, added) = await client.until("thread/realtime/itemAdded")

    assert added["params"]["item"] == {"type": "input_audio_buffer.speech_started"}


async def test_a_message_that_is_too_large_ends_the_conversation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_EVENT_BYTES", 1000)
    async with conversing(stage) as (service, client, _):
        await service.send({"type": "response.output_audio.delta", "delta": "A" * 1001})
        (*_, error) = await client.until("thread/realtime/error")
        await client.until("thread/realtime/closed")

    assert "too large" in error["params"]["message"]


async def test_garbage_of_a_service_does_not_fill_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with conversing(stage) as (service, client, _):
        await service.send(*["garbage"] * 50, {"type": "input_audio_buffer.speech_started"})
        await client.until("thread/realtime/itemAdded")

    skipped = [each for each in caplog.records if each.message == "realtime event skipped"]
    assert sum(each.levelno >= logging.WARNING for each in skipped) == session.MAX_LOUD_FAULTS


async def test_audio_whose_format_is_a_boolean_is_skipped(stage: Stage) -> None:
    audio = {"type": "response.output_audio.delta", "delta": "AAAA"}
    async with conversing(stage) as (service, client, _):
        await service.send({**audio, "sample_rate": True}, {**audio, "channels": 2})
        (*_, delta) = await client.until("thread/realtime/outputAudio/delta")

    assert delta["params"]["audio"]["numChannels"] == 2


async def test_a_service_that_quotes_a_parameter_gets_it_into_no_error(home: Path) -> None:
    """Some providers have their key in the query."""
    async with bench(home) as bench_, realtime_service() as service:
        bench_.stage.configure(
            f'experimental_realtime_ws_base_url = "{service.url}"\n'
            f'[model_providers.mock_provider.query_params]\napi-key = "{PARAMETER}"\n'
        )
        await start(bench_.client, bench_.thread_id)
        await bench_.client.until("thread/realtime/started")
        assert PARAMETER in service.targets[0]
        await service.send({"type": "error", "error": {"message": f"no {service.targets[0]}"}})
        (*_, error) = await bench_.client.until("thread/realtime/error")

    assert "api-key=[redacted]&model=" in error["params"]["message"]


@pytest.mark.parametrize("name", ["realtimeSessionId", "sessionId", "model"])
async def test_names_of_a_conversation_are_limited(stage: Stage, name: str) -> None:
    """Each item of the conversation repeats the id."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    refused = await client.refusal(
        START, {"threadId": thread_id, "outputModality": "audio", name: "x" * 5000}
    )

    assert "at most 4096 characters" in refused.message
