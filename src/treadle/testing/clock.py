"""Time that passes when nothing else is left to do: an hour of waiting takes no time at all.

Only asyncio's time is virtual. Other processes, sockets and threads live in real time, and so does
`time.time()`. Threads of the loop's executors are waited for. What a socket or another process
will do cannot be known: while one is watched, time jumps only after `grace_s` real seconds in which
nothing came. Over `memory_pair()` and with a server in this process nothing depends on that.
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
# The loop watches a pipe of its own, by which threads wake it.
_OWN_DESCRIPTORS: Final = 1


class VirtualClock:
    """Makes the running loop's time virtual inside a `with` block.

    `asyncio.sleep`, `asyncio.timeout`, `call_later` and all that is made of them follow it.
    """

    def __init__(self, *, grace_s: float = 0.1, epoch_ms: int = EPOCH_MS) -> None:
        self._grace_s = grace_s
        self._epoch_ms = epoch_ms
        self._passed = 0.0
        self._working = 0
        self._undo: Callable[[], None] | None = None

    @property
    def elapsed(self) -> float:
        """The virtual seconds that have passed, to the microsecond."""
        return round(self._passed, 6)

    def now_ms(self) -> int:
        """The wall clock that goes with it, for servers that are given one."""
        return self._epoch_ms + round(self._passed * 1000)

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
        began = real_time() - self._passed

        def select(timeout: float | None = None) -> Ready:
            return self._select(selector, real_select, timeout)

        def run_in_executor(
            executor: Executor | None, func: Callable[..., T], *args: object
        ) -> Future[T]:
            work = real_run(executor, func, *args)
            self._working += 1
            work.add_done_callback(self._on_worked)
            return work

        replaced = {"time": lambda: began + self._passed, "run_in_executor": run_in_executor}
        vars(loop).update(replaced)
        vars(selector)["select"] = select

        def undo() -> None:
            vars(selector).pop("select")
            vars(loop).pop("run_in_executor")
            # Timers that are still set would otherwise be late by all that was jumped over.
            shift = loop.time() - real_time()
            vars(loop)["time"] = lambda: real_time() + shift

        return undo

    def _select(
        self,
        selector: selectors.BaseSelector,
        select: Callable[[float | None], Ready],
        timeout: float | None,
    ) -> Ready:
        """Wait as the loop asks to, but let time jump where it would only pass."""
        ready = select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._working:
            return select(None)
        if _is_anything_real(selector) and (ready := select(self._grace_s)):
            return ready
        self._passed += timeout
        return []

    def _on_worked(self, _work: Future[T]) -> None:
        self._working -= 1


def _is_anything_real(selector: selectors.BaseSelector) -> bool:
    """Whether a socket or a process may yet have something to say."""
    if len(selector.get_map()) > _OWN_DESCRIPTORS:
        return True
    # Before Python 3.12, and without pidfds, threads of this name wait for processes to end.
    return any(thread.name.startswith("asyncio-waitpid-") for thread in threading.enumerate())
