"""Lines are found where they stand, also in files that repeat themselves."""

from __future__ import annotations

import random

import pytest

from treadle.engine.patch import search
from treadle.engine.patch.search import Haystack


def first_place(lines: list[str], wanted: list[str]) -> int | None:
    places = range(len(lines) - len(wanted) + 1)
    return next((at for at in places if lines[at : at + len(wanted)] == wanted), None)


@pytest.mark.parametrize("effort", [0, 5, 10**6])
def test_the_first_place_is_found_with_care_or_without(
    monkeypatch: pytest.MonkeyPatch, effort: int
) -> None:
    monkeypatch.setattr(search, "_MAX_EFFORT", effort)
    generator = random.Random(7)  # noqa: S311 - the same lines in every run
    for _ in range(2000):
        lines = generator.choices("ab", k=generator.randrange(1, 20))
        wanted = generator.choices("ab", k=generator.randrange(1, 6))
        assert Haystack(lines).find(wanted) == first_place(lines, wanted)


@pytest.mark.timeout(20)
def test_a_file_of_one_line_a_hundred_thousand_times_is_searched_in_time() -> None:
    lines = ["x"] * 100_000
    assert Haystack(lines).find(["x"] * 50_000 + ["y"]) is None
    assert Haystack([*lines, "y"]).find(["x"] * 50_000 + ["y"]) == 50_000
