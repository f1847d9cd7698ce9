"""Finds the files that a hook's command names, and whether a sandboxed command may change them.

Hooks run outside the sandbox: a script that the model can rewrite would run its code there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.hooks.programs.words import ScriptWord, words_of
from treadle.sandbox.paths import parents

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState

_MAX_PARENTS: Final = 8
_MAX_FOLDERS: Final = 16
"""How many folders that a command names are places in which its other names may be."""


def writable_script(thread: ThreadState, command: str, env: Mapping[str, str]) -> str | None:
    """Return a file that a command names and sandboxed commands can change, or `None`.

    So is one that does not exist, if the command would run it: it may exist a moment later.
    What the shell computes cannot be followed, so this is a check, not a proof.
    """
    settings, boundary = thread.settings, thread.services.boundary
    confinement = boundary.confine(settings.sandbox, settings.cwd)
    if confinement.is_unrestricted:
        return None  # every command can do what the hook can do
    words = dict.fromkeys(words_of(command, {**env, "PWD": settings.cwd}))
    for path in _named(list(words), settings.cwd):
        if not boundary.is_fixed(path, confinement):
            return path
    return None


def _named(words: list[ScriptWord], cwd: str) -> Iterator[str]:
    """Yield the files among the words, relative to each folder that they may be relative to."""
    named = (Path(cwd, word.text) for word in words if _is_path(word.text))
    folders = [str(folder) for folder in islice(filter(_is_folder, named), _MAX_FOLDERS)]
    bases = list(dict.fromkeys([cwd, *folders, *islice(parents(cwd), _MAX_PARENTS)]))
    for word in words:
        if not _is_path(word.text):
            continue
        names = [word.text, *([word.text.lstrip("/")] if word.is_rest else [])]
        for path in (Path(base, name) for name in names for base in bases):
            is_here = path == Path(cwd, word.text)
            if _is_file(path) or (is_here and _may_be_run(word, path)):
                yield from _ways(path)


def _ways(path: Path) -> Iterator[str]:
    """Yield a path, and what decides where it leads: a folder before `..` may be a link."""
    yield os.path.normpath(path)
    parts = path.parts
    if ".." in parts:
        yield os.path.realpath(path)
        for at in (at for at, part in enumerate(parts) if part == ".."):
            yield os.path.normpath(Path(*parts[:at]))


def _may_be_run(word: ScriptWord, path: Path) -> bool:
    """Return whether a command would run a file that does not exist, or the files of a folder."""
    if _is_folder(path):
        return word.role == "script"
    return word.role == "script" or (word.role == "program" and "/" in word.text)


def _is_path(text: str) -> bool:
    return bool(text) and "\0" not in text


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
