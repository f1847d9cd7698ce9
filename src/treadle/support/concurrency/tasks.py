"""Tasks that belong to an object instead of a block.

`asyncio.TaskGroup` ends all its tasks when one fails. Turns are independent of each other: a
failure is logged, the others continue, and closing the owner ends them all.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine

logger = logging.getLogger(__name__)


class BackgroundTasks:
    """Owns tasks; `close` leaves none behind."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Start a task.

        Raises:
            RuntimeError: the owner is closed.
        """
        if self._is_closed:
            work.close()
            raise RuntimeError("the owner of the tasks is closed")
        return self._own(asyncio.get_running_loop().create_task(work, name=name))

    def start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Start a task that runs at once up to its first wait, where the interpreter supports it.

        Raises:
            RuntimeError: the owner is closed.
        """
        if sys.version_info >= (3, 12) and not self._is_closed:
            loop = asyncio.get_running_loop()
            return self._own(asyncio.Task(work, loop=loop, name=name, eager_start=True))
        return self.spawn(work, name)

    def _own(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    @property
    def is_closed(self) -> bool:
        """Whether no more tasks can be started."""
        return self._is_closed

    async def close(self) -> None:
        """Cancel the running tasks and wait for them."""
        self._is_closed = True
        for task in self._tasks:
            # A cancelled task may be cleaning up: a second cancel would cut that short.
            if not task.cancelling():
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task failed", extra={"task": task.get_name()}, exc_info=error)
