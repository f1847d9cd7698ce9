"""Finds programs to run outside any sandbox, without trusting the workspace."""

from __future__ import annotations

import os
import shutil

from treadle.support.files.links import follow


def find_on_path(name: str, path: str | None, *, workspace: str | None = None) -> str | None:
    """Find a program by its name in the folders of a `PATH`; `None` if there is none.

    A relative or empty folder depends on where a program runs, and is skipped. Programs inside the
    workspace come last, also those that another folder has a link to: commands can write there, and
    a name that the user knows must not resolve to a program of theirs.
    """
    folders = (os.defpath if path is None else path).split(os.pathsep)
    absolute = [folder for folder in folders if folder.startswith("/")]
    if workspace is not None:
        top = follow(workspace).place
        absolute.sort(key=lambda folder: _leads_inside(f"{folder}/{name}", top))
    return shutil.which(name, path=os.pathsep.join(absolute)) if absolute else None


def _leads_inside(program: str, top: str) -> bool:
    place = follow(program).place
    return place == top or place.startswith(top.rstrip("/") + "/")
