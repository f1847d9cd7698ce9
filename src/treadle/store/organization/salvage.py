"""Replaces a damaged database: what can be read continues, and the old file is kept."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from treadle.support.files.folder_lock import locked
from treadle.support.files.writing import sync_folder

_SUFFIXES: Final = ("", "-journal")

logger = logging.getLogger(__name__)


def replace_damaged(
    path: Path,
    file: int,
    tables: Sequence[str],
    prepare: Callable[[sqlite3.Connection], None],
) -> None:
    """Put a new database in the place of a damaged one, unless another process has done so.

    The damaged one remains as `NAME.damaged`.

    Raises:
        OSError: the new one cannot be written.
        sqlite3.Error: the same.
    """
    beside, kept = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.damaged")
    with locked(path.parent):
        if path.stat().st_ino != file:
            return
        for suffix in _SUFFIXES:
            Path(f"{beside}{suffix}").unlink(missing_ok=True)
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(beside, isolation_level=None)) as fresh:
            fresh.execute("pragma synchronous = extra")
            prepare(fresh)
            rows = _salvage(path, fresh, tables)
        kept.unlink(missing_ok=True)
        os.link(path, kept)
        # Otherwise it would be taken for a journal of the new database.
        Path(f"{path}-journal").unlink(missing_ok=True)
        beside.replace(path)
        sync_folder(path.parent)
    logger.warning("organization set aside", extra={"file": str(kept), "kept": rows})


def _salvage(path: Path, fresh: sqlite3.Connection, tables: Sequence[str]) -> int:
    """Copy the rows that can be read, each table by itself, and return their number."""
    count = 0
    fresh.execute("begin immediate")
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as old:
        for table in tables:
            # From both ends: a damaged page ends the reading from its side.
            for order in ("", " order by rowid desc"):
                with suppress(sqlite3.Error):
                    for row in old.execute(f"select * from {table}{order}"):  # noqa: S608  fixed names
                        marks = ", ".join("?" * len(row))
                        sql = f"insert or ignore into {table} values ({marks})"  # noqa: S608  fixed names
                        count += fresh.execute(sql, row).rowcount
    fresh.execute("commit")
    return count
