"""The catalog: keeps the index, the files and the threads of this process in step."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from treadle.protocol.item import UserMessageThreadItem
from treadle.store.index.database import Database, IndexBusy, is_busy, is_damage
from treadle.store.index.index import Index, Row
from treadle.store.index.messages import MessageIndex
from treadle.store.index.names import append_name
from treadle.store.index.row_updates import changed_row, followed
from treadle.store.index.scanner import Scanner
from treadle.store.index.writer import Change, IndexWriter
from treadle.store.journal import Entry, ThreadNotFound
from treadle.store.lease import Lease
from treadle.store.records import Named
from treadle.store.rollout.journal import ARCHIVED, FileJournal, close_to_others
from treadle.store.stored_thread import (
    SearchPage,
    StoredThread,
    ThreadMeta,
    ThreadPage,
    ThreadQuery,
)
from treadle.support.clock import NowMs

logger = logging.getLogger(__name__)

T = TypeVar("T")

SETTLE_SECONDS: Final = 1.0
"""How long a list waits for changes that this process has not written to the index yet."""
CLOSE_SECONDS: Final = 2.0


class Held(Struct):
    """A thread that this process writes, and its row."""

    journal: FileJournal
    row: Row


class Catalog:
    """Knows every thread of a home.

    Calls from a thread's writer return at once. All others may wait for the disk and for other
    processes, and belong in a worker thread.
    """

    def __init__(self, home: Path, clock: NowMs) -> None:
        self._home = home
        self._prefix = f"{home}/"
        self._clock = clock
        close_to_others(home)
        self._held: dict[str, Held] = {}
        self._database = Database(home)
        self.index = Index(self._database)
        self._scanner = Scanner(home, self._database, self.index, held=self._held)
        self._speech = MessageIndex(self._database)
        self._writer = IndexWriter(self._change, self._scanner.reset)
        # Rows and names that the index does not have yet, and those of the current transaction.
        self._unwritten: dict[tuple[str, str], object] = {}
        self._written: list[tuple[tuple[str, str], object]] = []

    # -- access to the index

    def _guarded(self, operation: Callable[[], T]) -> T:
        """Run an operation on the index; if the index is damaged, replace it and retry.

        Raises:
            IndexBusy: another process locks the index for too long.
        """
        for in_memory in (False, True):
            generation = self._database.generation
            try:
                return operation()
            except (sqlite3.Error, IndexBusy) as error:
                if is_busy(error):
                    if self._database.is_open:
                        raise IndexBusy from error
                    # It cannot even be read.
                    self._database.replace(generation, error, in_memory=True)
                elif is_damage(error):
                    self._database.replace(generation, error, in_memory=in_memory)
                else:
                    raise
                self._scanner.reset()
                self._enter_held()
        return operation()

    def _enter_held(self) -> None:
        """Add the threads of this process to a new index: the scanner skips them."""
        for held in list(self._held.values()):
            # This runs in a worker thread: the journal may be closing its file.
            with suppress(OSError):
                self._enter(held.journal, held.row)

    def _change(self, changes: Sequence[Change]) -> None:
        def make() -> None:
            self._written.clear()
            with self._database.writing():
                for change in changes:
                    change()

        self._guarded(make)
        for key, value in self._written:
            if self._unwritten.get(key) is value:
                del self._unwritten[key]

    def _refresh(self, look: Callable[[], object]) -> bool:
        """Bring the index up to date before a read; return whether that was possible."""
        try:
            if self.settle():
                look()
                return True
        except IndexBusy:
            pass
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        logger.warning("index is busy: it may be out of date")
        return False

    def settle(self) -> bool:
        """Wait for pending changes of this process; return whether they are written."""
        return self._writer.flush(SETTLE_SECONDS)

    # -- finding and listing

    def find(self, thread_id: str) -> Path:
        """Return the file that a thread continues in.

        Raises:
            ThreadNotFound: there is no such thread.
        """
        held = self._held.get(thread_id)
        if held is not None and held.journal.path is not None:
            return Path(held.journal.path)
        path = self._known(thread_id)
        if path is None:
            self._guarded(lambda: self._refresh(self._scanner.sweep))
            path = self._known(thread_id) or self._named(thread_id)
        if path is None:
            raise ThreadNotFound(thread_id)
        return path

    def _known(self, thread_id: str) -> Path | None:
        row = self._unwritten.get(("row", thread_id))
        if not isinstance(row, Row):
            row = self._guarded(lambda: self.index.get(thread_id))
        path = None if row is None or row.meta.path is None else Path(row.meta.path)
        return path if path is not None and path.exists() else None

    def _named(self, thread_id: str) -> Path | None:
        """Find a file by its name, in case the index is not up to date."""
        found = (p for p in self._scanner.all_files() if p.endswith(f"-{thread_id}.jsonl"))
        return next(map(Path, found), None)

    def files_of(self, thread_id: str) -> list[Path]:
        """Return the files of a thread, oldest first, also if the index has their old places."""
        if not self._writer.is_blocked:
            self.settle()
        found = self._guarded(lambda: self._scanner.files_of(thread_id))
        if not all(path.exists() for path in found):
            there = {Path(path).name: Path(path) for path in self._scanner.all_files()}
            found = [there[path.name] for path in found if path.name in there]
        return found or [self.find(thread_id)]

    def files_named(self, id_: str) -> list[Path]:
        """Return the files that an id may mean: a thread's, or the one that a revert began."""
        return self._guarded(lambda: self._scanner.files_named(id_))

    def name(self, thread_id: str) -> tuple[str | None] | None:
        """Return the name of a thread in a tuple, or `None` if it never had one."""
        given = self._unwritten.get(("name", thread_id))
        if isinstance(given, tuple):
            return given

        def read() -> tuple[str | None] | None:
            # Do not wait for a busy index here: the caller needs the turns more than a fresh name.
            if not self._writer.is_blocked:
                with suppress(IndexBusy):
                    self._scanner.read_names()
            return self.index.name(thread_id)

        return self._guarded(read)

    def row(self, thread_id: str) -> Row | None:
        """Return the row of a thread, as lists show it."""
        held = self._held.get(thread_id)
        if held is not None:
            return held.row.light
        unwritten = self._unwritten.get(("row", thread_id))
        if isinstance(unwritten, Row):
            return unwritten.light

        def read() -> Row | None:
            row = self.index.get(thread_id)
            if row is None:
                self._refresh(self._scanner.sweep)
                row = self.index.get(thread_id)
            return row

        return self._guarded(read)

    def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads, after checking for changes by other programs."""
        return self._guarded(lambda: self._page(query))

    def _page(self, query: ThreadQuery) -> ThreadPage:
        if query.use_state_db_only:
            self.settle()
            return self.index.page(query)
        # Once per walk through the pages: new files wait for the next walk.
        if query.cursor is None and not self._refresh(self._scanner.refresh):
            return self.index.page(query)
        page = self.index.page(query)
        ids = [meta.id for meta in page.data]
        changed: list[bool] = []
        self._refresh(lambda: changed.append(self._scanner.check(ids)))
        return self.index.page(query) if any(changed) else page

    def search(self, query: ThreadQuery) -> SearchPage:
        """Return a page of the threads that contain a term."""
        return self._guarded(lambda: self._found(query))

    def _found(self, query: ThreadQuery) -> SearchPage:
        if self._refresh(self._scanner.refresh):
            self._refresh(self._speech.refresh)
        page = self.index.page(query)
        term = query.mentions or ""
        return SearchPage(page, [self.index.snippet(meta.id, term) for meta in page.data])

    def reindex(self) -> None:
        """Check every file."""
        self.settle()
        self._guarded(self._scanner.sweep)

    # -- threads that this process writes

    def has(self, thread_id: str) -> bool:
        """Return whether this process writes a thread."""
        return thread_id in self._held

    def folder_time(self, folder: Path) -> int:
        """Return a folder's mtime, so that `hold` can detect changes by others."""
        try:
            return folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def new_row(self, meta: ThreadMeta, created_ms: int) -> Row:
        """Return the row of a new thread."""
        return Row(meta, created_ms, created_ms, created_ms, has_message=False)

    def hold(self, journal: FileJournal, row: Row, *, folder_time: int = 0) -> None:
        """Register a thread that this process begins to write."""
        self._held[row.meta.id] = Held(journal, row)
        self._enter(journal, row, folder_time=folder_time)

    def held_journal(self, thread_id: str) -> FileJournal | None:
        """Return the journal of a thread that this process writes."""
        held = self._held.get(thread_id)
        return None if held is None else held.journal

    def pending(self, path: Path) -> tuple[int, bytes] | None:
        """Return the unwritten lines of a file that this process holds in memory."""
        journals = (held.journal for held in list(self._held.values()))
        return next((j.pending for j in journals if j.path == str(path)), None)

    def forget(self, thread_id: str) -> None:
        """Stop following a deleted thread, and ignore later entries."""
        held = self._held.pop(thread_id, None)
        if held is not None:
            held.journal.delete()

    def row_of(self, stored: StoredThread) -> Row:
        """Return the row of a thread that was just loaded."""
        meta = stored.meta
        known = self._guarded(lambda: self.index.get(meta.id))
        has_message = bool(meta.preview or stored.inputs) or any(
            isinstance(item, UserMessageThreadItem) for turn in stored.turns for item in turn.items
        )
        created = meta.created_at * 1000 if known is None else known.created_ms
        updated = meta.updated_at * 1000 if known is None else known.updated_ms
        recency = (meta.recency_at or 0) * 1000 if known is None else known.recency_ms
        return Row(meta, created, updated, recency, has_message)

    def appended(self, journal: FileJournal, entries: Sequence[Entry]) -> None:
        """Update the row after an append; no entries mean that the journal is closed."""
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
        """Schedule an update of the index; it may be late, since the journal has the data."""
        if row.meta.path is None or not row.meta.path.startswith(self._prefix):
            return
        path, stat = Path(row.meta.path), journal.stat()
        # The current times: later changes must show as a difference if this process dies.
        now = self.folder_time(path.parent) if folder_time else 0

        def change() -> None:
            self._scanner.note(path, row.meta.id, stat)
            self.index.put(row)
            if now:
                self._scanner.note_folder(str(path.parent), now, if_known_as=folder_time)
            self._written.append((key, row))

        key = ("row", row.meta.id)
        self._unwritten[key] = row
        self._writer.put(key, change)

    def _follow(self, row: Row, entry: Entry) -> Row:
        if isinstance(entry, Named):
            append_name(self._home, row.meta.id, entry.name, self._clock())
        return followed(row, entry)

    # -- changes to whole threads

    @contextmanager
    def leased(self, thread_id: str) -> Iterator[None]:
        """Hold the lease of a thread for a moment, unless this process holds it already."""
        if thread_id in self._held:
            yield
            return
        lease = Lease.acquire(self._home, thread_id, self._clock())
        try:
            yield
        finally:
            lease.release()

    def moved(self, thread_id: str, path: Path, to: Path) -> None:
        """Record the new path of a file."""
        held = self._held.get(thread_id)
        if held is not None:
            archived = to.parent.name == ARCHIVED
            held.row = changed_row(held.row, path=str(to), archived=archived)
            held.journal.moved(str(to))
        row = None if held is None else held.row
        # It has the old path.
        self._unwritten.pop(("row", thread_id), None)

        def change() -> None:
            self._scanner.forget(path)
            if row is None:
                self._scanner.take(to)
            else:
                self._scanner.add(to, row, to.stat())

        self._writer.put(("file", str(path)), change)

    def removed(self, thread_id: str, path: Path) -> None:
        """Record that a file of a thread is gone."""
        self._unwritten.pop(("row", thread_id), None)
        self._writer.put(("file", str(path)), partial(self._scanner.forget, path))

    def rename(self, thread_id: str, name: str | None) -> ThreadMeta:
        """Record the new name of a thread.

        Raises:
            ThreadNotFound: there is no such thread.
        """
        row = self.row(thread_id)
        if row is None:
            raise ThreadNotFound(thread_id)
        key, given = ("name", thread_id), (name,)

        def change() -> None:
            self.index.rename(thread_id, name)
            self._written.append((key, given))

        self._unwritten[key] = given
        self._writer.put(key, change)
        held = self._held.get(thread_id)
        if held is not None:
            held.row = changed_row(held.row, name=name)
        return changed_row(row, name=name).meta

    def close(self) -> None:
        """Write pending changes, within a time limit, and close the database."""
        self._writer.close(CLOSE_SECONDS)
        self._database.close()
