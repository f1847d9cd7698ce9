"""Finds the bubblewrap program of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from treadle.sandbox.paths import find_program, links, real

_PROGRAM: Final = "bwrap"
_SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin")


def find_bubblewrap() -> str | None:
    """Return its path: the system's own, or another on `PATH` that no command can have created.

    It runs outside the sandbox, since it creates it.
    """
    folders = [folder for folder in os.get_exec_path() if folder.startswith("/")]
    for folder in sorted(folders, key=lambda folder: folder not in _SYSTEM):
        program = find_program(_PROGRAM, cwd="/", path=folder)
        if program is not None and (folder in _SYSTEM or not _may_be_planted(program)):
            return program
    return None


def _may_be_planted(program: str) -> bool:
    """Return whether a command of the user's servers, past or present, could have created it."""
    from treadle.sandbox.opened_roots import OpenedRoots
    from treadle.sandbox.protection import known_homes

    places = (*links(program), real(program))
    folders = {str(Path(place).parent) for place in places}
    return any(
        any(map(opened.may_have_made, places)) or any(map(opened.may_have_filled, folders))
        for opened in map(OpenedRoots, map(Path, known_homes()))
    )
