"""Limits the work of one patch, before and while it is applied.

A patch of a few hundred bytes can name large files and quote lines that almost match everywhere.
Each limit has an error message that the model can act on.
"""

from __future__ import annotations

import threading
from typing import Final

from treadle.engine.patch.syntax import PatchError

MAX_PATCH_BYTES: Final = 4 * 1024 * 1024
MAX_OPERATIONS: Final = 1000
MAX_UPDATE_BYTES: Final = 16 * 1024 * 1024
"""The largest file that can be updated; a larger one can still be deleted or replaced."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest file that a patch may delete or replace."""

MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all files that one patch reads."""

MAX_LINES: Final = 500_000
"""The most lines of a file to update, and of the patch itself."""

MAX_STEPS: Final = 10_000_000
"""The most comparisons of lines in the search for the places of all hunks."""


class Abandoned(Exception):
    """The caller was cancelled; nothing has been changed."""


class Effort:
    """Counts the work of one patch; shared by the worker thread and the waiting thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._is_committing = False
        self._bytes = 0
        self._steps = 0

    def add_bytes(self, size: int) -> None:
        """Count a file that is about to be read.

        Raises:
            PatchError: the patch reads too much.
        """
        self._bytes += size
        if self._bytes > MAX_TOTAL_BYTES:
            raise PatchError(
                f"the files of this patch have more than {MAX_TOTAL_BYTES} bytes in total; "
                "split it into several patches"
            )

    def add_steps(self, count: int) -> None:
        """Count comparisons of lines.

        Raises:
            PatchError: the search takes too many comparisons.
            Abandoned: the caller was cancelled.
        """
        self.check()
        self._steps += count
        if self._steps > MAX_STEPS:
            raise PatchError(
                f"finding the places of this patch takes more than {MAX_STEPS} comparisons of "
                "lines; quote lines that occur less often in the file, or split the patch"
            )

    def restart(self) -> None:
        """Reset the counters: the files have changed, and the work is repeated."""
        self._bytes = self._steps = 0

    def check(self) -> None:
        """Check whether to continue.

        Raises:
            Abandoned: the caller was cancelled.
        """
        if self._is_abandoned:
            raise Abandoned

    def begin_commit(self) -> None:
        """Start to change files; from here on the caller waits for the end.

        Raises:
            Abandoned: the caller was cancelled, so no file may change any more.
        """
        with self._lock:
            self.check()
            self._is_committing = True

    def abandon(self) -> bool:
        """Cancel the work; false if files are already being changed and the caller must wait."""
        with self._lock:
            self._is_abandoned = not self._is_committing
            return self._is_abandoned
