"""A thread for user code: tools, event handlers and callbacks, one at a time.

User code does not block the connection's reader, and cannot outlast a deadline: a worker that is
given up is abandoned.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from treadle.protocol.base import JsonValue

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Worker:
    """Runs jobs in the order of their submission."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self.is_given_up = False
        self._answers: set[asyncio.Future[JsonValue]] = set()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="wink worker", daemon=True
        )
        self._thread.start()

    def post(self, job: Callable[[], object]) -> None:
        """Submit a job; log its exceptions."""
        self._jobs.put(partial(_logged, job))

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job and return its result or raise its exception."""
        answer: asyncio.Future[T] = self._loop.create_future()

        def do() -> None:
            try:
                outcome = job()
            except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                self._call_on_loop(partial(_fail, answer, error))
            else:
                self._call_on_loop(partial(_settle, answer, outcome))

        self._answers.add(answer)
        self._jobs.put(do)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    async def drain(self) -> None:
        """Wait until all submitted jobs are done."""
        await self.run(lambda: None)

    def give_up(self) -> None:
        """Abandon the current job and run no others."""
        self.is_given_up = True
        self._jobs.put(None)
        for answer in list(self._answers):
            _fail(answer, RuntimeError("the evaluation is over"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self.is_given_up:
            job()

    def _call_on_loop(self, callback: Callable[[], None]) -> None:
        # A closed loop raises; nothing waits for the result then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)


def _logged(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception:  # user callback: the worker runs the next job
        logger.exception("handler failed")


def _settle(answer: asyncio.Future[T], outcome: T) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
