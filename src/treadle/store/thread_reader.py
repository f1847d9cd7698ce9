"""Reads a thread that may grow at the same time."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from treadle.store.rollout.journal import ARCHIVED
from treadle.store.rollout.loader import LoadedRollout, ThreadFile
from treadle.store.stored_thread import StoredThread

NameOf: TypeAlias = Callable[[str], tuple[str | None] | None]


class ThreadReader:
    """Reads a thread from its file and the index; call the first `read` in a worker thread.

    A later call only reads what was appended since.
    """

    def __init__(self, file: ThreadFile, name_of: NameOf) -> None:
        self._file = file
        self._name_of = name_of
        self._name: tuple[str | None] | None = None
        self._is_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    @property
    def is_current(self) -> bool:
        """Whether nothing was appended since the last `read`."""
        return self._file.is_current

    def read(self) -> StoredThread:
        """Return the thread as it is stored now."""
        return self.load().stored

    def load(self) -> LoadedRollout:
        """Return the thread, with what its next writer needs."""
        loaded = self._file.load()
        stored = loaded.stored
        meta = stored.meta
        if not self._is_begun:
            self._name, self._is_begun = self._name_of(meta.id), True
        stored.meta = msgspec.structs.replace(
            meta,
            name=meta.name if self._name is None else self._name[0],
            archived=self._file.path.parent.name == ARCHIVED,
        )
        return loaded
