"""A server that is asked to stop during a turn ends the turn properly, and soon."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.processes import listening, spawn_server
from tests.harness.scripted import PacedModel, client_of, over, playing, write_script
from tests.harness.threads import Client, outline, words
from treadle.model.base import ModelEvent, ModelTextDelta
from treadle.model.scripted.script import says
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport
from treadle.transport.websocket.listener import connect_websocket

SECONDS = 20
# A blocked server would wait forever; a busy machine may take a while.
EXIT_SECONDS = 10
ENDLESS = [[{"type": "says", "text": "so far"}, {"type": "waits", "seconds": 600}]]

LAST_WORDS = ["thread/status/changed idle", "turn/completed interrupted"]

End = Callable[[SubprocessTransport], None]


def terminate(transport: SubprocessTransport) -> None:
    os.kill(transport.pid, signal.SIGTERM)


def interrupt(transport: SubprocessTransport) -> None:
    os.kill(transport.pid, signal.SIGINT)


async def begin(client: Client) -> tuple[str, str]:
    """Start a turn that does not end by itself."""
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id, "go", clientUserMessageId="m")
    await client.until("item/completed", lambda params: params["item"].get("text") == "so far")
    return thread_id, turn_id


async def check(home: Path, thread_id: str, turn_id: str) -> None:
    """Resume: the turn is over, nothing is lost, and the thread works."""
    async with playing(home, ["next"]) as server, client_of(server) as client:
        answer = await client.request("thread/resume", {"threadId": thread_id})
        (turn,) = answer["thread"]["turns"]
        assert (turn["id"], turn["status"], turn["error"]) == (turn_id, "interrupted", None)
        assert words(answer["thread"]) == [["go", "so far"]]
        # The message arrived: sending it again starts nothing.
        params: JsonValue = {"input": [{"type": "text", "text": "go"}], "clientUserMessageId": "m"}
        again = await client.request("turn/start", {"threadId": thread_id, **params})
        assert again["turn"]["id"] == turn_id
        messages = await client.run(thread_id, "on")
        assert outline(messages)[-1] == "turn/completed completed"


@pytest.mark.parametrize("end", [terminate, interrupt])
async def test_a_signal_during_a_turn_ends_it_as_interrupted(home: Path, end: End) -> None:
    script = write_script(home.parent / "script.json", ENDLESS)
    transport = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(transport) as client:
        thread_id, turn_id = await begin(client)
        end(transport)
        async with asyncio.timeout(EXIT_SECONDS):
            last_words = await client.peer.receive_all()
            await transport.close()
        assert transport.exit_code == 0
        assert outline(last_words) == LAST_WORDS
        await check(home, thread_id, turn_id)


async def test_the_end_of_input_during_a_turn_ends_it_as_interrupted(home: Path) -> None:
    script = write_script(home.parent / "script.json", ENDLESS)
    transport = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(transport) as client:
        thread_id, turn_id = await begin(client)
        async with asyncio.timeout(EXIT_SECONDS):
            await transport.close()
        assert transport.exit_code == 0
        await check(home, thread_id, turn_id)


async def test_a_signal_with_socket_clients_ends_their_turns_as_interrupted(
    home: Path,
) -> None:
    script = write_script(home.parent / "script.json", ENDLESS)
    with listening(home, "--listen", "ws://127.0.0.1:0", TREADLE_SCRIPT=str(script)) as process:
        url = process.websocket_url()
        async with (
            asyncio.timeout(SECONDS),
            over(await connect_websocket(url)) as client,
            over(await connect_websocket(url)) as other,
        ):
            thread_id, turn_id = await begin(client)
            await other.request("thread/resume", {"threadId": thread_id})
            await other.settled()
            assert await asyncio.to_thread(process.stop) == 0
            for each in (client, other):
                assert outline(await each.peer.receive_all()) == LAST_WORDS
            assert "Traceback" not in process.stderr
            await check(home, thread_id, turn_id)


async def test_a_client_that_does_not_read_does_not_delay_the_end_of_the_server(
    home: Path,
) -> None:
    """Ours: it is notified within the usual timeout, and finds the rest when it reconnects."""
    long = {"type": "says", "text": "x" * 1_000_000}
    steps = [*[long] * 30, {"type": "says", "text": "so far"}, {"type": "waits", "seconds": 600}]
    script = write_script(home.parent / "script.json", [steps])
    with listening(home, "--listen", "ws://127.0.0.1:0", TREADLE_SCRIPT=str(script)) as process:
        url = process.websocket_url()
        async with (
            asyncio.timeout(SECONDS),
            over(await connect_websocket(url)) as client,
            over(await connect_websocket(url)) as sleeper,
        ):
            thread_id = await client.start()
            await sleeper.request("thread/resume", {"threadId": thread_id})
            turn_id = await client.start_turn(thread_id, "go")
            await client.until(
                "item/completed", lambda params: params["item"].get("text") == "so far"
            )
            async with asyncio.timeout(EXIT_SECONDS):
                assert await asyncio.to_thread(process.stop) == 0
            assert "Traceback" not in process.stderr
    async with playing(home, ["next"]) as server, client_of(server) as client:
        params = {"threadId": thread_id, "afterSeq": 0}
        await client.request("thread/resume", params)
        messages = await client.end_of(turn_id)
        assert outline(messages)[-2:] == LAST_WORDS
        assert (
            len([line for line in outline(messages) if line == "item/completed agentMessage"]) == 31
        )


async def test_closing_a_server_ends_its_turns_and_keeps_their_items(home: Path) -> None:
    """Ours: the text that the model had sent is kept as the message."""
    reached = asyncio.Event()

    async def pace(event: ModelEvent) -> None:
        if isinstance(event, ModelTextDelta) and event.delta == "far":
            reached.set()
            await asyncio.Event().wait()

    model = PacedModel([[says("so far", deltas=["so ", "far"])]], pace)
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start()
        turn_id = await client.start_turn(thread_id, "go")
        await reached.wait()
        await server.close()
        messages = await client.end_of(turn_id)
        assert outline(messages)[-2:] == LAST_WORDS
        assert await client.peer.receive_all() == []
    async with playing(home, ["next"]) as server, client_of(server) as client:
        answer = await client.request("thread/resume", {"threadId": thread_id})
        assert words(answer["thread"]) == [["go", "so "]]
        assert [turn["status"] for turn in answer["thread"]["turns"]] == ["interrupted"]
