"""Plans the edits of a patch. Reads files through a function; writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from treadle.engine.patch.effort import MAX_BYTES, MAX_LINES, MAX_UPDATE_BYTES, Effort
from treadle.engine.patch.search import LineFinder
from treadle.engine.patch.syntax import AddFile, DeleteFile, Hunk, Operation, PatchError, UpdateFile
from treadle.engine.patch.text import BadText, decode, encode_lines, split

Read: TypeAlias = Callable[[str, int, Effort], bytes]
"""Returns the content of a file up to a size in bytes, or raises an OSError."""


class Target(Struct, frozen=True):
    """A file of a patch, and its new path if it is moved, both absolute."""

    path: str
    move_path: str | None = None
    is_removal: bool = False


class FileEdit(Struct, frozen=True, kw_only=True):
    """The edit of one file; paths are absolute, and `name` is the path in the patch."""

    kind: Literal["add", "update", "delete"]
    path: str
    name: str
    move_path: str | None = None
    # The current content, if it was read, and the new content.
    old: bytes = b""
    new: bytes = b""


def plan(operations: Sequence[Operation], cwd: str, read: Read, effort: Effort) -> list[FileEdit]:
    """Plan every operation before any is applied.

    Raises:
        PatchError: an operation does not match the files, or the patch exceeds a limit.
        Abandoned: the caller was cancelled.
    """
    return [_edit(operation, cwd, read, effort) for operation in operations]


def targets(operations: Sequence[Operation], cwd: str) -> list[Target]:
    """The files of operations.

    Raises:
        PatchError: a path is invalid, or two operations name the same file.
    """
    result: list[Target] = []
    taken: set[str] = set()
    for operation in operations:
        path = _absolute(cwd, operation.path)
        moves = operation.move_to if isinstance(operation, UpdateFile) else None
        move_path = path if moves is None else _absolute(cwd, moves)
        for name in {path, move_path}:
            if "\0" in name:
                raise PatchError(f"invalid patch: {name!r} contains a NUL byte")
            if name in taken:
                raise PatchError(f"invalid patch: multiple operations target {name}")
            taken.add(name)
        is_removal = isinstance(operation, DeleteFile)
        result.append(Target(path, None if move_path == path else move_path, is_removal))
    return result


def _edit(operation: Operation, cwd: str, read: Read, effort: Effort) -> FileEdit:
    effort.check()
    path = _absolute(cwd, operation.path)
    match operation:
        case AddFile():
            new = encode_lines(operation.lines)
            return FileEdit(kind="add", path=path, name=operation.path, new=new)
        case DeleteFile():
            try:
                old = read(path, MAX_BYTES, effort)
            except OSError as error:
                raise PatchError(f"Failed to read {path}: {_reason(error)}") from error
            return FileEdit(kind="delete", path=path, name=operation.path, old=old)
        case UpdateFile():
            return _updated(operation, path, cwd, read, effort)


def _updated(operation: UpdateFile, path: str, cwd: str, read: Read, effort: Effort) -> FileEdit:
    try:
        old = read(path, MAX_UPDATE_BYTES, effort)
        text = decode(old)
    except OSError as error:
        raise PatchError(f"Failed to read file to update {path}: {_reason(error)}") from error
    except BadText as error:
        raise PatchError(f"Failed to read file to update {path}: {error}") from error
    move_path = None if operation.move_to is None else _absolute(cwd, operation.move_to)
    return FileEdit(
        kind="update",
        path=path,
        name=operation.move_to or operation.path,
        move_path=None if move_path == path else move_path,
        old=old,
        new=_changed(text, operation.hunks, path, effort),
    )


def _absolute(cwd: str, path: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118 - pathlib keeps `..`


def _reason(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} (os error {error.errno})"


def _changed(text: str, hunks: Sequence[Hunk], path: str, effort: Effort) -> bytes:
    """The text with all hunks applied; it always ends with a line break."""
    if text.count("\n") > MAX_LINES:
        raise PatchError(f"{path} has more than {MAX_LINES} lines, too many to update with a patch")
    lines = split(text)
    if not lines[-1]:
        lines.pop()
    # New lines get the line break of the first line; old lines keep theirs.
    end = "\r\n" if lines and lines[0].endswith("\r") else "\n"
    bare = [line.removesuffix("\r") for line in lines] if "\r" in text else lines
    if not text.endswith("\n") and lines:
        lines[-1] += end[:-1]
    finder = LineFinder(bare, effort)
    result: list[str] = []
    copied = place = 0
    for hunk in hunks:
        at, pairs = _locate(finder, hunk, place, path)
        result += lines[copied:at]
        for mark, line in pairs:
            if mark == "+":
                result.append(line + end[:-1])
            else:
                result += lines[at : at + 1] if mark == " " else ()
                at += 1
        copied = place = at
    result += lines[copied:]
    return encode_lines(result)


def _locate(
    finder: LineFinder, hunk: Hunk, start: int, path: str
) -> tuple[int, list[tuple[str, str]]]:
    """The place of a hunk, and its lines without an empty last one that only the patch has."""
    for context in hunk.contexts:
        index = finder.find([context], start)
        if index is None:
            raise PatchError(f"Failed to find context '{context}' in {path}")
        start = index + 1
    expected, pairs = hunk.expected(), hunk.lines
    index = finder.find(expected, start, is_at_end=hunk.is_at_end)
    if index is None and expected and not expected[-1]:
        expected, pairs = expected[:-1], _without_last_empty(pairs)
        index = finder.find(expected, start, is_at_end=hunk.is_at_end)
    if not expected:
        return (start if hunk.contexts or not pairs else len(finder.lines)), pairs
    if index is None:
        lines = "\n".join(hunk.expected())
        raise PatchError(f"Failed to find expected lines in {path}:\n{lines}")
    return index, pairs


def _without_last_empty(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The lines of a hunk without an empty last one, on both sides."""
    shortened = list(pairs)
    last = max(at for at, (mark, _) in enumerate(shortened) if mark != "+")
    mark, _ = shortened.pop(last)
    new = [at for at, (sign, _) in enumerate(shortened) if sign != "-"]
    if mark == "-" and new and shortened[new[-1]] == ("+", ""):
        del shortened[new[-1]]
    return shortened
