"""Writes changes of the index in a background thread, so that callers do not wait.

The rollout files are written first and contain everything, so a change may be late or even lost:
then all files are scanned again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from treadle.store.index.database import is_busy

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 10_000
# A turn changes its thread's row several times in a row: write them once.
COALESCE_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 5.0

Change: TypeAlias = Callable[[], None]
MakeAll: TypeAlias = Callable[[list[Change]], None]


class IndexWriter:
    """Applies changes in order; of several with one key, only the last."""

    def __init__(self, make_all: MakeAll, on_lost: Callable[[], None]) -> None:
        self._make_all = make_all
        self._on_lost = on_lost
        self._pending: dict[Hashable, Change] = {}
        self._changed = threading.Condition()
        # How many changes were put, and how many of these are applied.
        self._came = 0
        self._made = 0
        self._is_awaited = False
        self._is_closed = False
        self._is_blocked = False
        self._thread: threading.Thread | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether a lock of another process delayed the last change."""
        return self._is_blocked

    def put(self, key: Hashable, change: Change) -> None:
        """Schedule a change; it replaces an earlier one with the same key."""
        with self._changed:
            self._came += 1
            self._pending.pop(key, None)
            self._pending[key] = change
            if len(self._pending) > MAX_PENDING:
                # The index was locked for a long time.
                self._pending.clear()
                self._made = self._came
                self._on_lost()
            self._run()

    def flush(self, seconds: float) -> bool:
        """Wait until all changes put so far are applied; return whether they are."""
        deadline = time.monotonic() + seconds
        with self._changed:
            goal = self._came
            while self._made < goal:
                self._is_awaited = True
                self._run()
                left = deadline - time.monotonic()
                if self._thread is None or left <= 0 or not self._changed.wait(left):
                    return self._made >= goal
        return True

    def close(self, seconds: float) -> None:
        """Apply pending changes within a time limit, then stop."""
        self.flush(seconds)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        if self._thread is None and not self._is_closed:
            # A daemon: a locked index must not block the end of the process.
            thread = threading.Thread(target=self._work, name="index", daemon=True)
            # If no thread can be started, the change waits for the next `put`.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread
        self._changed.notify_all()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            changes, upto = batch
            try:
                self._make_all(list(changes.values()))
            except Exception as error:  # task owner: the index can be rebuilt, the thread must live
                if is_busy(error):
                    self._is_blocked = True
                    self._again(changes)
                    continue
                logger.exception("index not updated")
                self._on_lost()
            self._is_blocked = False
            with self._changed:
                self._made = max(self._made, upto)
                self._changed.notify_all()

    def _next(self) -> tuple[dict[Hashable, Change], int] | None:
        with self._changed:
            is_there = self._changed.wait_for(
                lambda: self._pending or self._is_closed, IDLE_SECONDS
            )
            if self._is_closed or not is_there:
                self._thread = None
                return None
            self._changed.wait_for(lambda: self._is_awaited or self._is_closed, COALESCE_SECONDS)
            self._is_awaited = False
            batch, self._pending = self._pending, {}
            return batch, self._came

    def _again(self, changes: dict[Hashable, Change]) -> None:
        """Requeue changes that failed, before those that came since."""
        with self._changed:
            self._pending = {
                **{key: each for key, each in changes.items() if key not in self._pending},
                **self._pending,
            }
            self._changed.wait_for(lambda: self._is_closed, RETRY_SECONDS)
