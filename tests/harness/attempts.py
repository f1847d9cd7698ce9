"""Attempts to change a path by every means that a program has, and a look at whether it changed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

ATTEMPTS = r"""
import os, sys

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        pass

def write(path):
    with open(path, "a") as file:
        file.write("planted")

def parents(path):
    while path != "/":
        path = os.path.dirname(path)
        yield path

for number, path in enumerate(sys.argv[2:]):
    mine = f"{sys.argv[1]}/attempt-{number}"
    attempt(os.mkdir, mine)
    attempt(write, mine + "/file")
    for place in (path, path + "/config.toml", path + "/rules/default.rules", path + "/new"):
        attempt(os.chmod, place, 0o777)
        attempt(write, place)
        attempt(os.truncate, place, 0)
        attempt(os.link, place, mine + "/hard")
        attempt(write, mine + "/hard")
        attempt(os.rename, place, mine + "/moved")
        attempt(os.unlink, place)
        attempt(os.rename, mine + "/file", place)
        attempt(os.link, mine + "/file", place)
        attempt(os.symlink, mine, place)
        attempt(os.mkdir, place)
        attempt(os.rmdir, place)
        attempt(os.utime, place, (1, 1))
    for parent in parents(path):
        attempt(os.rename, parent, parent + "-moved")
        attempt(os.rename, parent, mine + "/parent")
        attempt(os.makedirs, path)
        attempt(write, path + "/config.toml")
    attempt(os.rename, mine, path)
print("over")
"""

Look: TypeAlias = dict[str, tuple[int, int, int, bytes]]


def attempts(writable: Path, paths: Iterable[str]) -> Sequence[str]:
    """Return a command that tries to change the paths, starting from a folder it may write."""
    return [sys.executable, "-I", "-S", "-c", ATTEMPTS, str(writable), *paths]


def look_at(paths: Iterable[str], *, modes: bool = True) -> Look:
    """Return what identifies each path and all below it; missing paths are left out.

    Without `modes`, only the type counts: Landlock does not stop a command from changing modes.
    """
    found: Look = {}
    for path in paths:
        # What a link leads to is not what decides, unless it is named as well.
        for folder, folders, files in os.walk(path) if not Path(path).is_symlink() else ():
            for name in ["", *folders, *files]:
                _look(Path(folder, name), found, modes)
        _look(Path(path), found, modes)
    return found


def _look(path: Path, found: Look, modes: bool) -> None:
    try:
        about = path.lstat()
    except OSError:
        return
    content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
    mode = about.st_mode if modes else stat.S_IFMT(about.st_mode)
    found[str(path)] = (about.st_ino, mode, about.st_nlink if content else 0, content)
