"""An event loop in a separate thread, for programs without asyncio."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_CANCEL_SECONDS: Final = 1.0


class Portal:
    """Runs coroutines in another thread and waits for them in the calling thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread if it is not running."""
        if self._thread is not None:
            return
        started = threading.Event()

        def run() -> None:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._loop.call_soon(started.set)
                self._loop.run_forever()

        self._thread = threading.Thread(target=run, name="treadle client", daemon=True)
        self._thread.start()
        started.wait()

    def run(self, work: Coroutine[None, None, T]) -> T:
        """Run a coroutine and return its result; a keyboard interrupt cancels it."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the client is not connected: use it in a `with` block")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a listener cannot wait for its own client: use a thread")
        call = _Call(work)
        self._loop.call_soon_threadsafe(call.start)
        return call.wait(self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread."""

        async def work() -> T:
            return function()

        return self.run(work())

    def iterate(self, events: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator."""

        async def step() -> tuple[T] | None:
            try:
                return (await anext(events),)
            except StopAsyncIteration:
                return None

        try:
            while (entry := self.run(step())) is not None:
                yield entry[0]
        finally:
            close = getattr(events, "aclose", None)
            # Closing the client has already closed an abandoned iterator.
            if close is not None and self._loop is not None:
                self.run(close())

    def stop(self) -> None:
        """End the thread."""
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class _Call(Generic[T]):
    """A coroutine that a thread waits for; a bare lock is the cheapest way to wake the thread."""

    __slots__ = ("_error", "_is_over", "_outcome", "_over", "_task", "_work")

    def __init__(self, work: Coroutine[None, None, T]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._outcome: tuple[T] | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._over = threading.Lock()
        self._over.acquire()

    def start(self) -> None:
        """Start the coroutine, in the loop's thread."""
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            # Runs immediately, not in the loop's next iteration.
            self._task = asyncio.Task(self._run(), loop=loop, eager_start=True)
        else:
            self._task = loop.create_task(self._run())
            # The task may be cancelled before it starts.
            self._task.add_done_callback(lambda _task: self._end())

    def wait(self, loop: asyncio.AbstractEventLoop) -> T:
        """Wait for the outcome, in the caller's thread."""
        try:
            self._over.acquire()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(self._cancel)
            # Lets the cancellation finish before the program continues, perhaps with `close`.
            self._over.acquire(timeout=_CANCEL_SECONDS)
            raise
        try:
            if self._error is not None:
                raise self._error
        finally:
            self._error = None  # breaks the reference cycle with this frame
        if self._outcome is None:
            raise RuntimeError("the event loop ended before the call ran")
        return self._outcome[0]

    async def _run(self) -> None:
        try:
            self._outcome = (await self._work,)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            # Called here, because done callbacks run only in the loop's next iteration.
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._over.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
