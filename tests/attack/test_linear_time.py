"""What a stranger, a client or a model sends is looked at a bounded number of times.

No test here takes the time: each counts the steps of the work, or sees that it ends by its budget.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import pytest

from treadle.support.json_text import MAX_CONTAINERS, MAX_NESTING, is_nested_deeper

T = TypeVar("T")

# Each look at a part of 64 KiB takes some ten calls.
MAX_LOOKS = 60


def counted(work: Callable[[], T]) -> tuple[T, int]:
    """Do some work; returns its result and how many functions of the interpreter it called."""
    calls = 0

    def count(_frame: FrameType, event: str, _function: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        return work(), calls
    finally:
        sys.setprofile(None)


# -- nesting


@pytest.mark.parametrize(
    ("document", "is_deeper"),
    [
        (b"[" * MAX_CONTAINERS + b"]" * MAX_CONTAINERS, True),
        (b"[" * 31_000 + b"]" * 31_000, True),
        ((b"[" * 100 + b"]" * 100) * 1000, False),
        ((b"[" * MAX_NESTING + b"]" * MAX_NESTING) * 700, False),
    ],
)
def test_a_document_of_brackets_is_looked_at_a_few_times_however_deep_it_is(
    document: bytes, is_deeper: bool
) -> None:
    """To remove level after level took a second for each megabyte, on the event loop."""
    found, calls = counted(lambda: is_nested_deeper(document))

    assert found == is_deeper
    assert calls < MAX_LOOKS


@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 32_767, 32_768, 40_000])
@pytest.mark.parametrize("depth", [MAX_NESTING, MAX_NESTING + 1])
def test_the_nesting_is_exact_wherever_the_deepest_place_is(before: int, depth: int) -> None:
    document = b"[" + b"[]," * before + b"[" * (depth - 1) + b"]" * depth
    assert is_nested_deeper(document) == (depth > MAX_NESTING)
