"""Much work that begins at the same moment is begun piece by piece, between requests of others."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

from tests.harness.model_server import Reply, completed, created, done
from tests.harness.threads import EPILOGUE, Stage, outline
from treadle.engine.tools.registry import Output, ToolCall, ToolRegistry
from treadle.engine.turn import ActiveTurn
from treadle.protocol.base import JsonValue
from treadle.sandbox.supervisor.child import Descriptors
from treadle.sandbox.supervisor.client import MOST_AT_ONCE, Supervisor

CALLS = 200
MAX_GAP = 20
COMMANDS = 600
SECONDS = 10


def call(number: int) -> JsonValue:
    about = {"type": "function_call", "call_id": f"call-{number}", "name": "update_plan"}
    return {**about, "arguments": '{"plan": []}'}


async def test_requests_are_answered_while_many_calls_of_one_answer_begin(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0
    run = ToolRegistry.run

    async def counted(tools: ToolRegistry, call: ToolCall, turn: ActiveTurn) -> Output:
        nonlocal begun
        begun += 1
        return await run(tools, call, turn)

    monkeypatch.setattr(ToolRegistry, "run", counted)
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    items = [done(call(number)) for number in range(CALLS)]
    stage.model.plays(Reply([created(), *items, completed()]))
    answered_at: list[int] = []

    async def keep_asking() -> None:
        while True:
            await other.ask("thread/loaded/list", {})
            answered_at.append(begun)

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(keep_asking())
        sent = await client.run(thread_id)
        asking.cancel()

    assert outline(sent)[-2:] == EPILOGUE
    assert begun == CALLS
    assert max(later - earlier for earlier, later in pairwise(answered_at)) <= MAX_GAP


# -- the keeper of commands


class Stopped:
    """A keeper that reads no orders; a loop that waits for it is set free, and that is noted."""

    def __init__(self, keeper: Supervisor) -> None:
        self._pid = keeper.pid
        self.had_to_go_on = False
        self._alarm = threading.Timer(SECONDS, self._on_alarm)

    def __enter__(self) -> Self:
        os.kill(self._pid, signal.SIGSTOP)
        self._alarm.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._alarm.cancel()
        os.kill(self._pid, signal.SIGCONT)

    def _on_alarm(self) -> None:
        self.had_to_go_on = True
        os.kill(self._pid, signal.SIGCONT)


async def launch(keeper: Supervisor, folder: Path, inherited: tuple[int, ...] = ()) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        fds = Descriptors(null, null, null)
        child = await keeper.launch(
            ["/bin/sh", "-c", "test ! -e /proc/self/fd/9"],
            cwd=str(folder),
            env={},
            fds=fds,
            inherited=inherited,
        )
    finally:
        os.close(null)
    return await child.exited


async def test_the_event_loop_does_not_wait_for_a_keeper_with_many_orders(tmp_path: Path) -> None:
    keeper = Supervisor()
    try:
        async with asyncio.TaskGroup() as group:
            with Stopped(keeper) as stopped:
                work = [group.create_task(launch(keeper, tmp_path)) for _ in range(COMMANDS)]
                for _ in range(COMMANDS):
                    await asyncio.sleep(0)
                assert not stopped.had_to_go_on
        assert {task.result() for task in work} == {0}
    finally:
        keeper.close()


async def test_an_order_that_breaks_off_leaves_nothing_to_the_next_command(tmp_path: Path) -> None:
    """The descriptors of its first part would be taken for those of the next one."""
    keeper = Supervisor()
    passed = keeper._pass  # noqa: SLF001 - the moment between two parts of an order

    async def broken(word: bytes, fds: list[int]) -> None:
        await passed(word, fds)
        raise asyncio.CancelledError

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keeper, "_pass", broken)
            with pytest.raises(asyncio.CancelledError):
                await launch(keeper, tmp_path, (2,) * MOST_AT_ONCE)
        assert await launch(keeper, tmp_path) == 0
    finally:
        keeper.close()
