"""Keeps the index in line with the files, which other programs change too.

A look at the folders finds new and removed files. Files that others append to show only by their
own time and size: all are looked at when the index is first used, afterwards each time those that
were in use lately and the next few of the others in turn.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from treadle.store.database import Database
from treadle.store.files import ARCHIVED, SESSIONS
from treadle.store.index import Index, Row
from treadle.store.names import read_names
from treadle.store.reading import RolloutFile
from treadle.store.rollout import SessionMeta
from treadle.store.summary import summarize
from treadle.support.descriptors import is_shortage

logger = logging.getLogger(__name__)

# A folder's time may be older than a change by a tick of the kernel's clock.
RACY_NS: Final = 50_000_000
RECENT: Final = 32
FEW: Final = 256
BATCH: Final = 100
# The archive and the last days, where nearly everything happens.
RECENT_FOLDERS: Final = 4
# Looking at the others may take this part of the time at most.
SHARE: Final = 0.05
# A file that begins in itself must not keep us for ever.
MAX_BASES: Final = 64


class Scanner:
    """Brings the index up to date, as cheaply as it can."""

    def __init__(self, home: Path, database: Database, index: Index) -> None:
        self._home = home
        self._database = database
        self._index = index
        self._is_swept = False
        self._next_look = 0.0
        # The file that was looked at last, of those that are looked at in turn.
        self._place = ""

    def refresh(self, held: Collection[str] = ()) -> None:
        """Find what others changed; `held` are the threads that only we write."""
        self.read_names()
        if not self._is_swept:
            self._folders()
            self._sweep(held)
            return
        self._look_into(islice(self._days(), RECENT_FOLDERS))
        self._check(self._recent(), held)
        begun = time.monotonic()
        if begun >= self._next_look:
            self._folders()
            self._check(self._next_few(), held)
            now = time.monotonic()
            self._next_look = now + (now - begun) / SHARE

    def check(self, thread_ids: Iterable[str], held: Collection[str] = ()) -> bool:
        """Look at the files of some threads; tell whether any had changed."""
        marks = [thread_id for thread_id in thread_ids if thread_id not in held]
        places = ", ".join("?" * len(marks))
        with self._database.lock:
            files = self._database.connection.execute(
                f"select path, mtime_ns, size, thread_id from files where thread_id in ({places})",  # noqa: S608  only question marks
                marks,
            ).fetchall()
        return self._check(files, held)

    def sweep(self, held: Collection[str] = ()) -> None:
        """Look at every file."""
        self.read_names()
        self._folders()
        self._sweep(held)

    def read_names(self) -> None:
        """Take in titles that were given since the last look."""
        with self._database.lock:
            found = self._database.connection.execute(
                "select value from state where key = 'names'"
            ).fetchone()
        before = 0 if found is None else int(found[0])
        try:
            size = (self._home / "session_index.jsonl").stat().st_size
        except FileNotFoundError:
            return
        if size == before:
            return
        offset, names = read_names(self._home, before)
        with self._database.writing() as connection:
            for thread_id, name in names.items():
                self._index.rename(thread_id, name)
            connection.execute(
                "insert into state (key, value) values ('names', ?)"
                " on conflict (key) do update set value = excluded.value",
                (offset,),
            )

    def files_of(self, thread_id: str) -> list[Path]:
        """Give the files of a thread: what a revert began last comes last."""
        with self._database.lock:
            found = self._database.connection.execute(
                "select path from files where thread_id = ? order by segment", (thread_id,)
            ).fetchall()
        return [Path(path) for (path,) in found]

    def files_named(self, id_: str) -> list[Path]:
        """Give the files that an id may mean: a thread's, or the one that a revert began."""
        with self._database.lock:
            found = self._database.connection.execute(
                "select path from files where segment = ? and segment <> ''"
                " union all select path from files where thread_id = ?",
                (id_, id_),
            ).fetchall()
        return [Path(path) for (path,) in found]

    def add(self, path: Path, row: Row, stat: os.stat_result) -> None:
        """Enter a file and what it says."""
        name = self._index.name(row.meta.id)
        if name is not None and name[0] != row.meta.name:
            row = _renamed(row, name[0])
        with self._database.writing():
            self.note(path, row.meta.id, stat)
            files = self.files_of(row.meta.id)
            if not files or files[-1] == path:
                self._index.put(row)

    def note(self, path: Path, thread_id: str | None, stat: os.stat_result) -> None:
        """Remember the state in which a file is known."""
        with self._database.writing() as connection:
            connection.execute(
                "insert into files (path, folder, mtime_ns, size, thread_id, segment)"
                " values (?, ?, ?, ?, ?, ?) on conflict (path) do update set"
                " mtime_ns = excluded.mtime_ns, size = excluded.size,"
                " thread_id = excluded.thread_id",
                (
                    str(path),
                    str(path.parent),
                    stat.st_mtime_ns,
                    stat.st_size,
                    thread_id,
                    _segment(path.name),
                ),
            )

    def forget(self, path: Path) -> None:
        """Drop a file that is gone; its thread goes on in an older file, or is gone too."""
        with self._database.writing() as connection:
            found = connection.execute(
                "delete from files where path = ? returning thread_id", (str(path),)
            ).fetchone()
            if found is None or found[0] is None:
                return
            row = self._index.get(found[0])
            if row is not None and row.meta.path == str(path):
                self._index.remove(found[0])
                for other in self.files_of(found[0])[-1:]:
                    self.take(other)

    def take(self, path: Path) -> Row | None:
        """Read a file into the index; one that is no rollout is remembered as such."""
        stat = _state(str(path))
        if stat is None:
            self.forget(path)
            return None
        try:
            with RolloutFile(path) as file:
                # Before it is read: what is appended meanwhile shows by another size.
                stat = file.stat()
                archived = path.parent.name == ARCHIVED
                row = summarize(file, archived=archived, find_base=self._find_base)
        except Exception as error:  # noqa: BLE001  boundary: one file must not hide the others
            self._skip(path, error)
            # Without a note it is read again the next time.
            if not is_shortage(error):
                self.note(path, None, stat)
            return None
        self.add(path, row, stat)
        return row

    def _skip(self, path: Path, error: Exception) -> None:
        logger.warning("file skipped", extra={"path": str(path), "reason": str(error)})

    def _find_base(self, session: SessionMeta, depth: int = 0) -> Row | None:
        """Look at the file that another one begins in."""
        base = session.history_base
        if base is None or depth > MAX_BASES:
            return None
        for path in self.files_named(base.thread_id):
            if _segment(path.name) not in ("", base.thread_id):
                continue
            try:
                with RolloutFile(path) as file:
                    return summarize(
                        file,
                        archived=False,
                        find_base=lambda inner: self._find_base(inner, depth + 1),
                    )
            except Exception as error:
                if is_shortage(error):
                    raise
                self._skip(path, error)
        return None

    def _recent(self) -> list[tuple[str, int, int, str]]:
        with self._database.lock:
            return self._database.connection.execute(
                "select files.path, mtime_ns, size, thread_id from threads"
                " join files on files.path = threads.path where shelf = 0"
                " order by updated_at desc, threads.id desc limit ?",
                (RECENT,),
            ).fetchall()

    def _check(
        self, files: Iterable[tuple[str, int, int, str | None]], held: Collection[str]
    ) -> bool:
        changed = False
        for path, mtime_ns, size, thread_id in files:
            if thread_id in held:
                continue
            stat = _state(path)
            if stat is None:
                self.forget(Path(path))
                changed = True
            elif (stat.st_mtime_ns, stat.st_size) != (mtime_ns, size):
                self.take(Path(path))
                changed = True
        return changed

    def _sweep(self, held: Collection[str]) -> None:
        with self._database.lock:
            files = self._database.connection.execute(
                "select path, mtime_ns, size, thread_id from files"
            ).fetchall()
        self._check(files, held)
        self._is_swept = True

    def _next_few(self) -> list[tuple[str, int, int, str | None]]:
        with self._database.lock:
            files = self._database.connection.execute(
                "select path, mtime_ns, size, thread_id from files where path > ?"
                " order by path limit ?",
                (self._place, FEW),
            ).fetchall()
        self._place = files[-1][0] if len(files) == FEW else ""
        return files

    def _folders(self) -> None:
        self._look_into(self._days())
        with self._database.lock:
            known = self._database.connection.execute("select path from folders").fetchall()
        for (folder,) in known:
            if not os.path.isdir(folder):  # noqa: PTH112 - years of folders, each time
                self._folder(folder, None)

    def _look_into(self, folders: Iterable[str]) -> None:
        """List the folders that have changed since they were listed last."""
        for folder in folders:
            stat = _state(folder)
            if stat is None:
                continue
            mtime_ns = stat.st_mtime_ns
            with self._database.lock:
                known = self._database.connection.execute(
                    "select mtime_ns from folders where path = ?", (folder,)
                ).fetchone()
            if known != (mtime_ns,):
                self._folder(folder, mtime_ns)

    def _days(self) -> Iterator[str]:
        """Give the folders that hold rollouts: the archive, then the days, the newest first."""
        yield str(self._home / ARCHIVED)
        for year in _newest_first(str(self._home / SESSIONS)):
            for month in _newest_first(year):
                yield from _newest_first(month)

    def _folder(self, folder: str, mtime_ns: int | None) -> None:
        if mtime_ns is not None and time.time_ns() - mtime_ns < RACY_NS:
            # Another file may come within the same tick: look again next time.
            mtime_ns = -1
        there = _rollouts(folder) if mtime_ns is not None else set()
        if there is None:
            return
        with self._database.lock:
            found = self._database.connection.execute(
                "select path from files where folder = ?", (folder,)
            ).fetchall()
        known = {path for (path,) in found}
        # Oldest first, so that the beginning of a thread is known before what goes on from it.
        new = sorted(there - known)
        for start in range(0, len(new), BATCH):
            # Many in one transaction, but not so many that other processes wait for long.
            with self._database.writing():
                for path in new[start : start + BATCH]:
                    self.take(Path(path))
        for path in known - there:
            self.forget(Path(path))
        self.note_folder(folder, mtime_ns)

    def note_folder(self, folder: str, mtime_ns: int | None, *, if_known_as: int = 0) -> None:
        """Remember the state in which a folder is known, or that it is gone."""
        with self._database.writing() as connection:
            if mtime_ns is None:
                connection.execute("delete from folders where path = ?", (folder,))
            elif if_known_as:
                connection.execute(
                    "update folders set mtime_ns = ? where path = ? and mtime_ns = ?",
                    (mtime_ns, folder, if_known_as),
                )
            else:
                connection.execute(
                    "insert into folders (path, mtime_ns) values (?, ?)"
                    " on conflict (path) do update set mtime_ns = excluded.mtime_ns",
                    (folder, mtime_ns),
                )


def _newest_first(folder: str) -> list[str]:
    """Give the folders in a folder; their names are numbers of one length."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        logger.warning("folder skipped", extra={"path": folder, "reason": str(error)})
        return []
    return sorted((path for path in found if os.path.isdir(path)), reverse=True)  # noqa: PTH112 - years of folders, each time


def _rollouts(folder: str) -> set[str] | None:
    """Give the rollouts in a folder, or nothing if it cannot be read now."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  names are all that is needed of many files
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        logger.warning("folder skipped", extra={"path": folder, "reason": str(error)})
        return None
    found = {f"{folder}/{name}" for name in names if name.startswith("rollout-")}
    for path in found:
        if path.endswith(".jsonl.zst"):
            logger.warning("compressed rollout skipped", extra={"path": path})
    return {path for path in found if path.endswith(".jsonl")}


def _state(path: str) -> os.stat_result | None:
    """Give the state of what a name leads to, of the link itself if it leads nowhere it can."""
    try:
        return os.stat(path)  # noqa: PTH116  a Path for each of many files costs more than the call
    except FileNotFoundError:
        return None
    except OSError:
        pass
    try:
        return os.lstat(path)
    except OSError:
        return None


def _segment(name: str) -> str:
    """Give the part of a file's name that a revert added, which sorts by time; else nothing."""
    return name.removesuffix(".jsonl").partition("_")[2]


def _renamed(row: Row, name: str | None) -> Row:
    meta = msgspec.structs.replace(row.meta, name=name)
    return Row(meta, row.created_ms, row.updated_ms, row.recency_ms, row.has_message)
