"""Finds the files that a hook's command names, and whether a sandboxed command may change them.

Hooks run outside the sandbox: a script that the model can rewrite would run its code there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState

_MAX_WORDS: Final = 64


def writable_script(thread: ThreadState, command: str, env: Mapping[str, str]) -> str | None:
    """Return a file that a command names and sandboxed commands can change; null if none is found.

    What the shell computes cannot be followed, so this is a check, not a proof.
    """
    settings, boundary = thread.settings, thread.services.boundary
    confinement = boundary.confine(settings.sandbox, settings.cwd)
    if confinement.is_unrestricted:
        return None  # every command can do what the hook can do
    for path in _named(command, settings.cwd, env):
        if not boundary.is_fixed(path, confinement, top=settings.cwd):
            return path
    return None


def _named(command: str, cwd: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the existing files among the words of a command."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    for word in words[:_MAX_WORDS]:
        text = word.strip(";&|()<>")
        if text.startswith("~/"):
            text = env.get("HOME", "~") + text[1:]
        for name, value in (("$HOME", env.get("HOME")), ("$PWD", cwd), ("$(pwd)", cwd)):
            if value:
                text = text.replace(name, value).replace(f"${{{name[1:]}}}", value)
        path = Path(cwd, text) if text and "\0" not in text else None
        if path is not None and _is_file(path):
            yield os.path.normpath(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
