"""The edits of one turn as one diff, in git's format.

Covers only changes by patches, not those by commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.engine.patch.compare import unified
from treadle.engine.patch.effort import MAX_LINES
from treadle.engine.patch.files import Blob, Changed
from treadle.engine.patch.text import BadText, decode
from treadle.engine.project.docs import repository_root
from treadle.sandbox.paths import real

MAX_SHOWN: Final = 1024 * 1024
"""Maximum characters of one file's diff; a longer one is shown like that of a binary file."""

MAX_TOTAL_SHOWN: Final = 4 * 1024 * 1024
"""Maximum characters of the whole diff: every patch sends it again to every client."""

MAX_KEPT: Final = 64 * 1024 * 1024
"""Maximum bytes of file contents that a turn keeps for comparison."""

_CONTEXT: Final = 3
_NO_BLOB: Final = "0" * 40


class _State(Struct, frozen=True):
    """The state of a path: git's blob id, and the contents unless `MAX_KEPT` is exceeded."""

    blob_id: str
    mode: int
    data: bytes | None


class TurnDiff:
    """The states of files before the turn first changed them, and their current states.

    Its methods compare and hash files: call them in a worker thread. The patches of a turn hold
    `lock` meanwhile, so that diffs are computed and published one after the other.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._before: dict[str, _State | None] = {}
        self._after: dict[str, _State | None] = {}
        # The original path of each moved file.
        self._sources: dict[str, str] = {}
        self._shown: dict[tuple[str, str], tuple[_State | None, _State | None, str]] = {}
        self._published = ""
        self._kept = 0

    def add(self, changes: Sequence[Changed]) -> None:
        """Add the changes of a patch."""
        for change in changes:
            if change.path not in self._before:
                self._before[change.path] = self._state(change.before)
            last = self._after.get(change.path)
            if last is not None and last.data is not None:
                self._kept -= len(last.data)
            self._after[change.path] = self._state(change.after)
        for change in changes:
            if change.source is not None:
                source = self._sources.pop(change.source, change.source)
                self._sources[change.path] = source

    def _state(self, blob: Blob | None) -> _State | None:
        if blob is None:
            return None
        is_kept = self._kept + len(blob.data) <= MAX_KEPT
        self._kept += len(blob.data) if is_kept else 0
        return _State(_blob_id(blob), blob.mode, blob.data if is_kept else None)

    def take_update(self, cwd: str) -> str | None:
        """Return the diff relative to a folder's repository; `None` if it has not changed."""
        text = self.unified(cwd)
        if text == self._published:
            return None
        self._published = text
        return text

    def unified(self, cwd: str) -> str:
        """Return the diff with paths relative to a folder's repository."""
        root = _root(cwd)
        sections: list[str] = []
        remaining = MAX_TOTAL_SHOWN
        pairs = sorted(self._pairs())
        for number, (old, new) in enumerate(pairs):
            section = self._file(old, new, root)
            if len(section) > remaining:
                section = self._header(old, new, root)
            remaining -= len(section)
            if remaining < 0:
                sections.append(f"{len(pairs) - number} more files are not shown\n")
                break
            sections.append(section)
        return "".join(sections)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the paths before and after; they differ if a file was moved."""
        moved = {new: old for new, old in self._sources.items() if self._is_moved(old, new)}
        gone = set(moved.values())
        for path in self._before:
            if path in moved:
                yield moved[path], path
            elif path not in gone:
                yield path, path

    def _is_moved(self, old: str, new: str) -> bool:
        return (
            old != new
            and self._before.get(old) is not None
            and self._after.get(old) is None
            and self._before.get(new) is None
            and self._after.get(new) is not None
        )

    def _file(self, old: str, new: str, root: str) -> str:
        before, after = self._before[old], self._after[new]
        known = self._shown.get((old, new))
        if known is not None and known[0] is before and known[1] is after:
            return known[2]
        text = _section(_shorten(old, root), _shorten(new, root), before, after)
        self._shown[old, new] = (before, after, text)
        return text

    def _header(self, old: str, new: str, root: str) -> str:
        """Return the diff of a file without its lines."""
        before, after = (
            None if state is None else replace(state, data=None)
            for state in (self._before[old], self._after[new])
        )
        return _section(_shorten(old, root), _shorten(new, root), before, after)


def _section(old: str, new: str, before: _State | None, after: _State | None) -> str:
    """Return the diff of one file."""
    if _identity(before) == _identity(after):
        return "" if old == new else _renamed(old, new)
    lines = [f"diff --git a/{old} b/{new}\n"]
    if before is None and after is not None:
        lines.append(f"new file mode {after.mode:o}\n")
    elif before is not None and after is None:
        lines.append(f"deleted file mode {before.mode:o}\n")
    elif before is not None and after is not None and before.mode != after.mode:
        lines.append(f"old mode {before.mode:o}\nnew mode {after.mode:o}\n")
    ids = [_NO_BLOB if state is None else state.blob_id for state in (before, after)]
    lines.append(f"index {ids[0]}..{ids[1]}\n")
    name = "/dev/null" if before is None else f"a/{old}"
    other = "/dev/null" if after is None else f"b/{new}"
    hunks = _hunks(before, after)
    if hunks is None:
        # Git's own wording, which every reader of diffs knows.
        lines.append(f"Binary files {name} and {other} differ\n")
    else:
        lines += [f"--- {name}\n", f"+++ {other}\n", hunks] if hunks else []
    return "".join(lines)


def _identity(state: _State | None) -> tuple[str, int] | None:
    return None if state is None else (state.blob_id, state.mode)


def _hunks(before: _State | None, after: _State | None) -> str | None:
    """Return the changed lines; `None` if there are too many, not text, or not kept."""
    texts: list[str] = []
    for state in (before, after):
        if state is not None and state.data is None:
            return None
        try:
            texts.append("" if state is None else decode(state.data or b""))
        except BadText:
            return None
    if sum(text.count("\n") for text in texts) > 2 * MAX_LINES:
        return None
    hunks = unified(texts[0], texts[1], context=_CONTEXT)
    return None if len(hunks) > MAX_SHOWN else hunks


def _renamed(old: str, new: str) -> str:
    moved = f"similarity index 100%\nrename from {old}\nrename to {new}\n"
    return f"diff --git a/{old} b/{new}\n{moved}"


def _blob_id(blob: Blob) -> str:
    """Return git's id for the contents of a file."""
    from hashlib import sha1

    digest = sha1(b"blob %d\0" % len(blob.data), usedforsecurity=False)
    digest.update(blob.data)
    return digest.hexdigest()


def _root(cwd: str) -> str:
    """Return the repository of a folder, or the folder itself."""
    folder = Path(real(cwd))
    return str(repository_root(folder) or folder)


def _shorten(path: str, root: str) -> str:
    inside = root.rstrip("/") + "/"
    return path.removeprefix(inside)
