"""Compares two texts line by line, in the unified diff format.

It takes milliseconds for files that take the standard library's difflib seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from treadle.engine.patch.text import split

NO_NEWLINE: Final = "\\ No newline at end of file\n"

# Limit of the search for the shortest diff: its cost grows with the square of the changes.
_MAX_STEPS: Final = 256
# After this many comparisons of lines, the rest is shown as one change.
MAX_COMPARISONS: Final = 2_000_000
# Limit of the recursion into parts of parts.
_MAX_DEPTH: Final = 40
_BLOCK: Final = 4096


class _TooMuch(Exception):
    """The limit of comparisons is reached."""


class _Budget:
    """The remaining comparisons of lines for two texts."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _TooMuch


class LineChange(Struct, frozen=True):
    """Lines `old_start` to `old_end` are replaced by lines `new_start` to `new_end`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """The lines of a text with their line feeds; only a line feed ends a line."""
    lines = [f"{line}\n" for line in split(text)]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def unified(old: str, new: str, *, context: int) -> str:
    """The hunks of a diff between two texts, without a header."""
    if old == new:
        return ""
    start, tail = _window(old, new, context)
    line = old.count("\n", 0, start)
    before = split_lines(old[start : len(old) - tail])
    after = split_lines(new[start : len(new) - tail])
    groups = _grouped(changes(before, after), 2 * context)
    return "".join(_hunk(group, before, after, context, line) for group in groups)


def _window(old: str, new: str, context: int) -> tuple[int, int]:
    """How many characters at the start and the end of two texts need no comparison.

    The context lines around the difference are not skipped.
    """
    size = min(len(old), len(new))
    start = old.rfind("\n", 0, _shared_start(old, new, size)) + 1
    end = len(old) - _shared_end(old, new, size - start)
    for _ in range(context):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
    for _ in range(context + 1):
        end = (old.find("\n", end) + 1) or len(old)
    return start, len(old) - end


def _shared_start(old: str, new: str, size: int) -> int:
    place, step = 0, _BLOCK
    while place < size and step:
        if place + step <= size and old[place : place + step] == new[place : place + step]:
            place += step
        else:
            step //= 2
    return place


def _shared_end(old: str, new: str, size: int) -> int:
    place, step = 0, _BLOCK
    while place < size and step:
        mine = old[len(old) - place - step : len(old) - place]
        theirs = new[len(new) - place - step : len(new) - place]
        if place + step <= size and mine == theirs:
            place += step
        else:
            step //= 2
    return place


def changes(
    old: Sequence[str], new: Sequence[str], *, max_comparisons: int = MAX_COMPARISONS
) -> list[LineChange]:
    """The differences, in order; adjacent ones are one change.

    The work is limited by the sizes: texts that would take longer get a coarser diff.
    """
    merged: list[LineChange] = []
    budget = _Budget(max_comparisons)
    for change in _compare(old, new, LineChange(0, len(old), 0, len(new)), budget, 0):
        last = merged[-1] if merged else None
        if last and last.old_end == change.old_start and last.new_end == change.new_start:
            merged[-1] = LineChange(last.old_start, change.old_end, last.new_start, change.new_end)
        else:
            merged.append(change)
    return merged


def _compare(
    old: Sequence[str], new: Sequence[str], part: LineChange, budget: _Budget, depth: int
) -> Iterator[LineChange]:
    part = _trimmed(old, new, part)
    if part.old_start == part.old_end and part.new_start == part.new_end:
        return
    is_one_sided = part.old_start == part.old_end or part.new_start == part.new_end
    if is_one_sided or depth > _MAX_DEPTH:
        yield part
        return
    try:
        shared = _shortest(old, new, part, budget)
    except _TooMuch:
        shared = None
    if shared is not None:
        yield from _gaps(shared, part)
        return
    try:
        shared = _unique_lines(old, new, part, budget)
    except _TooMuch:
        shared = None
    if not shared:
        yield part
        return
    for gap in _gaps(shared, part):
        yield from _compare(old, new, gap, budget, depth + 1)


def _trimmed(old: Sequence[str], new: Sequence[str], part: LineChange) -> LineChange:
    """A part without the equal lines at its start and its end."""
    first, other = part.old_start, part.new_start
    while first < part.old_end and other < part.new_end and old[first] == new[other]:
        first, other = first + 1, other + 1
    end, other_end = part.old_end, part.new_end
    while end > first and other_end > other and old[end - 1] == new[other_end - 1]:
        end, other_end = end - 1, other_end - 1
    return LineChange(first, end, other, other_end)


def _gaps(shared: Sequence[tuple[int, int]], part: LineChange) -> Iterator[LineChange]:
    """The parts between the lines that two texts share."""
    edges = [(part.old_start - 1, part.new_start - 1), *shared, (part.old_end, part.new_end)]
    for (old, new), (next_old, next_new) in pairwise(edges):
        if next_old - old > 1 or next_new - new > 1:
            yield LineChange(old + 1, next_old, new + 1, next_new)


def _shortest(
    old: Sequence[str], new: Sequence[str], part: LineChange, budget: _Budget
) -> list[tuple[int, int]] | None:
    """The shared lines of the shortest diff (Myers); `None` if it has too many changes."""
    a, b = old[part.old_start : part.old_end], new[part.new_start : part.new_end]
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    for steps in range(min(len(a) + len(b), _MAX_STEPS) + 1):
        trail.append(dict(furthest))
        budget.spend(steps + 1)
        for k in range(-steps, steps + 1, 2):
            goes_down = k == -steps or (k != steps and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if goes_down else furthest[k - 1] + 1
            y, start = x - k, x
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            budget.spend(x - start)
            furthest[k] = x
            if x >= len(a) and y >= len(b):
                shared = _walk_back(trail, len(a), len(b))
                return [(x + part.old_start, y + part.new_start) for x, y in reversed(shared)]
    return None


def _walk_back(trail: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    shared: list[tuple[int, int]] = []
    for steps in range(len(trail) - 1, -1, -1):
        furthest, k = trail[steps], x - y
        goes_down = k == -steps or (k != steps and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if goes_down else k - 1
        old_x = furthest[before] if steps else 0
        old_y = old_x - before if steps else 0
        while x > old_x and y > old_y:
            x, y = x - 1, y - 1
            shared.append((x, y))
        x, y = old_x, old_y
    return shared


def _unique_lines(
    old: Sequence[str], new: Sequence[str], part: LineChange, budget: _Budget
) -> list[tuple[int, int]]:
    """The longest sequence of lines that occur once on each side, in the same order."""
    budget.spend(part.old_end - part.old_start + part.new_end - part.new_start)
    mine = _places(old, part.old_start, part.old_end)
    theirs = _places(new, part.new_start, part.new_end)
    pairs = [(at, theirs[line]) for line, at in mine.items() if line in theirs]
    pairs = sorted((at, other) for at, other in pairs if at >= 0 and other >= 0)
    return _rising(pairs)


def _places(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    """The index of each line; -1 if it occurs more than once."""
    places: dict[str, int] = {}
    for at in range(start, end):
        places[lines[at]] = -1 if lines[at] in places else at
    return places


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of pairs whose second numbers increase too."""
    from bisect import bisect_left

    ends: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for number, (_, value) in enumerate(pairs):
        pile = bisect_left(ends, value)
        before.append(tops[pile - 1] if pile else -1)
        ends[pile : pile + 1] = [value]
        tops[pile : pile + 1] = [number]
    run: list[tuple[int, int]] = []
    number = tops[-1] if tops else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _grouped(found: Sequence[LineChange], reach: int) -> list[list[LineChange]]:
    """Groups of changes that are close enough for one hunk."""
    groups: list[list[LineChange]] = []
    for change in found:
        if groups and change.old_start - groups[-1][-1].old_end <= reach:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _hunk(
    group: Sequence[LineChange], old: Sequence[str], new: Sequence[str], context: int, line: int
) -> str:
    first, last = group[0], group[-1]
    lead = min(context, first.old_start)
    tail = min(context, len(old) - last.old_end)
    removed = _range(line + first.old_start - lead, line + last.old_end + tail)
    added = _range(line + first.new_start - lead, line + last.new_end + tail)
    parts = [f"@@ -{removed} +{added} @@\n"]
    place = first.old_start - lead
    for change in group:
        parts += [_line(" ", line) for line in old[place : change.old_start]]
        parts += [_line("-", line) for line in old[change.old_start : change.old_end]]
        parts += [_line("+", line) for line in new[change.new_start : change.new_end]]
        place = change.old_end
    parts += [_line(" ", line) for line in old[place : place + tail]]
    return "".join(parts)


def _line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{NO_NEWLINE}"


def _range(start: int, end: int) -> str:
    """A range of lines, counted from 1; an empty range names the line before it."""
    size = end - start
    if size == 1:
        return str(start + 1)
    return f"{start + 1 if size else start},{size}"
