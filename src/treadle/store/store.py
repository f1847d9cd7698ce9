"""A home: the threads of one folder, their journals and the index over them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from treadle.store.index.names import append_name
from treadle.store.journal import Journal, StorageFailed, ThreadExists, ThreadNotFound
from treadle.store.lease import Lease
from treadle.store.memory import MemoryJournal
from treadle.store.organization.placement import NOWHERE, Placement
from treadle.store.records import AnyRecord
from treadle.store.rollout.format import decode_line, from_meta, session_meta
from treadle.store.rollout.journal import (
    ARCHIVED,
    FileJournal,
    create_file,
    make_private,
    open_file,
    rollout_path,
    unarchived_path,
)
from treadle.store.rollout.lines import LineWriter
from treadle.store.rollout.loader import LoadedRollout, ThreadFile
from treadle.store.rollout.reading import RolloutFile
from treadle.store.rollout.repair import repair
from treadle.store.rollout.sync import FileSync
from treadle.store.stored_thread import (
    SearchPage,
    StoredThread,
    ThreadCreator,
    ThreadMeta,
    ThreadPage,
    ThreadQuery,
)
from treadle.store.thread_reader import ThreadReader
from treadle.support.clock import NowMs, now_ms
from treadle.support.concurrency.workers import OnAbandoned, Workers, ignore
from treadle.support.files.descriptors import is_shortage

if TYPE_CHECKING:
    from treadle.store.index.catalog import Catalog
    from treadle.store.index.index import Row
    from treadle.store.organization.organization import Organization

# Deltas have numbers too, but are not stored: clients may have seen numbers above the last one on
# disk. No number may be used twice, so a new writer continues well above.
SEQ_GAP: Final = 1 << 20
MAX_WORKERS: Final = 8  # more would only compete for the interpreter
MAX_ORGANIZING: Final = 2
T = TypeVar("T")


class Store:
    """Creates, opens, reads and lists threads; several servers may share one home."""

    def __init__(
        self,
        home: Path,
        *,
        clock: NowMs = now_ms,
        creator: Callable[[], ThreadCreator] = ThreadCreator,
    ) -> None:
        self.home = home
        self._clock = clock
        # Returns the login that starts a thread.
        self._creator = creator
        # Worker threads list threads while the event loop writes.
        self._lock = threading.Lock()
        self._workers = Workers("store", MAX_WORKERS)
        # Apart from threads: a command that may only read can lock this database.
        self._organizing = Workers("organization", MAX_ORGANIZING)
        self._opened: Catalog | None = None
        # Folders whose names are known to be synced.
        self._synced_folders: set[Path] = set()

    @property
    def _catalog(self) -> Catalog:
        """Opened on first use, since some servers never need it."""
        from treadle.store.index.catalog import Catalog  # imports SQLite

        with self._lock:
            if self._opened is None:
                self._opened = Catalog(self.home, self._clock)
            return self._opened

    @cached_property
    def organization(self) -> Organization:
        """The sections, projects and attachments of the threads; for worker threads."""
        from treadle.store.organization.organization import Organization  # imports SQLite

        return Organization(self.home)

    def placement(self, thread_id: str) -> Placement:
        """Return the section and the project of a thread, as of the last refresh."""
        organization: Organization | None = vars(self).get("organization")
        return NOWHERE if organization is None else organization.placement(thread_id)

    async def refresh_placements(self) -> None:
        """Read the sections and projects of threads if another server may have changed them.

        If they cannot be read, those that were read last remain: threads do not depend on them.
        """
        if "organization" in vars(self) and self.organization.is_current:
            return
        if (self.home / "organization.sqlite").exists():
            await self.run(self._refresh_organization)

    def _refresh_organization(self) -> None:
        # The first access imports SQLite, which belongs in a worker thread too.
        self.organization.refresh()

    def create(self, meta: ThreadMeta, *, ephemeral: bool = False) -> Journal:
        """Create a thread; unless ephemeral, it has a file, which `Journal.sync` puts on disk.

        Raises:
            ThreadExists: a thread with this id exists.
            StorageFailed: the file cannot be written.
        """
        if ephemeral:
            return MemoryJournal(meta.id)
        now = self._clock()
        created_ms = now if now // 1000 == meta.created_at else meta.created_at * 1000
        path = rollout_path(self.home, meta.id, created_ms)
        if self._catalog.has(meta.id) or path.exists():
            # The index may know another file, but reading it could block, and ids are new.
            raise ThreadExists(meta.id)
        creator = self._creator()
        meta = msgspec.structs.replace(
            meta,
            creator_user_id=creator.user_id,
            creator_account_id=creator.account_id,
            read_state=None,
            session_id=meta.session_id or meta.id,
            # The reference does not read a file without these two lines.
            originator=meta.originator or "treadle",
            cli_version=meta.cli_version or "0",
            path=str(path),
            ephemeral=False,
            preview="",
        )
        writer = LineWriter(self._clock)
        first = writer.first(*from_meta(meta, created_ms), created_ms)
        before = self._catalog.folder_time(path.parent)
        try:
            lease = Lease.acquire(self.home, meta.id, now)
            try:
                descriptor = create_file(path, first)
            except BaseException:
                lease.release()
                raise
        except (OSError, MemoryError) as error:
            raise StorageFailed(str(path.parent), error) from error
        row = self._catalog.new_row(meta, created_ms)
        journal = self._journal(
            path, descriptor, lease, writer, row, last_seq=0, unsynced=self._unsynced(path)
        )
        self._catalog.hold(journal, row, folder_time=before)
        return journal

    def _unsynced(self, path: Path) -> list[Path]:
        """Return the folders to sync with a new file: its own, and the parents of new folders."""
        folders = [path.parent]
        for folder in path.parents:
            if folder in self._synced_folders or folder == self.home.parent:
                break
            folders.append(folder.parent)
        return folders

    def open(self, thread_id: str) -> tuple[Journal, StoredThread]:
        """Take the lease of a stored thread and read the whole thread.

        Raises:
            ThreadNotFound: there is no such thread.
            ThreadCorrupt: its file has no valid first line.
            ThreadLocked: it has a writer, in this or another process.
        """
        return self._open(thread_id, self._catalog.find(thread_id))

    def open_path(self, path: str) -> tuple[Journal, StoredThread]:
        """Like `open`, for the thread in the given file."""
        return self._open(self.id_at(path), self._existing(path))

    def _open(self, thread_id: str, path: Path) -> tuple[Journal, StoredThread]:
        lease = Lease.acquire(self.home, thread_id, self._clock())
        try:
            descriptor = open_file(path)
        except OSError as error:
            lease.release()
            if is_shortage(error):
                raise
            raise ThreadNotFound(thread_id) from None
        try:
            repair(descriptor)
            loaded = self._load(path)
        except BaseException:
            os.close(descriptor)
            lease.release()
            raise
        stored = loaded.stored
        writer = LineWriter(
            self._clock,
            dialect=stored.meta.history_mode,
            ordinal=loaded.last_ordinal + 1,
            turns=[turn.id for turn in stored.turns],
        )
        row = self._catalog.row_of(stored)
        last_seq = stored.last_seq + SEQ_GAP if stored.last_seq else 0
        journal = self._journal(path, descriptor, lease, writer, row, last_seq=last_seq)
        self._catalog.hold(journal, row)
        return journal, stored

    def _journal(
        self,
        path: Path,
        descriptor: int,
        lease: Lease,
        writer: LineWriter,
        row: Row,
        *,
        last_seq: int,
        unsynced: Sequence[Path] | None = None,
    ) -> FileJournal:
        return FileJournal(
            row.meta.id,
            path,
            descriptor,
            lease=lease,
            writer=writer,
            last_seq=last_seq,
            watcher=self._catalog.appended,
            sync=FileSync(
                os.fstat(descriptor).st_size if unsynced is None else 0,
                unsynced or (),
                on_synced=self._synced_folders.update,
            ),
        )

    def read(self, thread_id: str, *, turns: bool = True) -> StoredThread:
        """Read a thread without taking its lease; without `turns`, only its metadata.

        Raises:
            ThreadNotFound: there is no such thread.
            ThreadCorrupt: its file has no valid first line.
        """
        path = self._catalog.find(thread_id)
        if not turns:
            row = self._catalog.row(thread_id)
            if row is not None:
                return StoredThread(row.meta)
        return self._load(path).stored

    def read_path(self, path: str, *, turns: bool = True) -> StoredThread:
        """Like `read`, for the thread in the given file."""
        stored = self._load(self._existing(path)).stored
        return stored if turns else StoredThread(stored.meta)

    def reader(self, thread_id: str) -> ThreadReader:
        """Open a thread for repeated reads while it grows; raises `ThreadNotFound`."""
        return self._reader(self._catalog.find(thread_id))

    def _reader(
        self, path: Path, *, last_turn_id: str | None = None, before_turn_id: str | None = None
    ) -> ThreadReader:
        file = ThreadFile(
            path,
            files_named=self._catalog.files_named,
            last_turn_id=last_turn_id,
            before_turn_id=before_turn_id,
            pending=partial(self._catalog.pending, path),
        )
        return ThreadReader(file, self._catalog.name)

    def id_at(self, path: str) -> str:
        """Return the id of the thread in a file.

        Raises:
            ThreadNotFound: there is no such file.
            ThreadCorrupt: it does not begin like a rollout.
        """
        with RolloutFile(place := self._existing(path)) as file:
            _, piece = file.line_around(0)
        return session_meta(decode_line(piece or b""), place).id

    async def run(self, work: Callable[[], T], on_abandoned: OnAbandoned[T] = ignore) -> T:
        """Run an operation on this store in a worker thread.

        All methods may wait for the disk or other processes; call only `create` on the event loop.
        """
        return await self._workers.run_owned(work, on_abandoned)

    async def organize(self, work: Callable[[], T]) -> T:
        """Run an operation on the organization in a worker thread."""
        return await self._organizing.run(work)

    def is_held(self, thread_id: str) -> bool:
        """Return whether any process writes a thread now."""
        return Lease.is_held(self.home, thread_id)

    def _load(self, path: Path, **cut: str | None) -> LoadedRollout:
        with self._reader(path, **cut) as reader:
            return reader.load()

    def _existing(self, path: str) -> Path:
        place = Path(path)
        if not place.is_absolute():
            place = self.home / place
        if not place.is_file():
            raise ThreadNotFound(path)
        return place

    def cut(
        self,
        source: StoredThread,
        *,
        last_turn_id: str | None = None,
        before_turn_id: str | None = None,
    ) -> StoredThread:
        """Return a thread as it was after a turn, or before one; whole if no turn is named.

        Raises:
            ThreadNotFound: the thread is to be cut and has no file.
        """
        if last_turn_id is None and before_turn_id is None:
            return source
        if source.meta.path is None:
            raise ThreadNotFound(source.meta.id)
        return self._load(
            Path(source.meta.path), last_turn_id=last_turn_id, before_turn_id=before_turn_id
        ).stored

    def list(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of threads.

        Raises:
            BadCursor: the cursor does not belong to this list.
        """
        return self._catalog.list(query)

    def search(self, query: ThreadQuery) -> SearchPage:
        """Return one page of the threads that contain `query.mentions`, with snippets.

        Raises:
            BadCursor: the cursor does not belong to this list.
        """
        return self._catalog.search(query)

    def check_archivable(self, thread_id: str) -> None:
        """Check what can be checked before a thread is unloaded to archive it.

        Raises:
            ThreadNotFound: there is no such thread, or it is archived already.
            OSError: the folder for archived threads cannot be created.
        """
        if self._catalog.find(thread_id).parent.name == ARCHIVED:
            raise ThreadNotFound(thread_id)
        make_private(self.home / ARCHIVED)

    def archive(self, thread_id: str) -> ThreadMeta:
        """Archive a thread.

        Raises:
            ThreadNotFound: there is no such thread, or it is archived already.
            ThreadLocked: another process writes it.
        """
        self.check_archivable(thread_id)
        return self._move(thread_id, archived=True)

    def unarchive(self, thread_id: str) -> ThreadMeta:
        """Restore an archived thread.

        Raises:
            ThreadNotFound: there is no such thread among the archived ones.
            ThreadLocked: another process writes it.
        """
        path = self._catalog.find(thread_id)
        if path.parent.name != ARCHIVED:
            raise ThreadNotFound(thread_id)
        return self._move(thread_id, archived=False)

    def _move(self, thread_id: str, *, archived: bool) -> ThreadMeta:
        row = self._catalog.row(thread_id)
        if row is None:
            raise ThreadNotFound(thread_id)
        to = self._catalog.find(thread_id)
        with self._catalog.leased(thread_id):
            for path in self._catalog.files_of(thread_id):
                to = (
                    self.home / ARCHIVED / path.name
                    if archived
                    else unarchived_path(self.home, path)
                )
                make_private(to.parent)
                path.rename(to)
                self._catalog.moved(thread_id, path, to)
        self._catalog.settle()
        return msgspec.structs.replace(row.meta, path=str(to), archived=archived)

    def delete(self, thread_id: str) -> None:
        """Delete a thread permanently.

        Raises:
            ThreadNotFound: there is no such thread.
            ThreadLocked: another process writes it.
        """
        self._catalog.find(thread_id)
        with self._catalog.leased(thread_id):
            self._catalog.forget(thread_id)
            for path in self._catalog.files_of(thread_id):
                path.unlink(missing_ok=True)
                self._catalog.removed(thread_id, path)
        self._catalog.settle()

    def set_name(self, thread_id: str, name: str | None) -> ThreadMeta:
        """Set the name of a thread, also while another process writes it.

        Raises:
            ThreadNotFound: there is no such thread.
        """
        self._catalog.find(thread_id)
        append_name(self.home, thread_id, name, self._clock())
        meta = self._catalog.rename(thread_id, name)
        self._catalog.settle()
        return meta

    def update(self, thread_id: str, record: Callable[[ThreadMeta], AnyRecord]) -> ThreadMeta:
        """Append a record made from the current metadata; return the metadata after it.

        Raises:
            ThreadNotFound: there is no such thread.
            ThreadLocked: another process writes it.
        """
        journal = self._catalog.held_journal(thread_id)
        if journal is not None:
            journal.append([record(self.read(thread_id, turns=False).meta)])
        else:
            opened, stored = self.open(thread_id)
            try:
                opened.append([record(stored.meta)])
            finally:
                opened.close()
        return self.read(thread_id, turns=False).meta

    def reindex(self) -> None:
        """Bring the index in line with every file, however long it takes."""
        self._catalog.reindex()

    def close(self) -> None:
        """Close the index; journals are closed separately."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
