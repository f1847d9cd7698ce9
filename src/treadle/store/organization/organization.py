"""The organization of a home: the database, and the place of each thread in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from treadle.store.journal import StoreError
from treadle.store.organization.database import OrganizationDamaged, OrganizationDatabase
from treadle.store.organization.placement import NOWHERE, Placement
from treadle.store.organization.sections import all_sections

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Organization:
    """Reads and changes in worker threads; `placement` answers from memory.

    The memory is refreshed by every operation: another process may change the database too.
    """

    def __init__(self, home: Path) -> None:
        self._database = OrganizationDatabase(home)
        self._stamp: tuple[int, int, int] | None = None
        # Why the places could not be read: logged once.
        self._fault: str | None = None
        self._placements: Mapping[str, Placement] = {}

    @property
    def is_current(self) -> bool:
        """Whether the memory is what the database has; for the event loop."""
        return self._database.stamp == self._stamp

    def placement(self, thread_id: str) -> Placement:
        """Return the place of a thread, as of the last operation."""
        return self._placements.get(thread_id, NOWHERE)

    def refresh(self) -> None:
        """Read the places of all threads, if they have changed and can be read."""
        fault = None
        try:
            if not self.is_current:
                self.read(lambda _connection: None)
        except StoreError as error:
            fault = str(error)
        if fault not in (None, self._fault):
            logger.warning("sections and projects not read", extra={"reason": fault})
        self._fault = fault

    def read(self, operation: Callable[[Connection | None], T]) -> T:
        """Run an operation that changes nothing.

        Raises:
            StoreError: the database cannot be used.
        """

        def run() -> T:
            stamp = self._database.stamp
            with self._database.reading() as connection:
                result = operation(connection)
                self._keep(connection, stamp)
            return result

        return self._repairing(run)

    def change(self, operation: Callable[[Connection], T]) -> T:
        """Run an operation as a whole; its changes are on the disk afterwards.

        Raises:
            StoreError: the database cannot be used.
        """

        def run() -> T:
            with self._database.writing() as connection:
                return operation(connection)

        result = self._repairing(run)
        self.refresh()
        return result

    def _repairing(self, run: Callable[[], T]) -> T:
        """Run an operation, once more after the repair of a damaged database."""
        try:
            return run()
        except OrganizationDamaged as damaged:
            self._database.repair(damaged)
            return run()

    def forget(self, thread_id: str) -> None:
        """Remove a deleted thread.

        Raises:
            StoreError: the database cannot be used.
        """
        if self._database.stamp is None:
            return

        def remove(connection: Connection) -> None:
            for table in ("section_members", "project_members", "attachments"):
                connection.execute(f"delete from {table} where thread_id = ?", (thread_id,))  # noqa: S608  fixed names

        self.change(remove)

    def _keep(self, connection: Connection | None, stamp: tuple[int, int, int] | None) -> None:
        if stamp == self._stamp:
            return
        found: dict[str, Placement] = {}
        if connection is not None:
            sections = {each.id: each for each in all_sections(connection)}
            rows = connection.execute(
                "select thread_id, section_id, entered_at from section_members"
            ).fetchall()
            for thread_id, section_id, entered_at in rows:
                if section_id in sections:
                    found[thread_id] = Placement(sections[section_id], entered_at)
            for thread_id, project_id in connection.execute(
                "select thread_id, project_id from project_members"
            ).fetchall():
                known = found.get(thread_id, NOWHERE)
                found[thread_id] = Placement(known.section, known.entered_at, project_id)
        self._placements, self._stamp = found, stamp
