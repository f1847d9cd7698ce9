"""Imports modules late: heavy ones that a server needs only for some requests."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from threading import Lock
from typing import Final

# Two threads that import modules which import each other wait for one another; Python then lets
# one of them fail, or continue with a module that is not complete.
_importing: Final = Lock()


async def import_late(*names: str) -> None:
    """Import modules in a thread, so that the event loop continues; one caller at a time.

    Raises:
        ImportError: one of them cannot be imported.
        OSError: no file or thread is available.
    """
    if any(_is_missing(name) for name in names):
        await asyncio.to_thread(_import, names)


def _import(names: tuple[str, ...]) -> None:
    with _importing:
        for name in names:
            import_module(name)


def _is_missing(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    # A module is listed from the start of its import on.
    return spec is None or getattr(spec, "_initializing", False)
