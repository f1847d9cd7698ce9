"""A burst of work is started piece by piece, so that requests of others are served in between."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

from tests.harness.model_server import Reply, completed, created, done, says
from tests.harness.threads import EPILOGUE, Stage, outline
from treadle.engine.tools import image
from treadle.engine.tools.registry import Output, ToolCall, ToolRegistry
from treadle.engine.turn import ActiveTurn
from treadle.protocol.base import JsonValue
from treadle.sandbox.supervisor.client import MOST_AT_ONCE, Supervisor
from treadle.sandbox.supervisor.launched import Descriptors

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

    async def count_start(tools: ToolRegistry, call: ToolCall, turn: ActiveTurn) -> Output:
        nonlocal begun
        begun += 1
        return await run(tools, call, turn)

    monkeypatch.setattr(ToolRegistry, "run", count_start)
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    items = [done(call(number)) for number in range(CALLS)]
    stage.model.plays(Reply([created(), *items, completed()]))
    answered_at: list[int] = []

    async def keep_asking() -> None:
        while True:
            await other.request("thread/loaded/list", {})
            answered_at.append(begun)

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(keep_asking())
        sent = await client.run(thread_id)
        asking.cancel()

    assert outline(sent)[-2:] == EPILOGUE
    assert begun == CALLS
    assert max(later - earlier for earlier, later in pairwise(answered_at)) <= MAX_GAP


# -- the supervisor of commands


class Stopped:
    """A stopped supervisor. An alarm resumes it if the event loop waits for it, and counts that."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._pid = supervisor.pid
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


async def launch(supervisor: Supervisor, folder: Path, inherited: tuple[int, ...] = ()) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        fds = Descriptors(null, null, null)
        child = await supervisor.launch(
            ["/bin/sh", "-c", "test ! -e /proc/self/fd/9"],
            cwd=str(folder),
            env={},
            fds=fds,
            inherited=inherited,
        )
    finally:
        os.close(null)
    return await child.exited


async def test_the_event_loop_does_not_wait_for_a_busy_supervisor(tmp_path: Path) -> None:
    supervisor = Supervisor()
    try:
        async with asyncio.TaskGroup() as group:
            with Stopped(supervisor) as stopped:
                work = [group.create_task(launch(supervisor, tmp_path)) for _ in range(COMMANDS)]
                for _ in range(COMMANDS):
                    await asyncio.sleep(0)
                assert not stopped.had_to_go_on
        assert {task.result() for task in work} == {0}
    finally:
        supervisor.close()


async def test_an_interrupted_order_leaves_no_descriptors_for_the_next_command(
    tmp_path: Path,
) -> None:
    """The descriptors of the partial order would otherwise be passed to the next command."""
    supervisor = Supervisor()
    passed = supervisor._pass  # noqa: SLF001 - the moment between two parts of an order

    async def broken(word: bytes, fds: list[int]) -> None:
        await passed(word, fds)
        raise asyncio.CancelledError

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(supervisor, "_pass", broken)
            with pytest.raises(asyncio.CancelledError):
                await launch(supervisor, tmp_path, (2,) * MOST_AT_ONCE)
        assert await launch(supervisor, tmp_path) == 0
    finally:
        supervisor.close()


async def test_images_are_loaded_two_at_a_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes several times its size while it is encoded: 30 of them took almost a gigabyte."""
    lock, go_on = threading.Lock(), threading.Event()
    running = peak = 0

    def load(*_: object) -> str:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        assert go_on.wait(SECONDS)
        with lock:
            running -= 1
        return "data:image/png;base64,"

    monkeypatch.setattr(image, "_load", load)
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), model="gpt-5")
    view = {"type": "function_call", "name": "view_image", "arguments": '{"path": "a.png"}'}
    items = [done({**view, "call_id": f"call-{number}"}) for number in range(CALLS)]
    stage.model.plays(Reply([created(), *items, completed()]), says("ok"))
    turn_id = await client.start_turn(thread_id)
    while running < 2:
        await other.request("thread/loaded/list", {})
    # The calls that could have begun have done so: each takes one step of the event loop.
    for _ in range(CALLS):
        await other.request("thread/loaded/list", {})
    go_on.set()
    messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE
    assert peak == 2
