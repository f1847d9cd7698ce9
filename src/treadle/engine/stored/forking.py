"""Starts threads from the history of another thread or of an external conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.conversation import instructions
from treadle.engine.conversation.history import open_calls
from treadle.engine.conversation.input import message
from treadle.engine.ending import ABORTED
from treadle.engine.errors import TurnNotFound
from treadle.engine.settings import RunSettings
from treadle.engine.state import LoadedState
from treadle.engine.tools.registry import output_item, read_call
from treadle.model.base import ModelItem
from treadle.protocol.extension import Budget
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.continuation import entries_of
from treadle.store.journal import Entry, Event, Journal, StoreError
from treadle.store.records import HistoryItem
from treadle.store.stored_thread import StoredThread, ThreadMeta
from treadle.support.concurrency.threads import give_way

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.threads import Threads

BATCH: Final = 64
"""The number of entries that a copy writes at a time."""


async def fork(
    threads: Threads,
    source: StoredThread,
    settings: RunSettings,
    *,
    describe: Callable[[ThreadMeta], ThreadMeta],
    ephemeral: bool = False,
    last_turn_id: str | None = None,
    before_turn_id: str | None = None,
) -> tuple[LoadedThread, list[TurnSnapshot]]:
    """Copy a thread's history into a new thread: all of it, through a turn, or before a turn.

    Raises:
        TurnNotFound: the source has no such turn.
    """
    origin = source.meta
    for turn_id in (last_turn_id, before_turn_id):
        if turn_id is not None and turn_id not in {turn.id for turn in source.turns}:
            raise TurnNotFound(turn_id)

    def describe_fork(meta: ThreadMeta) -> ThreadMeta:
        copied = {"name": origin.name, "preview": origin.preview}
        return describe(msgspec.structs.replace(meta, forked_from_id=origin.id, **copied))

    extra = origin.extra or {}
    budget = extra.get("budget")
    journal, created = threads.create(
        settings,
        describe=describe_fork,
        ephemeral=ephemeral,
        # The fork gets the full budget, counted from zero.
        budget=None if budget is None else msgspec.convert(budget, Budget),
        metadata=extra.get("metadata"),
    )

    def copy() -> Sequence[Entry]:
        copied = threads.store.cut(source, last_turn_id=last_turn_id, before_turn_id=before_turn_id)
        _interrupt_running_turn(copied)
        return entries_of(copied, created.meta.id)

    return await _fill(threads, journal, created, copy)


def _interrupt_running_turn(copied: StoredThread) -> None:
    """End the turn that is running in the source as `turn/interrupt` does."""
    if not copied.turns or copied.turns[-1].status != "inProgress":
        return
    turn = copied.turns[-1]
    open_items = [
        msgspec.structs.replace(started.item, status="failed")
        for started in copied.open_items
        if started.turn_id == turn.id and getattr(started.item, "status", None) == "inProgress"
    ]
    copied.turns[-1] = msgspec.structs.replace(
        turn, status="interrupted", items=[*turn.items, *open_items]
    )
    calls = [read_call(item) for item in open_calls(copied.history)]
    copied.history += [output_item(call, ABORTED) for call in calls if call is not None]
    copied.history.append(message("user", instructions.INTERRUPTED))


async def start_from(
    threads: Threads,
    history: Sequence[ModelItem],
    settings: RunSettings,
    *,
    describe: Callable[[ThreadMeta], ThreadMeta],
) -> LoadedThread:
    """Start a thread whose history is a conversation from elsewhere."""
    journal, created = threads.create(settings, describe=describe)
    entries = [HistoryItem(item) for item in history]
    return (await _fill(threads, journal, created, lambda: entries))[0]


async def _fill(
    threads: Threads, journal: Journal, created: LoadedState, read: Callable[[], Sequence[Entry]]
) -> tuple[LoadedThread, list[TurnSnapshot]]:
    """Append entries to a new thread, and install it with the resulting state.

    It is installed only when it is complete: a client that finds it earlier, by its file, waits.
    """
    has_begun = False

    def work() -> tuple[LoadedState, list[TurnSnapshot]] | Exception:
        nonlocal has_begun
        has_begun = True
        try:
            return _append(journal, created, read())
        except Exception as error:  # noqa: BLE001 - raised below, if the caller still waits
            return error

    async with threads.opening(created.meta.id):
        try:
            # No other code knows the thread yet, so a worker thread may write its journal.
            outcome = await threads.store.run(work, on_abandoned=lambda _: threads.leave(journal))
        except asyncio.CancelledError:
            if not has_begun:
                threads.leave(journal)
            raise
        if not isinstance(outcome, Exception):
            loaded, turns = outcome
            return threads.install(journal, loaded), turns
        threads.leave(journal)
        with suppress(OSError, StoreError):
            await threads.store.run(partial(threads.store.delete, created.meta.id))
        raise outcome


def _append(
    journal: Journal, created: LoadedState, entries: Sequence[Entry]
) -> tuple[LoadedState, list[TurnSnapshot]]:
    from treadle.engine.stored.transcript import history_of, settings_of, turns_of, usage_of

    # In batches, to limit memory and not to block other threads.
    for start in range(0, len(entries), BATCH):
        journal.append(entries[start : start + BATCH], may_fill=True)
        give_way()
    loaded = LoadedState(
        created.meta,
        created.settings,
        history_of(entries),
        usage_of(entries),
        meter=created.meter,
        last_context=settings_of(entries),
        start="fork",
    )
    return loaded, turns_of(entry for entry in entries if isinstance(entry, Event))
