"""Lines are found where they stand, also in files that repeat themselves."""

from __future__ import annotations

import random

import pytest

from treadle.engine.patch.effort import MAX_STEPS, Abandoned, Effort
from treadle.engine.patch.search import LineFinder
from treadle.engine.patch.syntax import PatchError


def first_place(lines: list[str], wanted: list[str]) -> int | None:
    places = range(len(lines) - len(wanted) + 1)
    return next((at for at in places if lines[at : at + len(wanted)] == wanted), None)


def test_the_first_match_is_found() -> None:
    generator = random.Random(7)  # noqa: S311 - the same lines in every run
    for _ in range(2000):
        lines = generator.choices("ab", k=generator.randrange(1, 20))
        wanted = generator.choices("ab", k=generator.randrange(1, 6))
        assert LineFinder(lines).find(wanted) == first_place(lines, wanted)


class CountedEffort(Effort):
    """Keeps how many steps a search took."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def add_steps(self, count: int) -> None:
        super().add_steps(count)
        self.steps += count


@pytest.mark.parametrize(
    ("lines", "wanted", "place"),
    [
        (["x"] * 100_000, ["x"] * 50_000 + ["y"], None),
        ([*["x"] * 100_000, "y"], ["x"] * 50_000 + ["y"], 50_000),
        (["a", "b"] * 50_000, ["a", "b"] * 20_000 + ["a", "a"], None),
        (["x"] * 100_000 + ["y "] + ["x"] * 10, ["x", "x", "y"], 99_998),
    ],
    ids=["nearly", "at the end", "two by two", "in a looser view"],
)
def test_a_search_takes_linear_time(lines: list[str], wanted: list[str], place: int | None) -> None:
    effort = CountedEffort()

    assert LineFinder(lines, effort).find(wanted) == place
    assert effort.steps < 12 * len(lines)


def test_all_searches_of_one_patch_share_a_limit() -> None:
    haystack = LineFinder(["x"] * 100_000 + ["y "])

    def search_again_and_again() -> None:
        for _ in range(1000):
            haystack.find(["x", "x", "y"])

    with pytest.raises(PatchError, match=f"more than {MAX_STEPS} comparisons of lines"):
        search_again_and_again()


def test_a_search_ends_when_its_caller_is_cancelled() -> None:
    effort = Effort()
    effort.abandon()
    with pytest.raises(Abandoned):
        LineFinder(["x"], effort).find(["x"])
