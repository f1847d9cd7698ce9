"""A client that does not read delays no other client, costs little memory, and misses nothing."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.harness.processes import ServerProcess, listening
from tests.harness.scripted import client_of, over, playing, write_script
from tests.harness.threads import Client, outline
from treadle.model.scripted.script import Script, says
from treadle.protocol.base import JsonValue
from treadle.transport.websocket.listener import connect_websocket

SECONDS = 50
TURNS = 120
TEXT = "all work and no play " * 8_000
# The write buffer of one client, data in transit, and room for the model context.
MAX_GROWTH = 64 * 1024 * 1024


def resident(process: ServerProcess) -> int:
    """The resident memory of the server's process."""
    status = Path(f"/proc/{process.process.pid}/status").read_text("utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
async def test_a_client_that_stops_reading_stalls_no_other_client_and_catches_up_completely(
    home: Path,
) -> None:
    """Ours: what it cannot receive waits in the journal, not in memory."""
    half = len(TEXT) // 2
    steps = [{"type": "says", "text": TEXT, "deltas": [TEXT[:half], TEXT[half:]]}]
    script = write_script(home.parent / "script.json", [steps], then="repeat")
    with listening(home, "--listen", "ws://127.0.0.1:0", TREADLE_SCRIPT=str(script)) as process:
        url = process.websocket_url()
        async with (
            asyncio.timeout(SECONDS),
            over(await connect_websocket(url)) as reader,
            over(await connect_websocket(url)) as sleeper,
        ):
            thread_id = await reader.start()
            await sleeper.request("thread/resume", {"threadId": thread_id})
            messages = await reader.run(thread_id)
            before = resident(process)
            for _ in range(TURNS - 1):
                messages += await reader.run(thread_id)
                reader.received.clear()
            grown = resident(process) - before
            ends = [await sleeper.until("turn/completed") for _ in range(TURNS)]
            heard = [message for end in ends for message in end]
    assert durable(heard) == durable(messages)
    numbers = [message["seq"] for message in heard if "seq" in message]
    assert numbers == sorted(set(numbers))
    # It was far behind: it received complete messages instead of most deltas.
    assert deltas(heard) < deltas(messages)
    assert grown < MAX_GROWTH


def durable(messages: list[JsonValue]) -> list[tuple[int, str, JsonValue]]:
    """The events of the thread that every client receives, however late."""
    return [
        (message["seq"], message["method"], message["params"])
        for message in messages
        if "seq" in message and not message["method"].endswith("/delta")
    ]


def deltas(messages: list[JsonValue]) -> int:
    return sum(message["method"].endswith("/delta") for message in messages)


async def test_a_client_that_does_not_read_does_not_slow_down_the_others(home: Path) -> None:
    """Ours: in one process, over a connection with a small buffer."""
    script = Script(responses=[[says("x" * 100_000, deltas=1000)]], then="repeat")
    async with playing(home, script) as server, client_of(server) as reader:
        thread_id = await reader.start()
        async with client_of(server) as sleeper:
            await sleeper.request("thread/resume", {"threadId": thread_id, "afterSeq": 0})
            whole: list[JsonValue] = []
            for _ in range(3):
                whole += events(await reader.run(thread_id))
            heard = [event for _ in range(3) for event in events(await ended(sleeper))]
    assert heard == whole
    assert outline(heard)[-1] == "turn/completed completed"


def events(messages: list[JsonValue]) -> list[JsonValue]:
    return [message for message in messages if "seq" in message]


async def ended(client: Client) -> list[JsonValue]:
    return await client.until("turn/completed")
