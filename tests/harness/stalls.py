"""Makes one step of blocking work wait, to see what the server does meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType

import pytest

SECONDS = 20


class Stall:
    """A step that waits in its thread until it is released."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()
        self.calls = 0

    async def reached(self) -> None:
        """Wait until the step is about to be taken."""
        # Not in the loop's own threads: the step may need one of them to be reached.
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            is_reached = await loop.run_in_executor(thread, self._reached.wait, SECONDS)
        assert is_reached, "the step was not reached"

    def release(self) -> None:
        """Let the step go on."""
        self._released.set()

    def wait(self) -> None:
        """Wait where the step begins; on the event loop, the test could not release it."""
        self.calls += 1
        self._reached.set()
        if threading.current_thread() is threading.main_thread():
            raise AssertionError("blocking work runs on the event loop")
        assert self._released.wait(SECONDS), "the step was not released"


@contextmanager
def stalled(module: ModuleType | type, name: str) -> Iterator[Stall]:
    """Make each call of a function wait; released at the end of the block at the latest."""
    stall = Stall()
    original: Callable[..., object] = getattr(module, name)

    def waiting(*args: object, **kwargs: object) -> object:
        stall.wait()
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, waiting)
        try:
            yield stall
        finally:
            stall.release()
