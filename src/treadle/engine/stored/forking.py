"""Starts threads from the history of another thread or of an external conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from treadle.store.journal import Entry, Event, StorageFailed
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
    thread = threads.start(
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
        return entries_of(copied, thread.id)

    return await _fill(threads, thread, await threads.store.run(copy))


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
    thread = threads.start(settings, describe=describe)
    return (await _fill(threads, thread, [HistoryItem(item) for item in history]))[0]


async def _fill(
    threads: Threads, thread: LoadedThread, entries: Sequence[Entry]
) -> tuple[LoadedThread, list[TurnSnapshot]]:
    """Append the entries to a new thread and load it with the resulting state."""
    from treadle.engine.stored.transcript import history_of, settings_of, turns_of, usage_of

    def append() -> tuple[LoadedState, list[TurnSnapshot]]:
        # In batches, to limit memory and not to block other threads.
        for start in range(0, len(entries), BATCH):
            thread.journal.append(entries[start : start + BATCH], may_fill=True)
            give_way()
        loaded = LoadedState(
            thread.meta,
            thread.settings,
            history_of(entries),
            usage_of(entries),
            last_context=settings_of(entries),
            start="fork",
        )
        return loaded, turns_of(entry for entry in entries if isinstance(entry, Event))

    # No other code knows the thread yet, so a worker thread may write its journal.
    try:
        loaded, turns = await threads.store.run(append)
    except StorageFailed:
        await threads.discard(thread)
        raise
    return threads.install(thread.journal, loaded), turns
