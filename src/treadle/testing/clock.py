"""Virtual time that advances only when the loop is idle, so that waiting takes no real time.

Only asyncio's time is virtual. Other processes, sockets and threads use real time, and so does
`time.time()`. The clock waits for threads of the loop's executors. Sockets and processes are not
predictable: while one is watched, time jumps only after `grace_s` real seconds without input. Over
`memory_pair()` and with a server in this process nothing depends on that.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

T = TypeVar("T")

Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]

EPOCH_MS: Final = 1_700_000_000_000
# The loop watches its own pipe, through which threads wake it.
_OWN_DESCRIPTORS: Final = 1


class VirtualClock:
    """Makes the running loop's time virtual inside a `with` block.

    `asyncio.sleep`, `asyncio.timeout`, `call_later` and everything built on them use it.
    """

    def __init__(self, *, grace_s: float = 0.1, epoch_ms: int = EPOCH_MS) -> None:
        self._grace_s = grace_s
        self._epoch_ms = epoch_ms
        self._elapsed = 0.0
        self._executor_jobs = 0
        self._undo: Callable[[], None] | None = None

    @property
    def elapsed(self) -> float:
        """The elapsed virtual seconds, rounded to microseconds."""
        return round(self._elapsed, 6)

    def now_ms(self) -> int:
        """Return the matching wall clock time, for servers that take a clock."""
        return self._epoch_ms + round(self._elapsed * 1000)

    def run(self, work: Coroutine[None, None, T]) -> T:
        """Run a coroutine on a new loop whose time is virtual."""

        async def inside() -> T:
            with self:
                return await work

        return asyncio.run(inside())

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        selector = getattr(loop, "_selector", None)
        if not isinstance(selector, selectors.BaseSelector):
            raise TypeError(f"only asyncio's own loops can have virtual time, not {type(loop)}")
        if self._undo is not None or "select" in vars(selector):
            raise RuntimeError("a clock has one loop, and a loop has one clock")
        self._undo = self._install(loop, selector)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._undo is not None:
            self._undo()
        self._undo = None

    def _install(
        self, loop: AbstractEventLoop, selector: selectors.BaseSelector
    ) -> Callable[[], None]:
        real_time, real_select, real_run = loop.time, selector.select, loop.run_in_executor
        origin = real_time() - self._elapsed

        def select(timeout: float | None = None) -> Ready:
            return self._select(selector, real_select, timeout)

        def run_in_executor(
            executor: Executor | None, func: Callable[..., T], *args: object
        ) -> Future[T]:
            work = real_run(executor, func, *args)
            self._executor_jobs += 1
            work.add_done_callback(self._on_job_done)
            return work

        overrides = {"time": lambda: origin + self._elapsed, "run_in_executor": run_in_executor}
        vars(loop).update(overrides)
        vars(selector)["select"] = select

        def undo() -> None:
            vars(selector).pop("select")
            vars(loop).pop("run_in_executor")
            # Pending timers would otherwise be late by the skipped time.
            shift = loop.time() - real_time()
            vars(loop)["time"] = lambda: real_time() + shift

        return undo

    def _select(
        self,
        selector: selectors.BaseSelector,
        select: Callable[[float | None], Ready],
        timeout: float | None,
    ) -> Ready:
        """Wait as the loop requests, but skip time in which nothing happens."""
        ready = select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._executor_jobs:
            return select(None)
        if _has_real_sources(selector) and (ready := select(self._grace_s)):
            return ready
        self._elapsed += timeout
        return []

    def _on_job_done(self, _work: Future[T]) -> None:
        self._executor_jobs -= 1


def _has_real_sources(selector: selectors.BaseSelector) -> bool:
    """Return whether a socket or a process may still produce input."""
    if len(selector.get_map()) > _OWN_DESCRIPTORS:
        return True
    # Before Python 3.12, and without pidfds, threads of this name wait for processes to end.
    return any(thread.name.startswith("asyncio-waitpid-") for thread in threading.enumerate())
