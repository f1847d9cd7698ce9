"""How much work one patch may cause: limits that are checked before and while it is done.

A patch of a few hundred bytes can name large files and quote lines that nearly fit everywhere.
Every limit is an error that the model can act on: it names what is too large and what is allowed.
"""

from __future__ import annotations

import threading
from typing import Final

from treadle.engine.patch.syntax import PatchError

MAX_PATCH_BYTES: Final = 4 * 1024 * 1024
MAX_OPERATIONS: Final = 1000
MAX_UPDATE_BYTES: Final = 16 * 1024 * 1024
"""The largest file that hunks are applied to; a larger one can still be deleted or replaced."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest file that a patch may delete or replace."""

MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""All files that one patch reads, together."""

MAX_LINES: Final = 500_000
"""The lines of a file that hunks are applied to, and those of the patch itself."""

MAX_STEPS: Final = 10_000_000
"""Comparisons of lines while the places of all hunks are searched."""


class Abandoned(Exception):
    """The caller no longer wants the result; nothing has been changed."""


class Effort:
    """Counts what one patch costs; shared by the thread that works and the one that waits."""

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
                f"the files of this patch hold more than {MAX_TOTAL_BYTES} bytes together; "
                "split it into several patches"
            )

    def add_steps(self, count: int) -> None:
        """Count comparisons of lines.

        Raises:
            PatchError: the hunks fit too many places nearly.
            Abandoned: the caller has left.
        """
        self.check()
        self._steps += count
        if self._steps > MAX_STEPS:
            raise PatchError(
                f"finding the places of this patch takes more than {MAX_STEPS} comparisons of "
                "lines; quote lines that occur less often in the file, or split the patch"
            )

    def restart(self) -> None:
        """Count from zero: the files have changed, and the work is done again."""
        self._bytes = self._steps = 0

    def check(self) -> None:
        """Go on, unless the caller has left.

        Raises:
            Abandoned: it has.
        """
        if self._is_abandoned:
            raise Abandoned

    def begin_commit(self) -> None:
        """Decide that the files are changed now; from here on the caller waits for the end.

        Raises:
            Abandoned: the caller has left, so no file may change any more.
        """
        with self._lock:
            self.check()
            self._is_committing = True

    def abandon(self) -> bool:
        """Ask for an end; false if files are being changed already and the caller has to wait."""
        with self._lock:
            self._is_abandoned = not self._is_committing
            return self._is_abandoned
