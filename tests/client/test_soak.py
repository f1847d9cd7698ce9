"""Many turns against server processes, over connections and servers that break."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.client.relay import relay
from tests.harness.commands import wait_until_gone
from tests.harness.processes import listening
from tests.harness.scripted import write_script
from tests.harness.soak import rounds
from treadle import AsyncClient, TurnInterrupted
from treadle.client._runtime.reconnect import Backoff
from treadle.client.events import OutputDelta
from treadle.client.thread import AsyncThread
from treadle.protocol.base import JsonValue
from treadle.protocol.item import CommandExecutionThreadItem

TURNS = rounds(1000)
COMMANDS = rounds(100)
TURNS_EACH = rounds(30, least=10)
AT_ONCE = 20
"""Threads, which run a turn each at the same time."""

TEXT = "The quick brown fox jumps over the lazy dog."
SAYS: JsonValue = [{"type": "says", "text": TEXT, "deltas": [TEXT[:9], TEXT[9:]]}]
FREE: JsonValue = {"approval_policy": "never", "sandbox": "danger-full-access"}
SOON = Backoff(attempts=50, first_s=0.001, longest_s=0.01)
PATIENTLY = Backoff(attempts=400, first_s=0.01, longest_s=0.05)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def runs(command: str) -> JsonValue:
    """Return a response that runs a command."""
    arguments = {"cmd": command, "login": False, "yield_time_ms": 30_000}
    return [{"type": "calls", "tool": "exec_command", "arguments": arguments}]


def family(pid: int) -> set[int]:
    """Return the descendants of a process that have not ended."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if state != "Z":  # its parent has not noticed its end yet
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    descendants: set[int] = set()
    rest = [pid]
    while rest:
        born = children.get(rest.pop(), [])
        descendants.update(born)
        rest += born
    return descendants


async def test_many_turns_over_a_randomly_cut_connection_lose_nothing(home: Path) -> None:
    """No turn is lost, none is run twice, and neither a task nor a process is left."""
    before = len(asyncio.all_tasks())
    chance = random.Random(11)  # noqa: S311 - the same cuts each time
    # Both a missing and a surplus answer would be noticed.
    responses = [SAYS] * TURNS
    for place in range(0, TURNS, TURNS // COMMANDS):
        responses[place:place] = [runs("echo ran >> ran")]
    script = write_script(home.parent / "script.json", responses)
    with listening(home, "--listen", "ws://127.0.0.1:0", TREADLE_SCRIPT=str(script)) as server:
        async with (
            asyncio.timeout(100),
            relay(server.websocket_url()) as line,
            AsyncClient(line.url, reconnect=SOON) as client,
        ):
            cuts = received = 0

            @client.on("item:completed")
            def cut_at_times(_item: object) -> None:
                nonlocal cuts, received
                received += 1
                if chance.random() < 0.05:
                    cuts += 1
                    line.cut()
                    line.restore()

            threads = [await client.start_thread(cwd=home, **FREE) for _ in range(AT_ONCE)]
            commands = 0
            for _ in range(TURNS // AT_ONCE):
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(thread.run("go")) for thread in threads]
                results = [run.result() for run in running]
                assert [result.agent_message for result in results] == [TEXT] * AT_ONCE
                items = [item for result in results for item in result.items]
                commands += sum(isinstance(item, CommandExecutionThreadItem) for item in items)
            lengths = [len((await thread.read()).turns) for thread in threads]
        assert lengths == [TURNS // AT_ONCE] * AT_ONCE
        assert commands == COMMANDS
        assert (home / "ran").read_text() == "ran\n" * COMMANDS
        assert received == 2 * TURNS + COMMANDS
        assert cuts > TURNS // 100
        # The guard of the last command may end a moment after the command.
        left = family(server.process.pid)
        supervisor = min(left)
        for pid in left - {supervisor}:
            wait_until_gone(pid)
        assert family(server.process.pid) == {supervisor}
        assert server.stop() == 0
    wait_until_gone(supervisor)
    assert len(asyncio.all_tasks()) == before


@asynccontextmanager
async def killed_repeatedly(
    home: Path, url: str, script: Path, is_due: asyncio.Event
) -> AsyncIterator[list[set[int]]]:
    """Run one server after another on the same socket, each killed when `is_due` is set."""
    families: list[set[int]] = []
    path = Path(url.removeprefix("unix://"))
    ready = asyncio.Event()

    async def serve() -> None:
        while True:
            with listening(home, "--listen", url, TREADLE_SCRIPT=str(script)) as server:
                await asyncio.to_thread(server.socket_path, path)
                ready.set()
                await is_due.wait()
                is_due.clear()
                families.append(family(server.process.pid))

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve())
        await ready.wait()
        yield families
        serving.cancel()


async def statuses(thread: AsyncThread, count: int) -> list[str]:
    """Run turns; return their statuses."""
    outcomes: list[str] = []
    while len(outcomes) < count:
        try:
            outcomes.append((await thread.run("go")).turn.status)
        except TurnInterrupted as interrupted:
            outcomes.append(interrupted.result.turn.status)
    return outcomes


async def test_turns_on_a_server_that_is_killed_repeatedly_end_as_they_are_stored(
    home: Path, short_folder: Path
) -> None:
    """Each server is killed while it runs a command, which is killed with it."""
    before = len(asyncio.all_tasks())
    is_due = asyncio.Event()
    commands: list[int] = []
    responses = [*[SAYS] * 20, runs("echo $$; exec sleep 600"), SAYS]
    script = write_script(home.parent / "script.json", responses, then="repeat")
    url = f"unix://{short_folder}/socket"
    async with (
        asyncio.timeout(60),
        killed_repeatedly(home, url, script, is_due) as families,
        AsyncClient(url, reconnect=PATIENTLY) as client,
    ):

        @client.on("item:commandExecution:outputDelta")
        def kill(printed: OutputDelta) -> None:
            commands.append(int(printed.output))
            is_due.set()

        threads = [await client.start_thread(cwd=home, **FREE) for _ in range(10)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(statuses(thread, TURNS_EACH)) for thread in threads]
        outcomes = [run.result() for run in running]
        stored = [[turn.status for turn in (await thread.read()).turns] for thread in threads]
    assert outcomes == stored
    assert {status for each in outcomes for status in each} == {"completed", "interrupted"}
    assert len(families) > TURNS_EACH // 6
    for pid in {*commands}.union(*families):
        wait_until_gone(pid)
    assert len(asyncio.all_tasks()) == before
