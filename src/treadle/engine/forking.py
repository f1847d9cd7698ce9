"""Threads that go on from another conversation: from a stored thread, or from one elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.errors import TurnNotFound
from treadle.engine.services import LoadedState
from treadle.engine.settings import RunSettings
from treadle.model.base import ModelItem
from treadle.protocol.extension import Budget
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import Entry, Event, StorageFailed
from treadle.store.records import HistoryItem
from treadle.store.stored_thread import StoredThread, ThreadMeta
from treadle.support.concurrency.threads import give_way

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.threads import Threads

APPENDED_AT_ONCE: Final = 64
"""How many entries of a copy are written at once."""


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
    """Copy a thread's history into a new one: whole, up to a turn, or before it.

    Raises:
        TurnNotFound: it has no such turn.
    """
    origin = source.meta
    for turn_id in (last_turn_id, before_turn_id):
        if turn_id is not None and turn_id not in {turn.id for turn in source.turns}:
            raise TurnNotFound(turn_id)

    def describe_fork(meta: ThreadMeta) -> ThreadMeta:
        copied = {"name": origin.name, "preview": origin.preview}
        return describe(msgspec.structs.replace(meta, forked_from_id=origin.id, **copied))

    given = origin.extra or {}
    budget = given.get("budget")
    thread = threads.start(
        settings,
        describe=describe_fork,
        ephemeral=ephemeral,
        # The copy may use as much as the whole was given, and is counted anew.
        budget=None if budget is None else msgspec.convert(budget, Budget),
        metadata=given.get("metadata"),
    )
    entries = await threads.store.run(
        lambda: threads.store.copy_entries(
            source, thread.id, last_turn_id=last_turn_id, before_turn_id=before_turn_id
        )
    )
    return await _begin_with(threads, thread, entries)


async def start_from(
    threads: Threads,
    history: Sequence[ModelItem],
    settings: RunSettings,
    *,
    describe: Callable[[ThreadMeta], ThreadMeta],
) -> LoadedThread:
    """Begin a thread whose model remembers a conversation that took place elsewhere."""
    thread = threads.start(settings, describe=describe)
    return (await _begin_with(threads, thread, [HistoryItem(item) for item in history]))[0]


async def _begin_with(
    threads: Threads, thread: LoadedThread, entries: Sequence[Entry]
) -> tuple[LoadedThread, list[TurnSnapshot]]:
    """Let a new thread go on from entries of another one."""
    from treadle.engine.transcript import history_of, settings_of, turns_of, usage_of

    def begin() -> tuple[LoadedState, list[TurnSnapshot]]:
        # A part at a time, so that neither memory nor other threads wait for the whole.
        for place in range(0, len(entries), APPENDED_AT_ONCE):
            thread.journal.append(entries[place : place + APPENDED_AT_ONCE])
            give_way()
        loaded = LoadedState(
            thread.meta,
            thread.settings,
            history_of(entries),
            usage_of(entries),
            last=settings_of(entries),
        )
        return loaded, turns_of(entry for entry in entries if isinstance(entry, Event))

    # Nobody but this knows the thread yet: its journal may be written elsewhere for once.
    try:
        loaded, turns = await threads.store.run(begin)
    except StorageFailed:
        await threads.discard(thread)
        raise
    return threads.keep(thread.journal, loaded), turns
