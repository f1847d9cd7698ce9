"""Parses the patch format into operations on files, independent of their content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from msgspec import Struct, field

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
ADD: Final = "*** Add File: "
DELETE: Final = "*** Delete File: "
UPDATE: Final = "*** Update File: "
MOVE: Final = "*** Move to: "
END_OF_FILE: Final = "*** End of File"

_CONTEXT: Final = "@@"
_HEADERS: Final = (ADD, DELETE, UPDATE)
# Some models wrap a patch as in a shell.
_HEREDOCS: Final = frozenset({"<<EOF", "<<'EOF'", '<<"EOF"'})


class PatchError(Exception):
    """The patch is invalid; the text is for the model."""


class Hunk(Struct):
    """One changed place of a file: its context, and its lines, each with a mark."""

    contexts: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    is_at_end: bool = False

    def expected(self) -> list[str]:
        """The lines that the file must contain."""
        return [text for mark, text in self.lines if mark != "+"]


class AddFile(Struct, frozen=True):
    """Create a file, or replace it as a whole."""

    path: str
    lines: list[str]


class DeleteFile(Struct, frozen=True):
    """Delete a file."""

    path: str


class UpdateFile(Struct, frozen=True):
    """Change a file in some places, and optionally move it."""

    path: str
    hunks: list[Hunk]
    move_to: str | None = None


Operation: TypeAlias = AddFile | DeleteFile | UpdateFile


def parse(text: str) -> list[Operation]:
    """Parse a patch; an empty patch is an empty list.

    Raises:
        PatchError: the format is invalid.
    """
    return list(_operations(_Lines(_body(text))))


def _body(text: str) -> list[str]:
    """The lines of the patch, including the first and the last marker."""
    lines = [line.rstrip("\r") for line in text.strip().split("\n")]
    if len(lines) >= 4 and lines[0] in _HEREDOCS and lines[-1].endswith("EOF"):
        lines = lines[1:-1]
    first, last = lines[0].strip(), lines[-1].strip()
    if first and first != BEGIN:
        raise PatchError(f"invalid patch: The first line of the patch must be '{BEGIN}'")
    if last != END:
        raise PatchError(f"invalid patch: The last line of the patch must be '{END}'")
    return lines


class _Lines:
    """The lines of a patch, read one after another."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._next = 1

    @property
    def number(self) -> int:
        """The number of the next line; the first is 1."""
        return self._next + 1

    def peek(self) -> str:
        """The next line; the last one is never taken."""
        return self._lines[self._next]

    def take(self) -> str:
        self._next += 1
        return self._lines[self._next - 1]

    def is_at_end(self) -> bool:
        return self._next >= len(self._lines) - 1 or self.peek().strip() == END

    def error(self, text: str, number: int | None = None) -> PatchError:
        return PatchError(f"invalid hunk at line {number or self.number}, {text}")


def _operations(lines: _Lines) -> Iterator[Operation]:
    while not lines.is_at_end():
        number = lines.number
        header = lines.peek().strip()
        if header.startswith(ADD):
            lines.take()
            yield AddFile(header.removeprefix(ADD), list(_added(lines)))
        elif header.startswith(DELETE):
            lines.take()
            yield DeleteFile(header.removeprefix(DELETE))
        elif header.startswith(UPDATE):
            lines.take()
            yield _update(lines, header.removeprefix(UPDATE), number)
        else:
            valid = ", ".join(f"'{start}{{path}}'" for start in _HEADERS)
            raise lines.error(f"'{header}' is not a valid hunk header. Valid hunk headers: {valid}")


def _added(lines: _Lines) -> Iterator[str]:
    while not lines.is_at_end() and lines.peek().startswith("+"):
        yield lines.take()[1:]


def _update(lines: _Lines, path: str, number: int) -> UpdateFile:
    move_to = None
    if not lines.is_at_end() and lines.peek().startswith(MOVE):
        move_to = lines.take().removeprefix(MOVE).strip()
    hunks: list[Hunk] = []
    while not _is_operation_over(lines):
        if lines.peek().strip() in ("", END_OF_FILE):
            lines.take()
        else:
            hunks.append(_hunk(lines, is_first=not hunks))
    if not hunks:
        raise lines.error(f"Update file hunk for path '{path}' is empty", number)
    return UpdateFile(path, hunks, move_to)


def _is_operation_over(lines: _Lines) -> bool:
    return lines.is_at_end() or lines.peek().startswith(_HEADERS)


def _hunk(lines: _Lines, *, is_first: bool) -> Hunk:
    hunk = Hunk()
    is_marked = False
    while not lines.is_at_end() and _is_context(lines.peek()):
        is_marked = True
        context = lines.take()[len(_CONTEXT) + 1 :].rstrip()
        if context:
            hunk.contexts.append(context)
    if not is_marked and not is_first:
        raise lines.error(
            f"Expected update hunk to start with a @@ context marker, got: '{lines.peek()}'"
        )
    _take_lines(lines, hunk)
    if hunk.lines:
        return hunk
    if lines.is_at_end() or lines.peek() == END_OF_FILE:
        raise lines.error("Update hunk does not contain any lines")
    raise lines.error(
        f"Unexpected line found in update hunk: '{lines.peek()}'. Every line should start with "
        "' ' (context line), '+' (added line), or '-' (removed line)"
    )


def _is_context(line: str) -> bool:
    return line == _CONTEXT or line.startswith(_CONTEXT + " ")


def _take_lines(lines: _Lines, hunk: Hunk) -> None:
    while not lines.is_at_end():
        line = lines.peek()
        if line == END_OF_FILE and hunk.lines:
            lines.take()
            hunk.is_at_end = True
            return
        # The blank of an empty context line may be missing.
        mark = line[:1] or " "
        if mark not in " +-":
            return
        hunk.lines.append((mark, lines.take()[1:]))
