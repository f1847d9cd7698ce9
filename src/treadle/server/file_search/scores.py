"""How well the characters of a query match a path.

The rules are those of the matcher that Codex uses, nucleo, in its configuration for paths. A
character is worth more at the start of a name or a word and after one that matches too, and less
after a gap. Of all alignments the best one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

MATCH: Final = 16
GAP: Final = 3
LONGER_GAP: Final = 1
CONSECUTIVE: Final = GAP + LONGER_GAP
AFTER_SLASH: Final = 9
BOUNDARY: Final = 8
CAMEL: Final = BOUNDARY - GAP
MAX_CELLS: Final = 100 * 1024
"""Characters of a query times those of a path; beyond, not every alignment is compared."""

FIRST: Final = 2
"""The bonus of the first character of a query counts this many times."""

WHITE, SLASH, MARK, LOWER, UPPER, LETTER, NUMBER = " /.aAx1"
"""Classes of characters; a mark is any other one."""

_WORD: Final = (LOWER, UPPER, LETTER, NUMBER)
_BREAKS: Final = {WHITE: BOUNDARY, SLASH: AFTER_SLASH, MARK: BOUNDARY}


def _bonus(before: str, at: str) -> int:
    if at in _WORD and before in _BREAKS:
        return _BREAKS[before]
    if (before == LOWER and at == UPPER) or (before != NUMBER and at == NUMBER):
        return CAMEL
    return BOUNDARY if at in (WHITE, MARK) else 0


BONUS: Final = {
    before + at: _bonus(before, at) for before in (*_BREAKS, *_WORD) for at in (*_BREAKS, *_WORD)
}
"""The bonus of a character by its class after the class of the character before it."""


class Text(NamedTuple):
    """A path, prepared for queries."""

    plain: str
    """Its characters without case and, for most queries, without accents."""
    classes: str
    """The class of each character, after the class of a slash for what is before the first."""


Alignment: TypeAlias = tuple[int, list[int]]
"""A score, and the positions of the characters that match."""

Matcher: TypeAlias = Callable[[Text, str], Alignment | None]

# The best alignment that ends at a position: position, score, bonus of the run of consecutive
# characters that it is in, and the cell of the character before. A tuple: there are millions.
_Cell: TypeAlias = "tuple[int, int, int, _Cell | None]"


def fuzzy(text: Text, needle: str) -> Alignment | None:
    """Align a needle whose characters may have gaps between them."""
    if len(needle) == 1:
        return substring(text, needle)
    if len(needle) * len(text.plain) > MAX_CELLS:
        return _greedy(text, needle)
    row = _first_row(text, needle[0])
    for character in needle[1:]:
        if not row:
            return None
        row = _next_row(text, row, character)
    if not row:
        return None
    # The last one of those that are equal.
    best = max(reversed(row), key=lambda cell: cell[1])
    cell: _Cell | None = best
    positions = []
    while cell is not None:
        positions.append(cell[0])
        cell = cell[3]
    return best[1], positions[::-1]


def highest(needle: str) -> int:
    """Return the score of a path in which a needle follows a slash: no other score is higher."""
    return len(needle) * (MATCH + AFTER_SLASH) + (FIRST - 1) * AFTER_SLASH


def substring(text: Text, needle: str) -> Alignment | None:
    """Align a needle without gaps, where its first character is worth most."""
    best, start = -1, -1
    position = text.plain.find(needle)
    while position != -1:
        bonus = BONUS[text.classes[position : position + 2]]
        if bonus > best:
            best, start = bonus, position
            if bonus >= BOUNDARY:
                break
        position = text.plain.find(needle, position + 1)
    return None if start == -1 else _run(text, needle, start)


def prefix(text: Text, needle: str) -> Alignment | None:
    """Align a needle with the start of a path."""
    return _run(text, needle, 0) if text.plain.startswith(needle) else None


def suffix(text: Text, needle: str) -> Alignment | None:
    """Align a needle with the end of a path."""
    if not text.plain.endswith(needle):
        return None
    return _run(text, needle, len(text.plain) - len(needle))


def exact(text: Text, needle: str) -> Alignment | None:
    """Align a needle with the whole path."""
    return _run(text, needle, 0) if text.plain == needle else None


def _greedy(text: Text, needle: str) -> Alignment | None:
    """Return the alignment that ends first, with its characters as late as possible."""
    position = -1
    for character in needle:
        position = text.plain.find(character, position + 1)
        if position == -1:
            return None
    positions: list[int] = []
    end = position + 1
    for character in reversed(needle):
        end = text.plain.rindex(character, 0, end)
        positions.append(end)
    positions.reverse()
    return _score(text, positions), positions


def _run(text: Text, needle: str, start: int) -> Alignment:
    positions = list(range(start, start + len(needle)))
    return _score(text, positions), positions


def _score(text: Text, positions: Sequence[int]) -> int:
    """Return the score of an alignment."""
    classes = text.classes
    run = BONUS[classes[positions[0] : positions[0] + 2]]
    score = MATCH + FIRST * run
    for before, at in pairwise(positions):
        bonus = BONUS[classes[at : at + 2]]
        if at == before + 1:
            if bonus >= BOUNDARY and bonus > run:
                run = bonus
            bonus = max(run, bonus, CONSECUTIVE)
        else:
            score = max(score - GAP - LONGER_GAP * (at - before - 2), 0)
            run = bonus
        score += MATCH + bonus
    return score


def _first_row(text: Text, character: str) -> list[_Cell]:
    plain, classes = text
    row: list[_Cell] = []
    position = plain.find(character)
    while position != -1:
        bonus = BONUS[classes[position : position + 2]]
        row.append((position, MATCH + FIRST * bonus, bonus, None))
        position = plain.find(character, position + 1)
    return row


def _next_row(text: Text, before: list[_Cell], character: str) -> list[_Cell]:
    plain, classes = text
    row: list[_Cell] = []
    index, count = 0, len(before)
    # The best score with a gap before column `column`, and the cell where that gap begins.
    apart, column = 0, 0
    begin: _Cell | None = None
    position = plain.find(character, before[0][0] + 1)
    while position != -1:
        while index < count and (cell := before[index])[0] < position - 1:
            apart = max(apart - LONGER_GAP * (cell[0] + 1 - column), 0)
            column = cell[0] + 1
            if cell[1] - GAP > apart:
                apart, begin = cell[1] - GAP, cell
            index += 1
        bonus = BONUS[classes[position : position + 2]]
        score = bonus + max(apart - LONGER_GAP * (position - 1 - column), 0)
        run, previous = bonus, begin
        if index < count and (cell := before[index])[0] == position - 1:
            joined = max(cell[2], CONSECUTIVE)
            if bonus >= BOUNDARY and bonus > joined:
                joined = bonus
            together = cell[1] + max(joined, bonus)
            if together > score:
                score, run, previous = together, joined, cell
        row.append((position, score + MATCH, run, previous))
        position = plain.find(character, position + 1)
    return row
