"""Virtual time: waiting takes no time, and running work is waited for."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from treadle.testing import VirtualClock


async def test_an_hour_passes_at_once_in_the_order_of_its_timers() -> None:
    order: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((name, clock.elapsed))

    with VirtualClock() as clock:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait("late", 3600))
            tasks.create_task(wait("early", 0.5))
            tasks.create_task(wait("in between", 60))

    assert order == [("early", 0.5), ("in between", 60), ("late", 3600)]
    assert clock.elapsed == 3600


async def test_a_timeout_expires_at_its_time() -> None:
    with VirtualClock() as clock, pytest.raises(TimeoutError):
        async with asyncio.timeout(300):
            await asyncio.Event().wait()
    assert clock.elapsed == 300


async def test_a_wait_beyond_the_limit_of_the_selector_passes_too() -> None:
    """The loop never asks its selector to wait for more than a day."""
    week = 7 * 24 * 3600
    with VirtualClock() as clock:
        await asyncio.sleep(week)
    assert clock.elapsed == week


async def test_a_thread_is_waited_for_while_time_stands_still() -> None:
    released = threading.Event()
    with VirtualClock() as clock:
        async with asyncio.timeout(1):
            asyncio.get_running_loop().call_soon(
                threading.Timer(0.05, released.set).start
            )  # longer than any jump would leave it
            assert await asyncio.to_thread(released.wait, 10)
    assert clock.elapsed == 0


async def test_a_process_may_answer_before_time_jumps() -> None:
    with VirtualClock(grace_s=10) as clock:
        async with asyncio.timeout(5):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print('here')", stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
    assert output == b"here\n"
    assert clock.elapsed == 0


async def test_a_silent_socket_does_not_stop_time() -> None:
    with VirtualClock(grace_s=0.001) as clock:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        async with server:
            await asyncio.sleep(60)
    assert clock.elapsed == 60


async def test_real_time_continues_from_the_virtual_one_when_the_block_ends() -> None:
    loop = asyncio.get_running_loop()
    fired = asyncio.Event()
    with VirtualClock():
        loop.call_later(100.001, fired.set)
        await asyncio.sleep(100)
        assert not fired.is_set()
    async with asyncio.timeout(10):
        await fired.wait()


def test_a_coroutine_runs_on_its_own_loop() -> None:
    clock = VirtualClock(epoch_ms=1_000)

    async def work() -> str:
        await asyncio.sleep(2)
        return "done"

    assert clock.run(work()) == "done"
    assert (clock.elapsed, clock.now_ms()) == (2, 3_000)


async def test_a_second_clock_is_refused() -> None:
    with VirtualClock() as clock:
        for second in (clock, VirtualClock()):
            with pytest.raises(RuntimeError, match="a loop has one clock"), second:
                pass
        await asyncio.sleep(5)
    assert clock.elapsed == 5
