"""All files and folders below some folders, without those that git ignores."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from treadle.server.file_search.ignore_rules import MAX_BYTES, IgnoreRules
from treadle.server.file_search.text import without_accents, without_case
from treadle.support.concurrency.threads import give_way
from treadle.support.files.reading import read_file

MAX_ENTRIES: Final = 1_000_000
"""Maximum number of files and folders that a search looks at."""

_SPECIAL: Final = frozenset({".git", ".gitignore", ".ignore"})
_EXCLUDES_FILE: Final = re.compile(
    r"^[ \t]*excludesfile[ \t]*=[ \t]*\"?([^\"\n]+)", re.IGNORECASE | re.MULTILINE
)


class Entry(NamedTuple):
    """A file or folder."""

    root: str
    """The root that it is below, as the client wrote it."""
    path: str
    """Relative to the root."""
    plain: str
    """The path without case and accents."""
    is_folder: bool


class _Scope(NamedTuple):
    """What is ignored below a folder."""

    folder: str
    parent: _Scope | None
    ignore: IgnoreRules
    """Its `.ignore` file."""
    git: IgnoreRules
    """Its `.gitignore` file."""
    repository: tuple[IgnoreRules, IgnoreRules] | None
    """If it is a repository: what that excludes, and what the user excludes in all."""


class _Judge:
    """Judges the entries of one folder."""

    def __init__(self, folder: str, scope: _Scope | None) -> None:
        """Collect the rules that apply in a folder, nearest first."""
        ignores: list[tuple[IgnoreRules, str]] = []
        gits: list[tuple[IgnoreRules, str]] = []
        rest: list[tuple[IgnoreRules, str]] = []
        in_repository = False
        at = scope
        while at is not None:
            before = folder[len(at.folder.rstrip("/")) + 1 :]
            before = f"{before}/" if before else ""
            if at.ignore:
                ignores.append((at.ignore, before))
            if not in_repository:
                if at.git:
                    gits.append((at.git, before))
                if at.repository is not None:
                    in_repository = True
                    rest = [(rules, before) for rules in at.repository if rules]
            at = at.parent
        self._rules = [*ignores, *gits, *rest] if in_repository else ignores

    def ignores(self, name: str, *, is_folder: bool) -> bool:
        """Return whether an entry is ignored."""
        for rules, before in self._rules:
            verdict = rules.judge(before + name, name, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False


class Walk:
    """Finds the files and folders below some roots."""

    def __init__(self, roots: Sequence[str], is_cancelled: Callable[[], bool]) -> None:
        self.entries: list[Entry] = []
        """What is found so far; grows while `run` runs."""
        self._is_cancelled = is_cancelled
        # The folder of each root, and how the client wrote it.
        here = Path.cwd()
        self._roots = {os.path.normpath(here / root): root for root in roots if root}
        self._excludes = IgnoreRules("")

    def run(self) -> None:
        """Walk through all roots. A folder that cannot be read counts as empty."""
        self._excludes = IgnoreRules(_read(_user_excludes()))
        for place, root in self._roots.items():
            self._walk(place, root)

    def _walk(self, place: str, root: str) -> None:
        start = len(place.rstrip("/")) + 1
        folders = [(place, self._outer_scope(place))]
        while folders:
            folder, outer = folders.pop()
            if self._is_cancelled() or len(self.entries) >= MAX_ENTRIES:
                return
            give_way()
            listing = scan(folder)
            scope = self._scope(folder, {entry.name for entry in listing} & _SPECIAL, outer)
            judge = _Judge(folder, scope)
            for entry in listing:
                is_folder = _is_folder(entry)
                if is_folder is None or judge.ignores(entry.name, is_folder=is_folder):
                    continue
                if is_folder:
                    # What is below another root is found there.
                    if entry.path in self._roots or (entry.is_symlink() and _is_loop(entry, place)):
                        continue
                    folders.append((entry.path, scope))
                path = entry.path[start:]
                plain = path.lower() if path.isascii() else _plain(path)
                if plain is not None:
                    self.entries.append(Entry(root, path, plain, is_folder))

    def _outer_scope(self, place: str) -> _Scope | None:
        """Return what the folders above a root say about it."""
        scope = None
        for folder in reversed(Path(place).parents):
            names = {name for name in _SPECIAL if (folder / name).exists()}
            scope = self._scope(str(folder), names, scope)
        return scope

    def _scope(self, folder: str, names: set[str], outer: _Scope | None) -> _Scope | None:
        if not names:
            return outer
        ignore, git = (
            IgnoreRules(_read(Path(folder, name)) if name in names else "")
            for name in (".ignore", ".gitignore")
        )
        repository = None
        if ".git" in names:
            excluded = _read(Path(folder, ".git/info/exclude"))
            repository = (IgnoreRules(excluded), self._excludes)
        return _Scope(folder, outer, ignore, git, repository)


def scan(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    """Return whether an entry is a folder or leads to one; None for a link to nothing."""
    try:
        if entry.is_symlink():
            return stat.S_ISDIR(entry.stat().st_mode)
        return entry.is_dir()
    except OSError:
        return None


def _is_loop(link: os.DirEntry[str], place: str) -> bool:
    """Return whether a link leads to a folder that the walk is in."""
    try:
        target = link.stat()
        for folder in Path(link.path).parents:
            if os.path.samestat(target, folder.stat()):
                return True
            if folder == Path(place):
                return False
    except OSError:
        pass
    return True


def _plain(path: str) -> str | None:
    """Return a path without case and accents; None if it is not text, so no message can name it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return None
    return without_accents(without_case(path))


def _read(path: Path) -> str:
    """Return the text of a file of patterns; nothing if it cannot be read or is too large."""
    try:
        content = read_file(path, MAX_BYTES + 1)
    except OSError:
        return ""
    return content.decode("utf-8", "replace") if len(content) <= MAX_BYTES else ""


def _user_excludes() -> Path:
    """Return the path of the file with what the user excludes from all repositories."""
    home = Path.home()
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    for settings in (home / ".gitconfig", folder / "git/config"):
        found = _EXCLUDES_FILE.search(_read(settings))
        if found is not None:
            return home / found[1].strip().removeprefix("~/")
    return folder / "git/ignore"
