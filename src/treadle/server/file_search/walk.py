"""All files and folders below some folders, without those that git ignores."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from treadle.server.file_search.found import Found, Share
from treadle.server.file_search.ignore_rules import MAX_BYTES, IgnoreRules
from treadle.server.file_search.text import without_accents, without_case
from treadle.support.concurrency.threads import give_way
from treadle.support.files.kinds import exists
from treadle.support.files.reading import read_file
from treadle.support.files.working_folder import absolute

MAX_EXAMINED: Final = 1_000_000
"""Maximum number of files and folders that a search looks at, ignored ones included."""

MAX_LISTED: Final = 200_000
"""Maximum number of entries of one folder that a search looks at."""

MAX_SECONDS: Final = 60.0
"""Maximum processor time of a walk: links and ignored files can make each step slow."""

MAX_RULES: Final = 256 * 1024
"""Maximum length of all patterns that apply in a folder; further files have no effect."""

# What a search looks at before it checks its limits again.
_PART: Final = 100
# Each file of patterns, and the entry of a folder that says whether it is there.
_RULE_FILES: Final = {".ignore": ".ignore", ".gitignore": ".gitignore", ".git/info/exclude": ".git"}
_SPECIAL: Final = frozenset(_RULE_FILES.values())
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
    size: int
    """The length of all patterns, with those of the folders above."""


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

    def __init__(
        self,
        roots: Sequence[str],
        is_cancelled: Callable[[], bool],
        found: Found | None = None,
    ) -> None:
        self.entries: list[Entry] = []
        """What is found so far; grows while `run` runs."""
        self._is_cancelled = is_cancelled
        self._share = Share(found or Found())
        self._is_full = False
        self._examined = 0
        self._seconds = 0.0
        # The folder of each root, and how the client wrote it.
        self._roots = {os.path.normpath(absolute(root)): root for root in roots if root}
        self._excludes = IgnoreRules("")

    def run(self) -> None:
        """Walk through all roots. A folder that cannot be read counts as empty."""
        self._seconds = time.thread_time() + MAX_SECONDS
        self._excludes = IgnoreRules(_read(_user_excludes()))
        for place, root in self._roots.items():
            self._walk(place, root)

    def release(self) -> None:
        """Stop counting the entries: the search has ended."""
        self._share.release()

    def _is_over(self) -> bool:
        """Return whether the search is cancelled or has looked at enough."""
        return (
            self._is_cancelled()
            or self._is_full
            or self._examined >= MAX_EXAMINED
            or time.thread_time() > self._seconds
        )

    def _walk(self, place: str, root: str) -> None:
        start = len(place.rstrip("/")) + 1
        folders = [(place, self._outer_scope(place))]
        while folders and not self._is_over():
            folder, outer = folders.pop()
            give_way()
            listing = scan(folder)
            self._examined += len(listing)
            scope = self._scope(folder, _special(folder, listing), outer)
            for entry, is_folder in self._not_ignored(listing, _Judge(folder, scope)):
                if is_folder:
                    # What is below another root is found there.
                    if entry.path in self._roots or (entry.is_symlink() and _is_loop(entry, place)):
                        continue
                    folders.append((entry.path, scope))
                self._keep(root, entry.path[start:], is_folder=is_folder)

    def _not_ignored(
        self, listing: Sequence[os.DirEntry[str]], judge: _Judge
    ) -> Iterator[tuple[os.DirEntry[str], bool]]:
        """Yield entries that are not ignored, and whether they are folders."""
        for number, entry in enumerate(listing, 1):
            is_folder = _is_folder(entry)
            if is_folder is not None and not judge.ignores(entry.name, is_folder=is_folder):
                yield entry, is_folder
            if number % _PART == 0 and self._is_over():
                return

    def _keep(self, root: str, path: str, *, is_folder: bool) -> None:
        plain = path.lower() if path.isascii() else _plain(path)
        if plain is None or self._is_full:
            return
        if plain == path:
            plain = path  # one text instead of two
        if self._share.add(len(path) + (0 if plain is path else len(plain))):
            self.entries.append(Entry(root, path, plain, is_folder))
        else:
            self._is_full = True

    def _outer_scope(self, place: str) -> _Scope | None:
        """Return what the folders above a root say about it."""
        scope = None
        for folder in reversed(Path(place).parents):
            names = {name for name in _SPECIAL if exists(folder / name)}
            scope = self._scope(str(folder), names, scope)
        return scope

    def _scope(self, folder: str, names: set[str], outer: _Scope | None) -> _Scope | None:
        if not names:
            return outer
        size = 0 if outer is None else outer.size
        found: list[IgnoreRules] = []
        for name, marker in _RULE_FILES.items():
            rules = IgnoreRules(_read(Path(folder, name)) if marker in names else "")
            if size + rules.size > MAX_RULES:
                rules = IgnoreRules("")
            size += rules.size
            found.append(rules)
        ignore, git, excluded = found
        repository = (excluded, self._excludes) if ".git" in names else None
        return _Scope(folder, outer, ignore, git, repository, size)


def scan(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, MAX_LISTED))
    except OSError:
        return []


def _special(folder: str, listing: Sequence[os.DirEntry[str]]) -> set[str]:
    """Return which files of patterns and repositories a folder has."""
    if len(listing) < MAX_LISTED:
        return {entry.name for entry in listing} & _SPECIAL
    return {name for name in _SPECIAL if exists(Path(folder, name))}


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
