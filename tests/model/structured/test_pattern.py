"""Patterns match as in the standard library, in a number of steps that grows with the text only."""

from __future__ import annotations

import random
import re

import pytest

from treadle.model.structured.effort import MAX_STEPS, SchemaTooComplex, ValidationBudget
from treadle.model.structured.pattern import Patterns, Undecided

PATTERNS = [
    "",
    "a",
    "^a$",
    "a|b|",
    "(ab)*c",
    "(a|b)+?c{2,3}",
    "[^a-c]b?",
    r"\d{2}-\d{2}",
    r"\w+@\w+\.\w{2,}",
    r"^\s*\S+\s*$",
    r"\bab\b",
    r"\Ba",
    r"^(?:a+)+$",
    "(a*)*b",
    "(a|a)*b",
    "((a?){3}){2}b",
    r"\Aab\Z",
    ".a.",
    "(?:a|)b",
    "a{0}b",
    "[]a]",
    r"[\W\d]",
    "[b-ca-bx-z1-2]c",
]


def matches(pattern: str, text: str) -> bool:
    return Patterns(ValidationBudget()).matches(pattern, text)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_the_standard_library(pattern: str) -> None:
    draw = random.Random(pattern)  # noqa: S311 - test data
    texts = ["", "a", "b", "ab", "\n", "a\n", "ab\n", "12-34", "x@y.zz", " ab "]
    texts += ["".join(draw.choices("abc1-@. \nü_", k=draw.randrange(12))) for _ in range(300)]
    for text in texts:
        assert matches(pattern, text) == bool(re.search(pattern, text)), text


def random_pattern(draw: random.Random, depth: int) -> str:
    if depth == 0:
        return draw.choice(["a", "b", ".", "[ab]", "[^b]", r"\w", "^", "$", r"\b"])
    inner = random_pattern(draw, depth - 1)
    other = random_pattern(draw, depth - 1)
    repeat = draw.choice(["*", "+", "?", "{2}", "{0,2}", "*?"])
    return draw.choice([f"{inner}{other}", f"(?:{inner}){repeat}", f"(?:{inner}|{other})"])


@pytest.mark.parametrize("seed", range(200))
def test_random_patterns_match_as_in_the_standard_library(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    pattern = random_pattern(draw, 4)
    for _ in range(30):
        text = "".join(draw.choices("ab \n", k=draw.randrange(8)))
        assert matches(pattern, text) == bool(re.search(pattern, text)), (pattern, text)


@pytest.mark.parametrize("pattern", [r"^(\w+)*$", "(a|aa)+$", "(a|a|a)*b", "^(([a-z])+.)+[A-Z]$"])
def test_patterns_that_backtrack_for_ever_elsewhere_are_decided(pattern: str) -> None:
    assert not matches(pattern, "a" * 2000 + "!" if "A-Z" not in pattern else "a" * 2000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(", "a"),
        ("(?=a)", "a"),
        (r"(a)\1", "aa"),
        ("(?i)a", "A"),
        ("(?i:a)", "A"),
        ("(?>a)", "a"),
        ("a{100000}", "a"),
        ("(" * 5000 + ")" * 5000, "a"),
        ("a" * 20_000, "a"),
    ],
    ids=[
        "syntax",
        "ahead",
        "group",
        "flag",
        "flags",
        "atomic",
        "many",
        "deep",
        "long",
    ],
)
def test_patterns_that_cannot_be_matched_safely_are_undecided(pattern: str, text: str) -> None:
    with pytest.raises(Undecided):
        matches(pattern, text)


def test_all_patterns_of_one_budget_share_its_steps() -> None:
    patterns = Patterns(ValidationBudget(2000))
    assert not patterns.matches("b", "a" * 200)

    with pytest.raises(SchemaTooComplex):
        patterns.matches("c", "a" * 200)


def test_a_pattern_is_compiled_once() -> None:
    patterns = Patterns(ValidationBudget(50_000))
    for _ in range(50):
        assert not patterns.matches("b" * 1000, "")
        with pytest.raises(Undecided):
            patterns.matches("(" * 1000, "")


def test_a_match_with_too_many_steps_is_abandoned() -> None:
    with pytest.raises(SchemaTooComplex):
        matches("(.*)(.*)(.*)(.*)x", "a" * MAX_STEPS)
