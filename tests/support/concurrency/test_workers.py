"""Blocking work runs in threads, up to a limit, and a caller may abandon it."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from treadle.support.concurrency import workers as workers_module
from treadle.support.concurrency.key_locks import KeyLocks
from treadle.support.concurrency.workers import Workers

SECONDS = 10


async def test_work_runs_in_another_thread_and_returns_its_result() -> None:
    workers = Workers("test", 1)

    assert await workers.run(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await workers.run(divmod, 1, 0)


async def test_a_caller_that_is_cancelled_does_not_wait_and_the_work_keeps_its_thread() -> None:
    workers = Workers("test", 1)
    release, done = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(SECONDS)
        done.set()

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(workers.run(hang))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        second = tasks.create_task(workers.run(done.is_set))
        await asyncio.sleep(0)
        assert not second.done()
        release.set()

        assert await second


async def test_an_idle_thread_keeps_nothing_of_its_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy server keeps its threads: each held what its first call had read."""
    monkeypatch.setattr(workers_module, "IDLE_SECONDS", 10 * SECONDS)
    held, freed = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    weakref.finalize(held, loop.call_soon_threadsafe, freed.set)
    await Workers("test", 1).run(held.is_set)
    del held
    async with asyncio.timeout(SECONDS):
        await freed.wait()


async def test_parts_of_workers_share_threads_and_have_their_own_limit() -> None:
    """Each part had its own threads, so that many parts had any number."""
    whole = Workers("test", 2)
    parts = [whole.part(1) for _ in range(3)]
    started, release = threading.Semaphore(0), threading.Event()

    def hang() -> None:
        started.release()
        release.wait(SECONDS)

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(part.run(hang)) for part in (*parts, parts[0])]
        loop = asyncio.get_running_loop()
        for _ in range(2):
            assert await loop.run_in_executor(None, started.acquire, True, SECONDS)
        assert not started.acquire(blocking=False)
        assert not any(task.done() for task in waiting)
        release.set()


async def test_a_cancelled_call_of_a_part_leaves_its_place_in_the_whole() -> None:
    whole = Workers("test", 1)
    release = threading.Event()
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(whole.part(1).run(release.wait, SECONDS))
        second = tasks.create_task(whole.part(1).run(int))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        release.set()
        await first
        assert await whole.part(1).run(int) == 0


async def test_workers_of_one_kind_do_not_take_the_threads_of_another() -> None:
    release = threading.Event()
    slow, quick = Workers("slow", 1), Workers("quick", 1)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(slow.run(release.wait, SECONDS))

        assert await quick.run(int) == 0
        release.set()


async def test_keys_are_held_by_one_caller_at_a_time() -> None:
    locks = KeyLocks()
    order: list[str] = []

    async def work(name: str, *keys: str) -> None:
        async with locks.hold(keys):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} out")

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(work("a", "1", "2"))
        tasks.create_task(work("b", "2", "3"))
        tasks.create_task(work("c", "4"))

    assert order.index("a out") < order.index("b in")
    assert order.index("c in") < order.index("a out")
