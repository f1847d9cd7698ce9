"""All the edits of one turn as one diff, in git's format.

Knows only what patches change: what commands do to files is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from treadle.engine.docs import repository_root
from treadle.engine.patch.compare import unified
from treadle.engine.patch.files import Blob, Changed

MAX_SHOWN: Final = 1024 * 1024
"""How much is shown of one file: more would not fit the messages of a turn with many."""

_CONTEXT: Final = 3
_NO_BLOB: Final = "0" * 40


class TurnDiff:
    """What files held before the turn first touched them, and what they hold now."""

    def __init__(self) -> None:
        self._before: dict[str, Blob | None] = {}
        self._after: dict[str, Blob | None] = {}
        # Where a file that the turn moved was at the beginning.
        self._sources: dict[str, str] = {}
        self._shown: dict[tuple[str, str], tuple[Blob | None, Blob | None, str]] = {}
        self._told = ""

    def note(self, changes: Sequence[Changed]) -> None:
        """Take in what a patch has changed."""
        for change in changes:
            self._before.setdefault(change.path, change.before)
            self._after[change.path] = change.after
        for change in changes:
            if change.source is not None:
                source = self._sources.pop(change.source, change.source)
                self._sources[change.path] = source

    def news(self, cwd: str) -> str | None:
        """The diff with paths as seen from a folder's repository; `None` if it was told before."""
        text = self.unified(cwd)
        if text == self._told:
            return None
        self._told = text
        return text

    def unified(self, cwd: str) -> str:
        """The diff with paths as seen from a folder's repository."""
        root = _root(cwd)
        return "".join(self._file(old, new, root) for old, new in sorted(self._pairs()))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Paths before and after, the same unless a file was moved."""
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


def _section(old: str, new: str, before: Blob | None, after: Blob | None) -> str:
    """The diff of one file."""
    if before == after:
        return "" if old == new else _renamed(old, new)
    lines = [f"diff --git a/{old} b/{new}\n"]
    if before is None and after is not None:
        lines.append(f"new file mode {after.mode:o}\n")
    elif before is not None and after is None:
        lines.append(f"deleted file mode {before.mode:o}\n")
    elif before is not None and after is not None and before.mode != after.mode:
        lines.append(f"old mode {before.mode:o}\nnew mode {after.mode:o}\n")
    lines.append(f"index {_blob_id(before)}..{_blob_id(after)}\n")
    name = "/dev/null" if before is None else f"a/{old}"
    other = "/dev/null" if after is None else f"b/{new}"
    try:
        hunks = unified(_text(before), _text(after), context=_CONTEXT)
    except UnicodeDecodeError:
        lines.append(f"Binary files {name} and {other} differ\n")
    else:
        if len(hunks) > MAX_SHOWN:
            # In git's words, which every reader of diffs knows.
            lines.append(f"Binary files {name} and {other} differ\n")
        else:
            lines += [f"--- {name}\n", f"+++ {other}\n", hunks] if hunks else []
    return "".join(lines)


def _renamed(old: str, new: str) -> str:
    moved = f"similarity index 100%\nrename from {old}\nrename to {new}\n"
    return f"diff --git a/{old} b/{new}\n{moved}"


def _text(blob: Blob | None) -> str:
    return "" if blob is None else blob.data.decode()


def _blob_id(blob: Blob | None) -> str:
    """The name that git gives to what a file holds."""
    if blob is None:
        return _NO_BLOB
    from hashlib import sha1

    header = b"blob %d\0" % len(blob.data)
    return sha1(header + blob.data, usedforsecurity=False).hexdigest()


def _root(cwd: str) -> str:
    """The repository that a folder is in, or else the folder itself."""
    folder = Path(cwd).resolve()
    return str(repository_root(folder) or folder)


def _shorten(path: str, root: str) -> str:
    inside = root.rstrip("/") + "/"
    return path.removeprefix(inside)
