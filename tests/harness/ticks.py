"""The clock that file systems take change times from."""

from __future__ import annotations

import time
from pathlib import Path

from treadle.support.code_guard import FILE_CLOCK


def wait_for_tick(folder: Path) -> None:
    """Wait until that clock is ahead of all that is in a folder.

    A kernel may give a change a time that is finer than the clock, and ahead of it.
    """
    probe = folder / "probe"
    probe.touch()
    changed = probe.lstat().st_ctime_ns
    probe.unlink()
    while time.clock_gettime_ns(FILE_CLOCK) <= max(changed, folder.lstat().st_ctime_ns):
        pass
