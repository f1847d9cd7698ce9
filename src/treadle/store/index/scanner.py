"""Keeps the index in step with the files, which other programs change too.

Folder listings reveal new and removed files. Appended files show only by their own time and size:
the first use of the index checks all of them, later ones check the recently used files and a few
of the others in turn.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from treadle.store.index.database import Database, IndexBusy
from treadle.store.index.index import (
    ATTACHED,
    HIDDEN,
    LISTED,
    Index,
    Row,
    path_of,
    storable,
    stored_path,
)
from treadle.store.index.names import read_names
from treadle.store.index.summary import summarize
from treadle.store.rollout.folders import (
    newest_first,
    remove_orphans,
    rollouts_in,
    segment_of,
    stat_of,
)
from treadle.store.rollout.format import SessionMeta
from treadle.store.rollout.journal import ARCHIVED, SESSIONS
from treadle.store.rollout.reading import RolloutFile
from treadle.support.files.descriptors import is_shortage

logger = logging.getLogger(__name__)

# A folder's mtime may be older than a change by a tick of the kernel's clock.
RACY_NS: Final = 50_000_000
RECENT: Final = 32
FEW: Final = 256
BATCH: Final = 100
# The archive and the last days, where nearly all changes happen.
RECENT_FOLDERS: Final = 4
# The maximum share of time for checking the other files.
SHARE: Final = 0.05
# Bounds the chain of base files: a file may name itself.
MAX_BASES: Final = 64


# The known state of a file: its path, mtime and size, and its thread.
_Known: TypeAlias = tuple[str | bytes, int, int, str | None]


class _Seen(Struct, frozen=True):
    """A file that was read, and its row; `None` if it is not a rollout."""

    path: Path
    stat: os.stat_result
    row: Row | None


class Scanner:
    """Brings the index up to date at low cost."""

    def __init__(
        self, home: Path, database: Database, index: Index, *, held: Collection[str]
    ) -> None:
        self._home = home
        self._database = database
        self._index = index
        # The threads that this process writes: their writers update the index.
        self._held = held
        # Several requests may scan at once; one scan serves all of them.
        self._lock = threading.RLock()
        self._batch: list[_Seen] = []
        self._is_swept = False
        self._next_look = 0.0
        # The last file of the rotation that was checked.
        self._place: str | bytes = ""

    def reset(self) -> None:
        """Discard what is known: the index was replaced, or a change was lost."""
        self._is_swept = False

    def refresh(self) -> None:
        """Find changes by other programs."""
        with self._lock:
            if not self._is_swept:
                self.sweep()
                return
            self.read_names()
            self._look_into(islice(self._days(), RECENT_FOLDERS))
            self._check(self._recent())
            begun = time.monotonic()
            if begun >= self._next_look:
                self._folders()
                self._check(self._next_few())
                now = time.monotonic()
                self._next_look = now + (now - begun) / SHARE

    def check(self, thread_ids: Iterable[str]) -> bool:
        """Check the files of some threads; return whether any had changed."""
        marks = [thread_id for thread_id in thread_ids if thread_id not in self._held]
        places = ", ".join("?" * len(marks))
        with self._database.reading() as connection:
            files = connection.execute(
                f"select path, mtime_ns, size, thread_id from files where thread_id in ({places})",  # noqa: S608  contains only question marks
                marks,
            ).fetchall()
        with self._lock:
            return self._check(files)

    def sweep(self) -> None:
        """Check every file."""
        with self._lock:
            self.read_names()
            self._folders()
            with self._database.reading() as connection:
                files = connection.execute(
                    "select path, mtime_ns, size, thread_id from files"
                ).fetchall()
            self._check(files)
            self._is_swept = True

    def read_names(self) -> None:
        """Read the names that were added since the last call."""
        with self._database.reading() as connection:
            found = connection.execute("select value from state where key = 'names'").fetchone()
        before = 0 if found is None else int(found[0])
        try:
            if (self._home / "session_index.jsonl").stat().st_size == before:
                return
            offset, names = read_names(self._home, before)
        except FileNotFoundError:
            return
        except OSError as error:
            if is_shortage(error):
                raise
            # Threads can be found without their names.
            logger.warning("thread names not read", extra={"reason": str(error)})
            return
        with self._database.writing() as connection:
            for thread_id, name in names.items():
                self._index.rename(thread_id, name)
            connection.execute(
                "insert into state (key, value) values ('names', ?)"
                " on conflict (key) do update set value = excluded.value",
                (offset,),
            )

    def files_of(self, thread_id: str) -> list[Path]:
        """Return the files of a thread, the latest revert last."""
        with self._database.reading() as connection:
            found = connection.execute(
                "select path from files where thread_id = ? order by segment", (thread_id,)
            ).fetchall()
        return [_path(path) for (path,) in found]

    def files_named(self, id_: str) -> list[Path]:
        """Return the files that an id may mean: a thread's, or the one that a revert began."""
        with self._database.reading() as connection:
            found = connection.execute(
                "select path from files where segment = ? and segment <> ''"
                " union all select path from files where thread_id = ?",
                (id_, id_),
            ).fetchall()
        return [_path(path) for (path,) in found]

    def add(self, path: Path, row: Row, stat: os.stat_result) -> None:
        """Add a file and its row."""
        name = self._index.name(row.meta.id)
        if name is not None and name[0] != row.meta.name:
            row = _renamed(row, name[0])
        with self._database.writing():
            self.note(path, row.meta.id, stat)
            files = self.files_of(row.meta.id)
            if not files or files[-1] == path:
                self._index.put(row)

    def note(self, path: Path, thread_id: str | None, stat: os.stat_result) -> None:
        """Store the known state of a file."""
        with self._database.writing() as connection:
            connection.execute(
                "insert into files (path, folder, mtime_ns, size, thread_id, segment)"
                " values (?, ?, ?, ?, ?, ?) on conflict (path) do update set"
                " mtime_ns = excluded.mtime_ns, size = excluded.size,"
                " thread_id = excluded.thread_id",
                (
                    stored_path(str(path)),
                    stored_path(str(path.parent)),
                    stat.st_mtime_ns,
                    stat.st_size,
                    thread_id,
                    storable(segment_of(path.name)),
                ),
            )

    def forget(self, path: Path) -> None:
        """Remove a file that is gone; its thread continues in an older file, or is removed too."""
        with self._database.writing() as connection:
            found = connection.execute(
                "delete from files where path = ? returning thread_id",
                (stored_path(str(path)),),
            ).fetchone()
            if found is None or found[0] is None:
                return
            row = self._index.get(found[0])
            if row is not None and row.meta.path == str(path):
                self._index.remove(found[0])
                for other in self.files_of(found[0])[-1:]:
                    self.take(other)

    def take(self, path: Path) -> None:
        """Read a file into the index; a file that is not a rollout is remembered as such.

        May run inside `writing`, so it waits for no scan: a scan itself waits to write.
        """
        seen = self._read(path, lambda: None)
        if seen is not None:
            self._enter([seen])

    def _look_at(self, path: Path) -> None:
        """Read a file; the next batch adds it to the index."""
        seen = self._read(path, self._enter_batch)
        if seen is None:
            return
        self._batch.append(seen)
        if len(self._batch) >= BATCH:
            self._enter_batch()

    def _read(self, path: Path, enter_others: Callable[[], None]) -> _Seen | None:
        """Read a file; `None` if it is gone, or cannot be read now.

        `enter_others` adds the files that were read before: its base may be among them.
        """
        stat, row = stat_of(str(path)), None
        if stat is None:
            self.forget(path)
            return None
        find_base = partial(self._find_base, enter_others)
        try:
            with RolloutFile(path) as file:
                # Before reading: bytes appended meanwhile then show as a different size.
                stat = file.stat()
                archived = path.parent.name == ARCHIVED
                row = summarize(file, archived=archived, find_base=find_base)
        except (sqlite3.Error, IndexBusy):
            raise
        except Exception as error:  # noqa: BLE001  boundary: one file must not hide the others
            _log_skipped(path, error)
            if is_shortage(error):
                # Not recorded, so it is read again the next time.
                return None
        return _Seen(path, stat, row)

    def _enter_batch(self) -> None:
        """Add what was read, in one transaction in which no file is read."""
        batch, self._batch = self._batch, []
        if batch:
            self._enter(batch)

    def _enter(self, batch: Sequence[_Seen]) -> None:
        with self._database.writing():
            for seen in batch:
                if stat_of(str(seen.path)) is None:
                    continue  # moved since it was read, perhaps after its new place was entered
                if seen.row is None:
                    self.note(seen.path, None, seen.stat)
                elif seen.row.meta.id not in self._held:
                    self.add(seen.path, seen.row, seen.stat)

    def _find_base(
        self, enter_others: Callable[[], None], session: SessionMeta, depth: int = 0
    ) -> Row | None:
        """Return the row of the file that another one continues."""
        base = session.history_base
        if base is None or depth > MAX_BASES:
            return None
        # It may be among those that were just read.
        enter_others()
        for path in self.files_named(base.thread_id):
            if segment_of(path.name) not in ("", base.thread_id):
                continue
            try:
                with RolloutFile(path) as file:
                    return summarize(
                        file,
                        archived=False,
                        find_base=lambda inner: self._find_base(enter_others, inner, depth + 1),
                    )
            except (sqlite3.Error, IndexBusy):
                raise
            except Exception as error:  # any program may have written the file
                if is_shortage(error):
                    raise
                _log_skipped(path, error)
        return None

    def _recent(self) -> list[_Known]:
        """Return the recently used files: of listed threads, and of those still empty.

        The server of an empty one may have been killed after it accepted the first message.
        """
        query = (
            "select files.path, mtime_ns, size, thread_id from threads"
            " join files on files.path = threads.path where shelf = ?"
            " order by updated_at desc, threads.id desc limit ?"
        )
        with self._database.reading() as connection:
            return [
                row
                for visibility in (LISTED, ATTACHED, HIDDEN)
                for row in connection.execute(query, (visibility, RECENT))
            ]

    def _check(self, files: Iterable[_Known]) -> bool:
        changed = False
        for stored, mtime_ns, size, thread_id in files:
            if thread_id in self._held:
                continue
            path = path_of(stored)
            stat = stat_of(path)
            if stat is None:
                self.forget(Path(path))
                changed = True
            elif (stat.st_mtime_ns, stat.st_size) != (mtime_ns, size):
                self._look_at(Path(path))
                changed = True
        self._enter_batch()
        return changed

    def _next_few(self) -> list[_Known]:
        with self._database.reading() as connection:
            files = connection.execute(
                "select path, mtime_ns, size, thread_id from files where path > ?"
                " order by path limit ?",
                (self._place, FEW),
            ).fetchall()
        self._place = files[-1][0] if len(files) == FEW else ""
        return files

    def _folders(self) -> None:
        self._look_into(self._days())
        with self._database.reading() as connection:
            known = connection.execute("select path from folders").fetchall()
        for (stored,) in known:
            folder = path_of(stored)
            if not os.path.isdir(folder):  # noqa: PTH112 - years of folders, each time
                self._folder(folder, None)

    def _look_into(self, folders: Iterable[str]) -> None:
        """List the folders that changed since their last listing."""
        for folder in folders:
            stat = stat_of(folder)
            if stat is None:
                continue
            mtime_ns = stat.st_mtime_ns
            with self._database.reading() as connection:
                known = connection.execute(
                    "select mtime_ns from folders where path = ?", (stored_path(folder),)
                ).fetchone()
            if known != (mtime_ns,):
                self._folder(folder, mtime_ns)

    def _days(self) -> Iterator[str]:
        """Yield the folders with rollouts: the archive, then the days, newest first."""
        yield str(self._home / ARCHIVED)
        for year in newest_first(str(self._home / SESSIONS)):
            for month in newest_first(year):
                yield from newest_first(month)

    def all_files(self) -> Iterator[str]:
        """Yield every rollout, newest first, without using the index."""
        for folder in self._days():
            yield from sorted(rollouts_in(folder) or (), reverse=True)

    def _folder(self, folder: str, mtime_ns: int | None) -> None:
        if mtime_ns is not None and time.time_ns() - mtime_ns < RACY_NS:
            # Another file may appear within the same tick: list it again next time.
            mtime_ns = -1
        remove_orphans(folder, self._home)
        there = rollouts_in(folder) if mtime_ns is not None else set()
        if there is None:
            return
        with self._database.reading() as connection:
            found = connection.execute(
                "select path from files where folder = ?", (stored_path(folder),)
            ).fetchall()
        known = {path_of(path) for (path,) in found}
        # Oldest first, so that the base of a thread is known before its continuation.
        for path in sorted(there - known):
            self._look_at(Path(path))
        self._enter_batch()
        for path in known - there:
            self.forget(Path(path))
        self.note_folder(folder, mtime_ns)

    def note_folder(self, folder: str, mtime_ns: int | None, *, if_known_as: int = 0) -> None:
        """Store the known state of a folder, or that it is gone."""
        with self._database.writing() as connection:
            if mtime_ns is None:
                connection.execute("delete from folders where path = ?", (stored_path(folder),))
            elif if_known_as:
                connection.execute(
                    "update folders set mtime_ns = ? where path = ? and mtime_ns = ?",
                    (mtime_ns, stored_path(folder), if_known_as),
                )
            else:
                connection.execute(
                    "insert into folders (path, mtime_ns) values (?, ?)"
                    " on conflict (path) do update set mtime_ns = excluded.mtime_ns",
                    (stored_path(folder), mtime_ns),
                )


def _path(stored: str | bytes) -> Path:
    return Path(path_of(stored))


def _log_skipped(path: Path, error: Exception) -> None:
    logger.warning("file skipped", extra={"path": str(path), "reason": str(error)})


def _renamed(row: Row, name: str | None) -> Row:
    meta = msgspec.structs.replace(row.meta, name=name)
    return Row(meta, row.created_ms, row.updated_ms, row.recency_ms, row.has_message)
