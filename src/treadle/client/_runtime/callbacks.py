"""Running other people's functions: coroutines on the loop, plain functions in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

R = TypeVar("R")


async def call(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Call a function off the read loop and give what it returns or raises.

    Raises:
        RuntimeError: it wanted to end the program, or something that it waited for was cancelled.
    """
    try:
        if _is_async(function):
            outcome = function(*args, **kwargs)
        else:
            outcome = await in_thread(partial(function, *args, **kwargs))
        return await outcome if inspect.isawaitable(outcome) else outcome
    except SystemExit as exit_:
        # Parsers of arguments do this; a task that raises it would take the whole loop down.
        raise RuntimeError(f"SystemExit: {exit_.code}") from exit_
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not we were cancelled: whoever waits for an answer must get one.
        raise RuntimeError("what it waited for was cancelled") from error


def _is_async(function: Callable[..., object]) -> bool:
    call_ = getattr(function, "__call__", None)  # noqa: B004 - an object may be an async function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_)


async def in_thread(function: Callable[[], R]) -> R:
    """Run a plain function in a thread that does not keep the process alive.

    The loop's own threads are waited for at the end: one that reads from a terminal would not end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def settle(set_: Callable[[], None]) -> None:
        if not answer.done():
            set_()

    def run() -> None:
        try:
            outcome = context.run(function)
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            told: Callable[[], None] = partial(answer.set_exception, _raisable(error))
        else:
            told = partial(answer.set_result, outcome)
        # A loop that has ended raises, and nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, told)

    threading.Thread(target=run, name=f"call {function!r}"[:60], daemon=True).start()
    return await answer


def _raisable(error: BaseException) -> BaseException:
    # A future refuses this one.
    return RuntimeError("StopIteration") if isinstance(error, StopIteration) else error
