"""Calls of user functions: coroutine functions on the loop, plain functions in a thread."""

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
    """Call a user function without blocking the loop; return its result or raise its error.

    Raises:
        RuntimeError: the function raised `SystemExit`, or something it awaited was cancelled.
    """
    try:
        if _is_async(function):
            outcome = function(*args, **kwargs)
        else:
            outcome = await in_thread(partial(function, *args, **kwargs))
        return await outcome if inspect.isawaitable(outcome) else outcome
    except SystemExit as exit_:
        # Argument parsers raise it; in a task it would end the whole loop.
        raise RuntimeError(f"SystemExit: {exit_.code}") from exit_
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # This task was not cancelled, so its caller must receive an answer.
        raise RuntimeError("the function awaited something that was cancelled") from error


def _is_async(function: Callable[..., object]) -> bool:
    call_ = getattr(function, "__call__", None)  # noqa: B004 - an object can have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_)


async def in_thread(function: Callable[[], R]) -> R:
    """Run a plain function in a daemon thread.

    The loop waits for its own threads at exit, and a thread that reads from a terminal never ends.
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
        except BaseException as error:  # noqa: BLE001 - raised again in the awaiting task
            deliver: Callable[[], None] = partial(answer.set_exception, _raisable(error))
        else:
            deliver = partial(answer.set_result, outcome)
        # A closed loop raises RuntimeError; then there is no waiter either.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, deliver)

    threading.Thread(target=run, name=f"call {function!r}"[:60], daemon=True).start()
    return await answer


def _raisable(error: BaseException) -> BaseException:
    # A future rejects StopIteration.
    return RuntimeError("StopIteration") if isinstance(error, StopIteration) else error
