"""Doing what a server asks once, though it asks again when a broken line is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias

import msgspec

from treadle.jsonrpc.envelope import Id
from treadle.support.concurrency.tasks import BackgroundTasks

Key: TypeAlias = tuple[Id, str, bytes]
"""A question by its id, its method and a digest of its words: only the very same one is known."""

_KEPT: Final = 16
"""Answers that are kept in case they were lost on the way; they may hold pictures."""


class _Deed:
    """What is done about one question, beside any line."""

    __slots__ = ("line", "outcome", "task")

    def __init__(self, line: object, outcome: asyncio.Future[msgspec.Struct]) -> None:
        self.line = line
        self.outcome = outcome
        self.task: asyncio.Task[None] | None = None


class RequestDeduplicator:
    """The questions of one server, and what became of them."""

    def __init__(self, tasks: BackgroundTasks, *, can_return: bool) -> None:
        self._tasks = tasks
        self._kept = _KEPT if can_return else 0
        self._deeds: dict[Key, _Deed] = {}

    async def do(
        self,
        key: Key,
        line: object,
        work: Callable[[], Coroutine[None, None, msgspec.Struct]],
    ) -> msgspec.Struct:
        """Do the work, or wait for it if the question came over another line before.

        Whoever waits may be cancelled with its line; the work goes on.
        """
        deed = self._deeds.get(key)
        if deed is None or deed.line is line or deed.outcome.cancelled():
            deed = self._begin(key, line, work)
        deed.line = line
        return await asyncio.shield(deed.outcome)

    def give_up(self, id_: Id) -> None:
        """Stop what is done about a question: its answer is not wanted any more."""
        for (asked, _, _), deed in list(self._deeds.items()):
            if asked == id_ and deed.task is not None:
                deed.task.cancel()

    def _begin(
        self, key: Key, line: object, work: Callable[[], Coroutine[None, None, msgspec.Struct]]
    ) -> _Deed:
        deed = _Deed(line, asyncio.get_running_loop().create_future())
        # The newest stand last.
        self._deeds.pop(key, None)
        self._deeds[key] = deed
        deed.task = self._tasks.start(_carry_out(work, deed.outcome), f"answer {key[0]}")
        self._forget_oldest()
        return deed

    def _forget_oldest(self) -> None:
        done = [key for key, deed in self._deeds.items() if deed.outcome.done()]
        for key in done[: max(0, len(done) - self._kept)]:
            del self._deeds[key]


async def _carry_out(
    work: Callable[[], Coroutine[None, None, msgspec.Struct]],
    outcome: asyncio.Future[msgspec.Struct],
) -> None:
    try:
        outcome.set_result(await work())
    except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
        outcome.set_exception(error)
        outcome.exception()  # nobody may, just now
    finally:
        outcome.cancel()  # if it is not settled: this was given up
