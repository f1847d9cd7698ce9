"""Deduplication of server requests that a server repeats after a reconnection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias

import msgspec

from treadle.jsonrpc.envelope import Id
from treadle.support.concurrency.tasks import BackgroundTasks

Key: TypeAlias = tuple[Id, str, bytes]
"""A server request by its id, its method and a digest of its params."""

_MAX_FINISHED: Final = 16
"""Answers kept in case the connection lost them; limited, because they may hold images."""


class _Execution:
    """The handling of one server request, independent of any connection."""

    __slots__ = ("connection", "outcome", "task")

    def __init__(self, connection: object, outcome: asyncio.Future[msgspec.Struct]) -> None:
        self.connection = connection
        self.outcome = outcome
        self.task: asyncio.Task[None] | None = None


class RequestDeduplicator:
    """Runs each server request once and returns its answer to every repetition."""

    def __init__(self, tasks: BackgroundTasks, *, can_return: bool) -> None:
        self._tasks = tasks
        self._max_finished = _MAX_FINISHED if can_return else 0
        self._executions: dict[Key, _Execution] = {}

    async def do(
        self,
        key: Key,
        connection: object,
        work: Callable[[], Coroutine[None, None, msgspec.Struct]],
    ) -> msgspec.Struct:
        """Run the work, or wait for it if an earlier connection delivered the same request.

        A caller may be cancelled with its connection; the work continues.
        """
        execution = self._executions.get(key)
        if execution is None or execution.connection is connection or execution.outcome.cancelled():
            execution = self._begin(key, connection, work)
        execution.connection = connection
        return await asyncio.shield(execution.outcome)

    def give_up(self, id_: Id) -> None:
        """Cancel the handling of a request whose answer is no longer needed."""
        for (request_id, _, _), execution in list(self._executions.items()):
            if request_id == id_ and execution.task is not None:
                execution.task.cancel()

    def _begin(
        self,
        key: Key,
        connection: object,
        work: Callable[[], Coroutine[None, None, msgspec.Struct]],
    ) -> _Execution:
        execution = _Execution(connection, asyncio.get_running_loop().create_future())
        # Keeps the newest last.
        self._executions.pop(key, None)
        self._executions[key] = execution
        execution.task = self._tasks.start(_run(work, execution.outcome), f"answer {key[0]}")
        self._drop_oldest()
        return execution

    def _drop_oldest(self) -> None:
        done = [key for key, execution in self._executions.items() if execution.outcome.done()]
        for key in done[: max(0, len(done) - self._max_finished)]:
            del self._executions[key]


async def _run(
    work: Callable[[], Coroutine[None, None, msgspec.Struct]],
    outcome: asyncio.Future[msgspec.Struct],
) -> None:
    try:
        outcome.set_result(await work())
    except Exception as error:  # noqa: BLE001 - raised to the waiter
        outcome.set_exception(error)
        outcome.exception()  # marks it as retrieved: there may be no waiter
    finally:
        outcome.cancel()  # has an effect only if the work was cancelled
