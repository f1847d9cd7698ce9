"""The event loop of the servers, in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, including threads with a running loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[None, None, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it.

        Raises:
            RuntimeError: the caller is this thread, which must not wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a coroutine cannot wait for its own adapter: use a plain handler")
        return asyncio.run_coroutine_threadsafe(work, self._ensure_started())

    def stop(self) -> None:
        """End the thread, if it runs."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                created: Future[asyncio.AbstractEventLoop] = Future()
                # A daemon, so that a program that does not close its adapter can still exit.
                self._thread = threading.Thread(
                    target=_run, args=(created,), name="treadle wink", daemon=True
                )
                self._thread.start()
                self._loop = created.result()
            return self._loop


def _run(created: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        created.set_result(loop)
        loop.run_forever()
