"""Regular expressions in linear time, for patterns of unknown origin.

The standard library backtracks: a short pattern can take practically forever, and cannot be
interrupted. Here all paths through a pattern are followed at once (Thompson, Pike). References,
lookaround and flags are not possible this way; patterns with them are undecided.
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from treadle.model.structured.effort import ValidationBudget

MAX_STATES: Final = 2000
_MAX_LENGTH: Final = 10_000
# The cost of other work in steps: one step is one state for one character.
_PER_CHARACTER: Final = 5
_PER_PARSED: Final = 10
_PER_PART: Final = 10

# The result of the standard library's parser, which has no types.
_Parsed: TypeAlias = Any
Predicate: TypeAlias = Callable[[str], bool]
# What a state does: test a character, test the position, or continue in up to two ways at once.
_State: TypeAlias = tuple[Predicate | str | None, int, int]

# The parser that `re` itself uses has no public name.
_parser: Final[Any] = importlib.import_module("re._parser")
_codes: Final[Any] = importlib.import_module("re._constants")

_CATEGORIES: Final[dict[str, Predicate]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda char: char.isalnum() or char == "_",
}


class Undecided(Exception):
    """The pattern cannot be matched safely."""


class Patterns:
    """The patterns of one validation, each compiled once; all work on them counts together."""

    def __init__(self, effort: ValidationBudget) -> None:
        self._effort = effort
        self._prepared: dict[str, list[_State] | Undecided] = {}

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches anywhere in a text.

        Raises:
            Undecided: the pattern is not supported.
            TooComplex: the limit of steps is exceeded.
        """
        states = self._states(pattern)
        active: set[int] = set()
        for place in range(len(text) + 1):
            active.add(0)
            reached = _closure(states, active, text, place)
            if len(states) in reached:
                return True
            self._effort.spend(len(reached) + _PER_CHARACTER)
            active = _advanced(states, reached, text[place]) if place < len(text) else set()
        return False

    def _states(self, pattern: str) -> list[_State]:
        found = self._prepared.get(pattern)
        if found is None:
            try:
                found = _compiled(pattern, self._effort)
            except Undecided as undecided:
                found = undecided
            self._prepared[pattern] = found
        if isinstance(found, Undecided):
            raise Undecided(*found.args)
        return found


def _advanced(states: list[_State], reached: set[int], char: str) -> set[int]:
    after: set[int] = set()
    for number in reached:
        test, following, _ = states[number]
        if callable(test) and test(char):
            after.add(following)
    return after


def _closure(states: list[_State], start: set[int], text: str, place: int) -> set[int]:
    """Return the states that are reached without consuming a character."""
    reached: set[int] = set()
    stack = list(start)
    while stack:
        number = stack.pop()
        if number in reached:
            continue
        reached.add(number)
        if number == len(states):
            return reached
        test, following, other = states[number]
        if callable(test) or (isinstance(test, str) and not _holds(test, text, place)):
            continue
        stack.append(following)
        if other >= 0:
            stack.append(other)
    return reached


def _holds(condition: str, text: str, place: int) -> bool:
    match condition:
        case "AT_BEGINNING" | "AT_BEGINNING_STRING":
            return place == 0
        case "AT_END":
            return place == len(text) or (place == len(text) - 1 and text[place] == "\n")
        case "AT_END_STRING":
            return place == len(text)
        case _:
            is_word = _CATEGORIES["CATEGORY_WORD"]
            before = place > 0 and is_word(text[place - 1])
            after = place < len(text) and is_word(text[place])
            return (before != after) == (condition == "AT_BOUNDARY")


def _compiled(pattern: str, effort: ValidationBudget) -> list[_State]:
    """Return the states of a pattern, from 0; the one after the last means a match."""
    if len(pattern) > _MAX_LENGTH:
        raise Undecided("the pattern is too long")
    effort.spend(len(pattern) * _PER_PARSED)
    try:
        parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Undecided("unsupported pattern") from error
    if parsed.state.flags & ~re.UNICODE:
        raise Undecided("flags")
    builder = _Builder(effort)
    try:
        builder.sequence(parsed)
    except RecursionError as error:
        raise Undecided("the pattern is nested too deeply") from error
    return builder.states


class _Builder:
    """Builds states; each part continues in the state that is added after it."""

    def __init__(self, effort: ValidationBudget) -> None:
        self.states: list[_State] = []
        self._effort = effort

    def sequence(self, parts: _Parsed) -> None:
        for code, argument in parts:
            self._part(str(code), argument)

    def _add(self, test: Predicate | str | None, following: int | None = None) -> int:
        number = len(self.states)
        if number >= MAX_STATES:
            raise Undecided("the pattern has too many states")
        self._effort.spend(_PER_PART)
        self.states.append((test, number + 1 if following is None else following, -1))
        return number

    def _fork(self, number: int, other: int) -> None:
        test, following, _ = self.states[number]
        self.states[number] = (test, following, other)

    def _part(self, code: str, argument: _Parsed) -> None:
        # Even without a new state: the contents of a repetition are visited again and again.
        self._effort.spend(_PER_PART * (len(argument) if code == "IN" else 1))
        match code:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                self._add(_predicate(code, argument))
            case "AT":
                self._add(_condition(str(argument)))
            case "SUBPATTERN":
                _, added, removed, inner = argument
                if added or removed:
                    raise Undecided("flags")
                self.sequence(inner)
            case "BRANCH":
                self._branch(argument[1])
            case "MAX_REPEAT" | "MIN_REPEAT":
                self._repeat(*argument)
            case _:
                raise Undecided(code)

    def _branch(self, ways: _Parsed) -> None:
        ends: list[int] = []
        for way in ways[:-1]:
            fork = self._add(None)
            self.sequence(way)
            ends.append(self._add(None))
            self._fork(fork, len(self.states))
        self.sequence(ways[-1])
        for end in ends:
            self.states[end] = (None, len(self.states), -1)

    def _repeat(self, least: int, most: int, inner: _Parsed) -> None:
        for _ in range(min(least, MAX_STATES)):
            self._count_empty(inner)
        if most == _codes.MAXREPEAT:
            fork = self._add(None)
            self.sequence(inner)
            self._add(None, following=fork)
            self._fork(fork, len(self.states))
            return
        forks = []
        for _ in range(min(most - least, MAX_STATES)):
            forks.append(self._add(None))
            self.sequence(inner)
        for fork in forks:
            self._fork(fork, len(self.states))

    def _count_empty(self, inner: _Parsed) -> None:
        """Add one of many repetitions, which costs a state even if it is empty."""
        self._add(None)
        self.sequence(inner)


def _condition(code: str) -> str:
    known = ("AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING")
    if code not in (*known, "AT_BOUNDARY", "AT_NON_BOUNDARY"):
        raise Undecided(code)
    return code


def _predicate(code: str, argument: _Parsed) -> Predicate:
    match code:
        case "LITERAL":
            return chr(argument).__eq__
        case "NOT_LITERAL":
            return chr(argument).__ne__
        case "ANY":
            return "\n".__ne__
        case _:
            return _set(argument)


def _set(items: _Parsed) -> Predicate:
    """Return a test of one character against a bracket expression, in nearly constant time."""
    is_negated = False
    literals: set[str] = set()
    ranges: list[tuple[str, str]] = []
    categories: dict[str, Predicate] = {}
    for code, argument in items:
        match str(code):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                literals.add(chr(argument))
            case "RANGE":
                ranges.append((chr(argument[0]), chr(argument[1])))
            case "CATEGORY":
                categories[str(argument)] = _category(str(argument))
            case other:
                raise Undecided(other)
    lows, highs = _joined(ranges)
    tests = tuple(categories.values())

    def holds(char: str) -> bool:
        before = bisect_right(lows, char) - 1
        found = (
            char in literals
            or (before >= 0 and char <= highs[before])
            or any(test(char) for test in tests)
        )
        return found != is_negated

    return holds


def _joined(ranges: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return the first and last characters of ranges, sorted and merged."""
    lows: list[str] = []
    highs: list[str] = []
    for low, high in sorted(ranges):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    return lows, highs


def _category(name: str) -> Predicate:
    plain = name.replace("_NOT_", "_")
    if plain not in _CATEGORIES:
        raise Undecided(name)
    test = _CATEGORIES[plain]
    return test if plain == name else lambda char: not test(char)
