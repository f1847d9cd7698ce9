"""Reads regular expressions for signs of more than linear time.

Three signs: two repeats that can part one text in many ways; two ways through the inside of a
repeat that can take the same text; and a repeat that holds what the expression begins with, so that
a search reads to its end from many places in it. What follows must be able to fail.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Any, Final

_parser: Final[Any] = importlib.import_module("re._parser")
_compiler: Final[Any] = importlib.import_module("re._compiler")

ANCHORED: Final = frozenset({"match", "fullmatch"})
SAMPLE: Final = [*map(chr, range(256)), "\u0660", "\u017f", "\u2028", "\u4e00", "\U0001f600"]
MAX_BOUND: Final = 256
MAX_WAYS: Final = 20_000


@dataclass(frozen=True)
class Piece:
    """One character or a repeat of some; `chars` is empty for a condition."""

    chars: frozenset[str]
    repeats: bool = False
    optional: bool = False
    # The parts that may be left out and hold this piece, and the one of them that needs it.
    parts: frozenset[int] = frozenset()
    needed_in: int = 0
    gives_back: bool = True


Way = tuple[Piece, ...]
CONDITION: Final = Piece(frozenset())
START: Final = Piece(frozenset(), optional=True)
ANYTHING: Final = frozenset(SAMPLE)


class Reader:
    """Lists the ways through an expression; a repeat of several pieces is twice itself, or one."""

    def __init__(self, pattern: str | bytes, flags: int, *, unrolls: bool) -> None:
        self._parsed = _parser.parse(pattern, flags)
        self._flags = self._parsed.state.flags
        self._unrolls = unrolls
        self._count = 0
        self.overlaps = False

    def ways(self) -> list[Way]:
        found = list(islice(self._sequence(self._parsed), MAX_WAYS + 1))
        assert len(found) <= MAX_WAYS, "the expression is too long to be judged"
        return found

    def _sequence(self, parts: Any) -> Iterator[Way]:  # noqa: ANN401 - `re` has no types for these
        each = [list(islice(self._part(str(code), value), MAX_WAYS + 1)) for code, value in parts]
        return (tuple(piece for way in chosen for piece in way) for chosen in product(*each))

    def _part(self, code: str, value: Any) -> Iterator[Way]:  # noqa: ANN401 - as above
        match code:
            case "SUBPATTERN":
                yield from self._sequence(value[-1])
            case "ATOMIC_GROUP":
                yield from self._sequence(value)
            case "BRANCH":
                for branch in value[1]:
                    yield from self._sequence(branch)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from self._repeat(code, *value)
            case "ASSERT" | "ASSERT_NOT":
                yield (CONDITION,)
                yield from self._sequence(value[1]) if value[0] > 0 else ()
            case "AT" if str(value) == "AT_BEGINNING" and self._flags & re.MULTILINE:
                yield (Piece(frozenset("\n")),)
            case "AT":
                yield (START if str(value) == "AT_BEGINNING" else CONDITION,)
            case "GROUPREF":
                yield (Piece(ANYTHING, optional=True),)
            case _:
                yield (Piece(self._chars(code, value)),)

    def _chars(self, code: str, value: Any) -> frozenset[str]:  # noqa: ANN401 - as above
        node = (getattr(_parser, code), value)
        one = _compiler.compile(_parser.SubPattern(self._parsed.state, [node]), self._flags)
        return frozenset(char for char in SAMPLE if one.fullmatch(char))

    def _optional(self, piece: Piece) -> Piece:
        needed_in = piece.needed_in if piece.optional else self._count
        parts = piece.parts | {self._count}
        return replace(piece, optional=True, parts=parts, needed_in=needed_in)

    def _repeat(self, code: str, least: int, most: int, inner: Any) -> Iterator[Way]:  # noqa: ANN401
        ways = list(islice(self._sequence(inner), MAX_WAYS + 1))
        is_long = most > MAX_BOUND
        self.overlaps |= is_long and code != "POSSESSIVE_REPEAT" and _overlap(ways)
        is_one = all(len(way) == 1 and not way[0].repeats for way in ways)
        if is_long and (is_one or not self._unrolls):
            chars = frozenset().union(*(piece.chars for way in ways for piece in way))
            gives_back = code != "POSSESSIVE_REPEAT"
            yield (Piece(chars, repeats=True, optional=not least, gives_back=gives_back),)
            yield from () if is_one else ways
            return
        if not least:
            self._count += 1
            yield ()
            ways = [tuple(map(self._optional, way)) for way in ways]
        yield from ways
        # What a possessive repeat has taken it does not part again.
        if most > 1 and code != "POSSESSIVE_REPEAT":
            yield from (one + other for one, other in product(ways, ways))


def _overlap(ways: list[Way]) -> bool:
    """Whether two ways through the inside of a repeat, or two rounds of it, can take one text."""
    rounds = [*ways, *(one + other for one, other in product(ways, ways))]
    plain = [way for way in rounds if all(p.chars and not p.repeats for p in way)]
    return any(
        len(one) == len(other) and all(a.chars & b.chars for a, b in zip(one, other, strict=True))
        for one, other in combinations(plain, 2)
    )


def _is_ambiguous(way: Way, use: str) -> bool:
    for (at, one), (to, other) in combinations(enumerate(way), 2):
        both = one.chars & other.chars if one.repeats and other.repeats else frozenset()
        if both and one.gives_back and _can_be(way[at + 1 : to], (one, other), both):
            is_last = use == "fullmatch" and other.chars != ANYTHING
            if is_last or _can_fail(way[to + 1 :], other):
                return True
    return False


def _restarts(way: Way) -> bool:
    return way[:1] != (START,) and any(
        piece.repeats
        and _can_be(way[:at], (piece,), piece.chars)
        and _can_fail(way[at + 1 :], piece)
        for at, piece in enumerate(way)
    )


def _can_be(pieces: Way, beside: Way, chars: frozenset[str]) -> bool:
    """Whether the pieces that these repeats need beside them can be made of some characters."""
    needed = (piece for piece in pieces if any(_is_needed(piece, each) for each in beside))
    return all(not piece.chars or piece.chars & chars for piece in needed)


def _can_fail(pieces: Way, repeat: Piece) -> bool:
    return any(_is_needed(piece, repeat) for piece in pieces)


def _is_needed(piece: Piece, repeat: Piece) -> bool:
    return not piece.optional or piece.needed_in in repeat.parts


def sign(pattern: str | bytes, flags: int, use: str) -> str | None:
    """Say what in an expression may take more than linear time, `None` if nothing does."""
    unrolled = Reader(pattern, flags, unrolls=True)
    if any(_is_ambiguous(way, use) for way in unrolled.ways()) or unrolled.overlaps:
        return "two repeats can part one text in many ways"
    whole = Reader(pattern, flags, unrolls=False)
    if use not in ANCHORED and any(map(_restarts, whole.ways())):
        return "a search reads to the end of a repeat from many places in it"
    return None
