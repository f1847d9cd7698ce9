"""Finds lines in a file that a model quotes from memory: exactly, or nearly so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

_LOOKALIKES: Final = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u00a0\u202f\u205f\u3000", " ")
    | {chr(code): " " for code in range(0x2002, 0x200B)}
)


def _plain(line: str) -> str:
    """A line without the characters that a keyboard does not have."""
    return line.strip().translate(_LOOKALIKES)


# So many lines are looked at again and again before it is done with more care.
_MAX_EFFORT: Final = 1_000_000
# Each is tried on the whole file before the next: an exact place further down is the better one.
_VIEWS: Final[Sequence[Callable[[str], str] | None]] = (None, str.rstrip, str.strip, _plain)


class Haystack:
    """The lines of a file, without their ends, and their looser views as they are needed."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._views: dict[int, list[str]] = {0: lines}

    def find(self, needle: Sequence[str], start: int = 0, *, is_at_end: bool = False) -> int | None:
        """Where some lines stand, from a line on, or exactly at the end of the file."""
        last = len(self.lines) - len(needle)
        first = last if is_at_end else start
        if not needle or first < start or first > last:
            return None
        for number, view in enumerate(_VIEWS):
            wanted = list(needle) if view is None else [view(line) for line in needle]
            found = _index(self._view(number, view), wanted, first, last)
            if found is not None:
                return found
        return None

    def _view(self, number: int, view: Callable[[str], str] | None) -> list[str]:
        if number not in self._views and view is not None:
            self._views[number] = [view(line) for line in self.lines]
        return self._views[number]


def _index(lines: list[str], wanted: list[str], first: int, last: int) -> int | None:
    place, effort = first, 0
    while place <= last:
        try:
            place = lines.index(wanted[0], place, last + 1)
        except ValueError:
            return None
        if lines[place : place + len(wanted)] == wanted:
            return place
        place += 1
        effort += len(wanted)
        if effort > _MAX_EFFORT:
            return _index_steadily(lines, wanted, place, last)
    return None


def _index_steadily(lines: list[str], wanted: list[str], first: int, last: int) -> int | None:
    """The same for files that repeat themselves: no line is gone back to."""
    # Of each beginning of what is wanted: how much of its end is such a beginning too.
    borders, matched = [0], 0
    for line in wanted[1:]:
        matched = _extended(wanted, borders, matched, line)
        borders.append(matched)
    matched = 0
    for place in range(first, last + len(wanted)):
        matched = _extended(wanted, borders, matched, lines[place])
        if matched == len(wanted):
            return place + 1 - matched
    return None


def _extended(wanted: list[str], borders: list[int], matched: int, line: str) -> int:
    while matched and line != wanted[matched]:
        matched = borders[matched - 1]
    return matched + (line == wanted[matched])
