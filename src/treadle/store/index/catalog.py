"""The catalog: index, scanner and the threads that this process writes, kept in step."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

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


@dataclass(slots=True)
class Held:
    """A thread that this process writes, and its row."""

    journal: FileJournal
    row: Row


class Catalog:
    """Knows every thread of a home.

    What a thread's writer calls returns at once; everything else may wait, for the disk and for
    other processes, and belongs in a worker thread.
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
        # What the index does not have yet: rows and titles of threads, and what it is being given.
        self._unwritten: dict[tuple[str, str], object] = {}
        self._written: list[tuple[tuple[str, str], object]] = []

    # -- the index, whatever happens to it

    def _guarded(self, operation: Callable[[], T]) -> T:
        """Do something with the index; one that is damaged is replaced, and it is done again.

        Raises:
            IndexBusy: another process changes the index for too long.
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
        """Give a new index the threads that this process writes: the scanner leaves them out."""
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
        """Bring the index up to date before it is read; tell whether that is possible now."""
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
        """Wait for changes of the index that this process made; tell whether they are made."""
        return self._writer.flush(SETTLE_SECONDS)

    # -- finding and listing

    def find(self, thread_id: str) -> Path:
        """Say in which file a thread goes on.

        Raises:
            ThreadNotFound: there is none.
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
        """Find a file by its name, if the index could not be brought up to date."""
        ending = f"-{thread_id}.jsonl"
        found = (path for path in self._scanner.all_files() if path.endswith(ending))
        return next(map(Path, found), None)

    def files_of(self, thread_id: str) -> list[Path]:
        """Give the files of a thread, in the order in which it goes on in them."""
        if not self._writer.is_blocked:
            self.settle()
        found = self._guarded(lambda: self._scanner.files_of(thread_id))
        return found or [self.find(thread_id)]

    def files_named(self, id_: str) -> list[Path]:
        """Give the files that an id may mean: a thread's, or the one that a revert began."""
        return self._guarded(lambda: self._scanner.files_named(id_))

    def name(self, thread_id: str) -> tuple[str | None] | None:
        """Give the title of a thread in a tuple, or nothing if it never had one."""
        given = self._unwritten.get(("name", thread_id))
        if isinstance(given, tuple):
            return given

        def read() -> tuple[str | None] | None:
            # Not at the price of waiting: whoever reads a thread wants its turns.
            if not self._writer.is_blocked:
                with suppress(IndexBusy):
                    self._scanner.read_names()
            return self.index.name(thread_id)

        return self._guarded(read)

    def row(self, thread_id: str) -> Row | None:
        """Give what lists show of a thread."""
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
        """Give a page, after a look at what other programs did."""
        return self._guarded(lambda: self._page(query))

    def _page(self, query: ThreadQuery) -> ThreadPage:
        if query.use_state_db_only:
            self.settle()
            return self.index.page(query)
        # Once per walk through the pages: what appears meanwhile is for the next walk.
        if query.cursor is None and not self._refresh(self._scanner.refresh):
            return self.index.page(query)
        page = self.index.page(query)
        ids = [meta.id for meta in page.data]
        changed: list[bool] = []
        self._refresh(lambda: changed.append(self._scanner.check(ids)))
        return self.index.page(query) if any(changed) else page

    def search(self, query: ThreadQuery) -> SearchPage:
        """Give a page of the threads in which something was said."""
        return self._guarded(lambda: self._found(query))

    def _found(self, query: ThreadQuery) -> SearchPage:
        if self._refresh(self._scanner.refresh):
            self._refresh(self._speech.refresh)
        page = self.index.page(query)
        term = query.mentions or ""
        return SearchPage(page, [self.index.snippet(meta.id, term) for meta in page.data])

    def reindex(self) -> None:
        """Look at every file."""
        self.settle()
        self._guarded(self._scanner.sweep)

    # -- threads that this process writes

    def has(self, thread_id: str) -> bool:
        """Tell whether this process writes a thread."""
        return thread_id in self._held

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
        known = self._guarded(lambda: self.index.get(meta.id))
        has_message = bool(meta.preview or stored.inputs) or any(
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
        """Have the index brought up to date; the journal has it already, so that may wait."""
        if row.meta.path is None or not row.meta.path.startswith(self._prefix):
            return
        path, stat = Path(row.meta.path), journal.stat()
        # As they are now: what comes later must show as a difference if this process dies.
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
        if held is not None:
            archived = to.parent.name == ARCHIVED
            held.row = changed_row(held.row, path=str(to), archived=archived)
            held.journal.path = str(to)
        row = None if held is None else held.row
        # It names the old place.
        self._unwritten.pop(("row", thread_id), None)

        def change() -> None:
            self._scanner.forget(path)
            if row is None:
                self._scanner.take(to)
            else:
                self._scanner.add(to, row, to.stat())

        self._writer.put(("file", str(path)), change)

    def removed(self, thread_id: str, path: Path) -> None:
        """Note that a file of a thread is gone."""
        self._unwritten.pop(("row", thread_id), None)
        self._writer.put(("file", str(path)), partial(self._scanner.forget, path))

    def rename(self, thread_id: str, name: str | None) -> ThreadMeta:
        """Note the title of a thread.

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
        """Finish what is left to write, for a while, and close the database."""
        self._writer.close(CLOSE_SECONDS)
        self._database.close()
