"""Work in threads other than the event loop's."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

_PAUSE_SECONDS: Final = 0.0001
_WORK_SECONDS: Final = 0.001
"""How long a worker computes, at least, between two pauses."""

_paused = threading.local()


def give_way() -> None:
    """Yield the interpreter to another thread, if this one is a worker.

    A computing thread keeps the interpreter for five milliseconds each time that another one
    requests it, which an event loop does several times for each request.
    """
    if time.monotonic() - getattr(_paused, "at", 0.0) < _WORK_SECONDS:
        return
    if threading.current_thread() is threading.main_thread() or _is_loop_thread():
        return
    # Longer than zero: after `sleep(0)` this thread would get it back before the other wakes.
    time.sleep(_PAUSE_SECONDS)
    _paused.at = time.monotonic()


def _is_loop_thread() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
