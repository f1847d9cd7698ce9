"""Work in other threads than the event loop's."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

_PAUSE_SECONDS: Final = 0.0001


def give_way() -> None:
    """Let another thread have the interpreter, if this one is a worker.

    A thread that only computes keeps the interpreter for five milliseconds each time that another
    one wants it, which an event loop does several times for each request.
    """
    if threading.current_thread() is threading.main_thread() or _is_loop_thread():
        return
    # Longer than nothing: after `sleep(0)` this thread would have it again before the other wakes.
    time.sleep(_PAUSE_SECONDS)


def _is_loop_thread() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
