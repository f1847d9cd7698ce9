"""Threads for blocking work, so that nothing slow runs on the event loop.

Each kind of work has its own limit instead of a share in the loop's default executor: requests
that hang on a slow disk use up their own limit and delay no other kind of work. The threads are
daemons, because one that hangs in the kernel must not keep the process from exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


ABANDONED_SECONDS: Final = 10.0
"""How long a cancelled caller waits for what its function opened to be closed."""

IDLE_SECONDS: Final = 5.0
"""How long a thread waits for its next call before it ends."""

OnAbandoned: TypeAlias = Callable[[R], object]


def ignore(_result: object) -> None:
    """Drop a result that needs no care."""


class Workers:
    """Runs blocking functions in threads, at most `limit` at a time."""

    def __init__(
        self,
        name: str,
        limit: int,
        *,
        threads: _DaemonThreads | None = None,
        outer: tuple[asyncio.Semaphore, ...] = (),
    ) -> None:
        self._threads = threads or _DaemonThreads(name)
        self._name = name
        # A call takes a place of these workers first, then of those that they are a part of.
        self._places = (asyncio.Semaphore(limit), *outer)

    def part(self, limit: int) -> Workers:
        """Return workers that use these threads, at most `limit` at a time."""
        return Workers(self._name, limit, threads=self._threads, outer=self._places)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Wait for a free thread and give what the function returns.

        A cancelled caller leaves at once. The function goes on and keeps its place until it
        returns, so that calls which hang cannot pile up beyond the limit.
        """
        return await asyncio.shield(await self.start(work, *args, **kwargs))

    async def run_owned(self, work: Callable[[], R], on_abandoned: OnAbandoned[R]) -> R:
        """Do as `run`, and pass on what the function returns after its caller was cancelled.

        A cancelled caller waits for a moment: the next caller must not find that the function
        still holds what it opened.
        """
        outcome = await self.start(work)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            outcome.add_done_callback(partial(_hand_over, on_abandoned))
            await asyncio.wait([outcome], timeout=ABANDONED_SECONDS)
            raise

    async def start(
        self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[R]:
        """Wait for a free thread and start the function; it cannot be cancelled any more."""
        taken: list[asyncio.Semaphore] = []
        try:
            for place in self._places:
                await place.acquire()
                taken.append(place)
            future = self._start(partial(work, *args, **kwargs))
        except BaseException:
            for place in taken:
                place.release()
            raise
        future.add_done_callback(self._on_done)
        return future

    def _start(self, work: Callable[[], R]) -> asyncio.Future[R]:
        # By the loop rather than directly: a loop with virtual time waits for its executors.
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)

    def _on_done(self, future: asyncio.Future[R]) -> None:
        for place in self._places:
            place.release()
        if not future.cancelled():
            future.exception()  # the caller may have left: nothing is logged as never retrieved


def _hand_over(take: OnAbandoned[R], outcome: asyncio.Future[R]) -> None:
    if not outcome.cancelled() and outcome.exception() is None:
        take(outcome.result())


class _DaemonThreads(Executor):
    """Daemon threads that serve one call after the other; the standard library's pools join theirs.

    A thread that has served `IDLE_SECONDS` ago ends. Starting one for each call took a third of a
    millisecond of the processor per turn.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        call = partial(_settle, future, partial(fn, *args, **kwargs))
        if self._idle.acquire(blocking=False):
            self._calls.put(call)
        else:
            # In a list, from which it is taken: a thread keeps its arguments while it runs.
            threading.Thread(
                target=self._serve, args=([call],), name=self._name, daemon=True
            ).start()
        return future

    def _serve(self, first: list[Callable[[], None]]) -> None:
        call: Callable[[], None] | None = first.pop()
        while call is not None:
            call()
            call = None  # what it holds is not kept while the thread is idle
            self._idle.release()
            call = self._next()

    def _next(self) -> Callable[[], None] | None:
        """Wait for a call; `None` when the thread is to end."""
        try:
            return self._calls.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            if self._idle.acquire(blocking=False):
                return None
        # Another call has counted on this thread meanwhile.
        return self._calls.get()


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the boundary of the thread: its caller raises it
        future.set_exception(error)
    else:
        future.set_result(result)
