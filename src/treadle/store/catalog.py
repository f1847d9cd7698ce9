"""The catalog: index, scanner and the threads that this process writes, kept in step."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from treadle.protocol import notifications as n
from treadle.protocol.item import ItemCompletedNotification, UserMessageThreadItem
from treadle.store.database import Database
from treadle.store.files import ARCHIVED, FileJournal
from treadle.store.index import Index, Row
from treadle.store.journal import Entry, Event, ThreadNotFound
from treadle.store.lease import Lease
from treadle.store.names import append_name
from treadle.store.records import MetadataChanged, Named, TurnContext
from treadle.store.replay import preview
from treadle.store.scan import Scanner
from treadle.store.speech import Speech
from treadle.store.thread import SearchPage, StoredThread, ThreadMeta, ThreadPage, ThreadQuery
from treadle.support.clock import NowMs

logger = logging.getLogger(__name__)

_TURN_STARTED: Final = n.TURN_STARTED.method
_TURN_COMPLETED: Final = n.TURN_COMPLETED.method
_ITEM_COMPLETED: Final = n.ITEM_COMPLETED.method


@dataclass(slots=True)
class Held:
    """A thread that this process writes, and its row."""

    journal: FileJournal
    row: Row


class Catalog:
    """Knows every thread of a home."""

    def __init__(self, home: Path, clock: NowMs) -> None:
        self._home = home
        self._prefix = f"{home}/"
        self._clock = clock
        self._database = Database(home)
        self.index = Index(self._database)
        self.scanner = Scanner(home, self._database, self.index)
        self._speech = Speech(self._database)
        self._held: dict[str, Held] = {}

    # -- finding and listing

    def find(self, thread_id: str) -> Path:
        """Say in which file a thread goes on.

        Raises:
            ThreadNotFound: there is none.
        """
        self.scanner.read_names()
        held = self._held.get(thread_id)
        if held is not None and held.journal.path is not None:
            return Path(held.journal.path)
        for attempt in (self._known, self._scanned):
            path = attempt(thread_id)
            if path is not None:
                return path
        raise ThreadNotFound(thread_id)

    def _known(self, thread_id: str) -> Path | None:
        row = self.index.get(thread_id)
        path = None if row is None or row.meta.path is None else Path(row.meta.path)
        return path if path is not None and path.exists() else None

    def _scanned(self, thread_id: str) -> Path | None:
        self.scanner.sweep(self._held)
        return self._known(thread_id)

    def list(self, query: ThreadQuery) -> ThreadPage:
        """Give a page, after a look at what other programs did."""
        # Once per walk through the pages: what appears meanwhile is for the next walk.
        if not query.use_state_db_only and query.cursor is None:
            self.scanner.refresh(self._held)
        page = self.index.page(query)
        if not query.use_state_db_only:
            ids = [meta.id for meta in page.data]
            if self.scanner.check(ids, self._held):
                page = self.index.page(query)
        return page

    def search(self, query: ThreadQuery) -> SearchPage:
        """Give a page of the threads in which something was said."""
        self.scanner.refresh(self._held)
        self._speech.refresh()
        page = self.index.page(query)
        snippets = [self.index.snippet(meta.id, query.mentions or "") for meta in page.data]
        return SearchPage(page, snippets)

    def reindex(self) -> None:
        """Look at every file."""
        self.scanner.sweep(self._held)

    # -- threads that this process writes

    def folder_time(self, folder: Path) -> int:
        """Give a folder's time, for `hold` to tell whether only we changed it since."""
        try:
            return folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def new_row(self, meta: ThreadMeta, created_ms: int) -> Row:
        """The row of a thread that was just begun."""
        return Row(meta, created_ms, created_ms, created_ms, has_message=False)

    def hold(self, journal: FileJournal, row: Row, *, folder_time: int = 0) -> None:
        """Enter a thread that this process begins to write."""
        self._held[row.meta.id] = Held(journal, row)
        self._enter(journal, row, folder_time=folder_time)

    def held_journal(self, thread_id: str) -> FileJournal | None:
        """Give the journal of a thread that this process writes."""
        held = self._held.get(thread_id)
        return None if held is None else held.journal

    def pending(self, path: Path) -> tuple[int, bytes] | None:
        """Return the lines that this process has for a file and that the disk has refused."""
        journals = (held.journal for held in list(self._held.values()))
        return next((j.pending for j in journals if j.path == str(path)), None)

    def let_go(self, thread_id: str) -> None:
        """Follow a thread no longer: whatever its journal is given, it is gone."""
        held = self._held.pop(thread_id, None)
        if held is not None:
            held.journal.delete()

    def row_of(self, stored: StoredThread) -> Row:
        """Give the row of a thread that was just read whole."""
        meta = stored.meta
        known = self.index.get(meta.id)
        has_message = bool(meta.preview) or any(
            isinstance(item, UserMessageThreadItem) for turn in stored.turns for item in turn.items
        )
        created = meta.created_at * 1000 if known is None else known.created_ms
        updated = meta.updated_at * 1000 if known is None else known.updated_ms
        recency = (meta.recency_at or 0) * 1000 if known is None else known.recency_ms
        return Row(meta, created, updated, recency, has_message)

    def appended(self, journal: FileJournal, entries: Sequence[Entry]) -> None:
        """Follow what a journal was given; nothing means that it is closed."""
        held = self._held.get(journal.thread_id)
        if held is None:
            return
        row = held.row
        for entry in entries:
            row = self._follow(row, entry)
        if not entries:
            del self._held[journal.thread_id]
        if row is not held.row or not entries:
            held.row = row
            self._enter(journal, row)

    def _enter(self, journal: FileJournal, row: Row, *, folder_time: int = 0) -> None:
        """Bring the index up to date; the journal has it already, so a failure may wait."""
        if row.meta.path is None or not row.meta.path.startswith(self._prefix):
            return
        path = Path(row.meta.path)
        try:
            with self._database.writing():
                self.scanner.note(path, row.meta.id, journal.stat())
                self.index.put(row)
                if folder_time:
                    now = self.folder_time(path.parent)
                    self.scanner.note_folder(str(path.parent), now, if_known_as=folder_time)
        except sqlite3.Error as error:
            logger.warning("index not updated", extra={"reason": str(error)})

    def _follow(self, row: Row, entry: Entry) -> Row:
        if isinstance(entry, Event):
            if entry.method == _ITEM_COMPLETED and not row.has_message:
                return _with_message(row, entry)
            if entry.method == _TURN_STARTED:
                meta = _timed(row.meta, entry.at_ms, recency_ms=entry.at_ms)
                return replace(row, meta=meta, updated_ms=entry.at_ms, recency_ms=entry.at_ms)
            if entry.method == _TURN_COMPLETED:
                meta = _timed(row.meta, entry.at_ms)
                return replace(row, meta=meta, updated_ms=entry.at_ms)
        elif isinstance(entry, TurnContext):
            return _with_settings(row, entry)
        elif isinstance(entry, Named):
            append_name(self._home, row.meta.id, entry.name, self._clock())
            return _with(row, name=entry.name)
        elif isinstance(entry, MetadataChanged):
            return _with(row, git_info=entry.git_info)
        return row

    # -- changes to whole threads

    @contextmanager
    def leased(self, thread_id: str) -> Iterator[None]:
        """Be the writer of a thread for a moment, unless this process is it anyway."""
        if thread_id in self._held:
            yield
            return
        lease = Lease.acquire(self._home, thread_id, self._clock())
        try:
            yield
        finally:
            lease.release()

    def moved(self, thread_id: str, path: Path, to: Path) -> None:
        """Note that a file of a thread has another place now."""
        held = self._held.get(thread_id)
        archived = to.parent.name == ARCHIVED
        with self._database.writing():
            row = held.row if held is not None else self.index.get(thread_id)
            self.scanner.forget(path)
            if row is None or held is None:
                self.scanner.take(to)
                return
            held.row = _with(row, path=str(to), archived=archived)
            held.journal.path = str(to)
            self.scanner.add(to, held.row, to.stat())

    def rename(self, thread_id: str, name: str | None) -> ThreadMeta:
        """Note the title of a thread."""
        self.index.rename(thread_id, name)
        held = self._held.get(thread_id)
        if held is not None:
            held.row = _with(held.row, name=name)
            return held.row.meta
        row = self.index.get(thread_id)
        if row is None:
            raise ThreadNotFound(thread_id)
        return row.meta

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _with(row: Row, **changes: object) -> Row:
    return replace(row, meta=msgspec.structs.replace(row.meta, **changes))


def _timed(meta: ThreadMeta, updated_ms: int, recency_ms: int | None = None) -> ThreadMeta:
    recency_at = meta.recency_at if recency_ms is None else recency_ms // 1000
    return msgspec.structs.replace(meta, updated_at=updated_ms // 1000, recency_at=recency_at)


def _with_message(row: Row, event: Event) -> Row:
    params = event.params
    if not isinstance(params, ItemCompletedNotification):
        return row
    if not isinstance(params.item, UserMessageThreadItem):
        return row
    return replace(_with(row, preview=preview(params.item)), has_message=True)


def _with_settings(row: Row, context: TurnContext) -> Row:
    meta = row.meta
    now = (context.model, context.provider, context.effort, context.cwd)
    if (meta.model, meta.model_provider, meta.reasoning_effort, meta.cwd) == now:
        return row
    return _with(
        row,
        model=context.model,
        model_provider=context.provider,
        reasoning_effort=context.effort,
        cwd=context.cwd,
    )
