"""Finds the lines that a model quotes in a file, exactly or approximately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from treadle.engine.patch.effort import Effort

_LOOKALIKES: Final = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u00a0\u202f\u205f\u3000", " ")
    | {chr(code): " " for code in range(0x2002, 0x200B)}
)


def _plain(line: str) -> str:
    """A line with typographic characters replaced by ASCII ones."""
    return line.strip().translate(_LOOKALIKES)


# Each view is tried on the whole file before the next: an exact match further down is better.
_VIEWS: Final[Sequence[Callable[[str], str] | None]] = (None, str.rstrip, str.strip, _plain)
# The first searches compare the lines themselves, which is fastest for most files.
_PLAIN_SEARCHES: Final = 32
# `list.index` over this many lines costs as much as one step of a search.
_LINES_PER_STEP: Final = 16
# The interval at which a search counts its steps and checks for cancellation.
_BLOCK: Final = 256


class _View:
    """The lines of a file in one view, each as a number that equal lines share.

    Each line is hashed once. After that, a comparison does not depend on the length of the lines,
    and a quoted line that is not in the file needs no search.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._known: dict[str, int] = {}
        self.numbers = [self._known.setdefault(line, len(self._known)) for line in lines]

    def numbers_of(self, lines: Iterable[str]) -> list[int] | None:
        """The numbers of some lines; `None` if one of them is not in the file."""
        numbers = [self._known.get(line, -1) for line in lines]
        return None if -1 in numbers else numbers


class LineFinder:
    """Searches the lines of a file, without line breaks, in exact and looser views."""

    def __init__(self, lines: list[str], effort: Effort | None = None) -> None:
        self.lines = lines
        self._effort = effort or Effort()
        self._views: dict[int, _View] = {}
        self._plain_searches = 0

    def find(self, needle: Sequence[str], start: int = 0, *, is_at_end: bool = False) -> int | None:
        """The index of some lines, from `start` on or exactly at the end of the file.

        Raises:
            PatchError: the search takes too many comparisons.
        """
        last = len(self.lines) - len(needle)
        first = last if is_at_end else start
        if not needle or first < start or first > last:
            return None
        plain = self._find_plainly(needle, first, last)
        if plain is not None:
            return plain
        for number, normalize in enumerate(_VIEWS):
            view = self._view(number, normalize)
            self._effort.add_steps(len(needle))
            pattern = view.numbers_of(needle if normalize is None else map(normalize, needle))
            if pattern is None:
                continue
            index = _index(view.numbers, pattern, first, last, self._effort)
            if index is not None:
                return index
        return None

    def _find_plainly(self, needle: Sequence[str], first: int, last: int) -> int | None:
        """The index of the first quoted line, if the others follow it.

        Only in the first searches of a patch: comparisons of long similar lines are not counted.
        """
        self._effort.check()
        self._plain_searches += 1
        if self._plain_searches > _PLAIN_SEARCHES:
            return None
        try:
            place = self.lines.index(needle[0], first, last + 1)
        except ValueError:
            return None
        return place if self.lines[place : place + len(needle)] == [*needle] else None

    def _view(self, number: int, normalize: Callable[[str], str] | None) -> _View:
        if number not in self._views:
            self._effort.add_steps(len(self.lines))
            lines = self.lines if normalize is None else map(normalize, self.lines)
            self._views[number] = _View(lines)
        return self._views[number]


def _index(
    lines: list[int], pattern: list[int], first: int, last: int, effort: Effort
) -> int | None:
    """The index of a sequence of numbers, without backtracking (Knuth, Morris, Pratt)."""
    try:
        place = lines.index(pattern[0], first, last + 1)
    except ValueError:
        effort.add_steps((last + 1 - first) // _LINES_PER_STEP)
        return None
    effort.add_steps((place - first) // _LINES_PER_STEP)
    if lines[place : place + len(pattern)] == pattern:
        return place  # the usual case
    borders = _borders(pattern)
    matched, end = 0, last + len(pattern)
    for start in range(place, end, _BLOCK):
        effort.add_steps(_BLOCK)
        for at, line in enumerate(lines[start : min(start + _BLOCK, end)], start):
            # As in `_extended`: a call for every line would take most of the time.
            while matched and line != pattern[matched]:
                matched = borders[matched - 1]
            if line == pattern[matched]:
                matched += 1
                if matched == len(pattern):
                    return at + 1 - matched
    return None


def _borders(pattern: list[int]) -> list[int]:
    """For each prefix, the length of its longest proper suffix that is also a prefix."""
    borders, matched = [0], 0
    for line in pattern[1:]:
        matched = _extended(pattern, borders, matched, line)
        borders.append(matched)
    return borders


def _extended(pattern: list[int], borders: list[int], matched: int, line: int) -> int:
    while matched and line != pattern[matched]:
        matched = borders[matched - 1]
    return matched + (line == pattern[matched])
