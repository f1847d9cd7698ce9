"""A thread for what belongs to the user: tools, handlers of events, callbacks, one at a time.

None of it holds up the reader of the line, and none of it can outlast a deadline: whoever gives
the worker up leaves it behind.
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
    """Does jobs in the order in which they were given."""

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
        """Have a job done; what it raises is logged."""
        self._jobs.put(partial(_logged, job))

    async def run(self, job: Callable[[], T]) -> T:
        """Have a job done and wait for what it gives or raises."""
        answer: asyncio.Future[T] = self._loop.create_future()

        def do() -> None:
            try:
                outcome = job()
            except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
                self._tell(partial(_fail, answer, error))
            else:
                self._tell(partial(_settle, answer, outcome))

        self._answers.add(answer)
        self._jobs.put(do)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    async def drain(self) -> None:
        """Wait until all that was given is done."""
        await self.run(lambda: None)

    def give_up(self) -> None:
        """Let the job that runs run out, and do no other."""
        self.is_given_up = True
        self._jobs.put(None)
        for answer in list(self._answers):
            _fail(answer, RuntimeError("the evaluation is over"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self.is_given_up:
            job()

    def _tell(self, tell: Callable[[], None]) -> None:
        # A loop that has ended raises, and nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell)


def _logged(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception:
        logger.exception("handler failed")


def _settle(answer: asyncio.Future[T], outcome: T) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
