"""Tracebacks of bounded length: errors are logged where other work waits.

The standard library formats every error that led to another one, and a deep recursion can leave
one for each of its levels.
"""

from __future__ import annotations

import traceback
from typing import Final

MAX_ERRORS: Final = 16
MAX_FRAMES: Final = 64
"""How many errors and calls are shown in full; longer tracebacks are shortened."""

MAX_TEXT: Final = 4000
_SHOWN_FRAMES: Final = 20
_MAX_LINKS: Final = 5000


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error and of its causes; shortened if it is long."""
    if _is_short(error):
        return "".join(traceback.format_exception(error)).rstrip("\n")
    first = _first(error)
    lines = ["Traceback (shortened, most recent call last):\n"]
    lines += traceback.format_list(traceback.extract_tb(error.__traceback__, limit=-_SHOWN_FRAMES))
    lines.append(_line(error))
    if isinstance(error, BaseExceptionGroup):
        lines.append(f"\nThe first of {len(error.exceptions)}: {_line(error.exceptions[0])}")
    if first is not error:
        lines.append(f"\nThe first error was {_line(first)}")
    return "".join(lines)


def _is_short(error: BaseException) -> bool:
    pending, seen, frames = [error], set[int](), 0
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        frame = current.__traceback__
        while frame is not None and frames <= MAX_FRAMES:
            frames, frame = frames + 1, frame.tb_next
        inner = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        is_long = frames > MAX_FRAMES or max(len(seen), len(inner)) > MAX_ERRORS
        if is_long or len(str(current)) > MAX_TEXT:
            return False
        pending += [*inner, *filter(None, (current.__cause__, current.__context__))]
    return True


def _first(error: BaseException) -> BaseException:
    """Return the root cause of an error, within `_MAX_LINKS` steps."""
    for _ in range(_MAX_LINKS):
        cause = error.__cause__ or error.__context__
        if cause is None:
            break
        error = cause
    return error


def _line(error: BaseException) -> str:
    text = str(error)
    shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
    return f"{type(error).__qualname__}: {shown}"
