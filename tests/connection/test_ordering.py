"""Requests of one scope run in arrival order; the others overtake them."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.connection.methods import WAIT, TextParams, TextResponse, line, router
from treadle.connection.connection import Connection
from treadle.connection.context import Context
from treadle.connection.ordering import Lanes
from treadle.jsonrpc.errors import RpcError

Ctx = Context[str]


class Gate:
    """Handlers that wait until they are released, and record when they start and end."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._go: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def run(self, _ctx: Ctx, params: TextParams) -> TextResponse:
        await self.note(f"start {params.text}")
        await self._event(params.text).wait()
        await self.note(f"end {params.text}")
        return TextResponse(params.text)

    async def note(self, what: str) -> None:
        async with self._changed:
            self.log.append(what)
            self._changed.notify_all()

    async def until(self, what: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: what in self.log)

    def let(self, text: str) -> None:
        self._event(text).set()

    def _event(self, text: str) -> asyncio.Event:
        return self._go.setdefault(text, asyncio.Event())


async def ask(near: Connection[str], text: str, lane: str | None) -> str:
    return (await near.request(WAIT, TextParams(text, lane))).text


async def test_one_scope_runs_in_arrival_order_while_others_overtake() -> None:
    gate, far = Gate(), router()
    far.request(WAIT)(gate.run)
    async with line(far) as both, asyncio.TaskGroup() as tasks:
        for text, lane in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("free", None)):
            tasks.create_task(ask(both.near, text, lane))
        for text in ("a1", "b1", "free"):
            await gate.until(f"start {text}")
        assert "start a2" not in gate.log
        gate.let("free")
        await gate.until("end free")
        gate.let("b1")
        await gate.until("end b1")
        gate.let("a1")
        await gate.until("start a2")
        gate.let("a2")
    assert gate.log.index("end a1") < gate.log.index("start a2")


async def test_a_handler_may_release_its_scope_early() -> None:
    gate, far = Gate(), router()

    @far.request(WAIT)
    async def run(ctx: Ctx, params: TextParams) -> TextResponse:
        if params.text == "long":
            ctx.release_scope()
            ctx.release_scope()
        return await gate.run(ctx, params)

    async with line(far) as both, asyncio.TaskGroup() as tasks:
        for text in ("long", "next", "last"):
            tasks.create_task(ask(both.near, text, "a"))
        await gate.until("start next")
        assert "start last" not in gate.log
        gate.let("next")
        await gate.until("start last")
        gate.let("last")
        await gate.until("end last")
        gate.let("long")
    assert gate.log[-1] == "end long"


async def test_a_failure_releases_its_scope() -> None:
    far = router()

    @far.request(WAIT)
    async def fail(_ctx: Ctx, params: TextParams) -> TextResponse:
        if params.text == "bad":
            raise RuntimeError
        return TextResponse(params.text)

    async with line(far) as both:
        with pytest.raises(RpcError):
            await ask(both.near, "bad", "a")
        assert await ask(both.near, "good", "a") == "good"


async def test_many_requests_of_one_scope_keep_their_order() -> None:
    seen: list[str] = []
    far = router()

    @far.request(WAIT)
    async def run(_ctx: Ctx, params: TextParams) -> TextResponse:
        await asyncio.sleep(0)
        seen.append(params.text)
        return TextResponse(params.text)

    texts = [str(number) for number in range(200)]
    async with line(far) as both, asyncio.TaskGroup() as tasks:
        for text in texts:
            tasks.create_task(ask(both.near, text, "a"))
    assert seen == texts


def test_a_long_lane_of_requests_that_end_at_once_does_not_exhaust_the_stack() -> None:
    lanes, started = Lanes(), list[int]()

    def run(number: int) -> None:
        started.append(number)
        if number:
            lanes.leave("a")

    for number in range(5000):
        lanes.enter("a", partial(run, number))
    assert started == [0]
    lanes.leave("a")
    assert started == list(range(5000))
    lanes.enter("a", partial(run, 1))
    assert started[-1] == 1


def test_an_unused_scope_is_removed() -> None:
    lanes, started = Lanes(), []
    lanes.enter("a", lambda: started.append(1))
    lanes.enter("a", lambda: started.append(2))
    assert started == [1]
    lanes.leave("a")
    assert started == [1, 2]
    lanes.leave("a")
    lanes.enter("a", lambda: started.append(3))
    assert started == [1, 2, 3]
