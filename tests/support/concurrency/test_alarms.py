"""Deadlines that share one timer of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from treadle.support.concurrency.alarms import Alarms


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_alarms_fire_in_the_order_of_their_times() -> None:
    alarms = Alarms()
    rung: list[str] = []
    is_over = asyncio.Event()
    alarms.set(0.02, is_over.set)
    alarms.set(0.01, lambda: rung.append("second"))
    alarms.set(0.0, lambda: rung.append("first"))
    async with asyncio.timeout(5):
        await is_over.wait()
    assert rung == ["first", "second"]


async def test_a_cancelled_alarm_does_not_fire() -> None:
    alarms = Alarms()
    rung: list[str] = []
    is_over = asyncio.Event()
    alarms.set(0.0, lambda: rung.append("cancelled")).cancel()
    alarms.set(0.0, lambda: rung.append("left"))
    alarms.set(0.01, is_over.set)
    async with asyncio.timeout(5):
        await is_over.wait()
    assert rung == ["left"]


async def test_one_alarm_may_cancel_another_that_is_due_as_well() -> None:
    alarms = Alarms()
    rung: list[str] = []
    is_over = asyncio.Event()
    second = alarms.set(0.001, lambda: rung.append("cancelled"))
    alarms.set(0.0, second.cancel)
    is_blocked_until = asyncio.get_running_loop().time() + 0.002
    while asyncio.get_running_loop().time() < is_blocked_until:
        pass  # so that both are due when the loop checks
    alarms.set(0.01, is_over.set)
    async with asyncio.timeout(5):
        await is_over.wait()
    assert rung == []


async def test_many_pending_alarms_use_one_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(
        when: float, callback: Callable[..., object], *arguments: object
    ) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, callback, *arguments)

    monkeypatch.setattr(loop, "call_at", counted)
    alarms = Alarms()
    for _ in range(1000):
        with alarms.limit(30):
            pass
    assert len(timers) == 1
    alarms.close()


async def test_a_block_that_takes_too_long_ends_and_its_task_continues() -> None:
    alarms = Alarms()
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError), alarms.limit(0.0):
            await for_ever()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)


async def test_a_block_without_a_limit_or_within_its_limit_is_unaffected() -> None:
    alarms = Alarms()
    with alarms.limit(None):
        await asyncio.sleep(0)
    with alarms.limit(0.0):
        pass
    is_over = asyncio.Event()
    alarms.set(0.01, is_over.set)
    async with asyncio.timeout(5):
        await is_over.wait()


async def test_an_explicit_cancel_wins_over_an_expired_deadline() -> None:
    alarms = Alarms()

    async def limited() -> None:
        with alarms.limit(0.0):
            await for_ever()

    async with asyncio.timeout(5):
        task = asyncio.get_running_loop().create_task(limited())
        await asyncio.sleep(0)
        # Fires in the iteration in which the task is cancelled, before it can run.
        alarms.set(0.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()
