"""Reading what a reviewer answers, and writing it for people (the texts are upstream's)."""

from __future__ import annotations

import json

import pytest

from treadle.engine.review.findings import NO_ANSWER, read_review
from treadle.protocol.base import JsonValue


def finding(title: str, **more: JsonValue) -> JsonValue:
    place = {"absolute_file_path": "/ws/a.txt", "line_range": {"start": 1, "end": 2}}
    about = {"title": title, "body": "Because.", "code_location": place}
    return about | {"confidence_score": 0.9, "priority": 1} | more


def review(*findings: JsonValue, explanation: JsonValue = "Looks fine.") -> str:
    return json.dumps(
        {
            "findings": list(findings),
            "overall_correctness": "patch is incorrect",
            "overall_explanation": explanation,
            "overall_confidence_score": 0.8,
        }
    )


def test_one_finding_is_shown_below_the_explanation() -> None:
    assert read_review(review(finding("Prefer X"))).text() == (
        "Looks fine.\n\nReview comment:\n\n- Prefer X — /ws/a.txt:1-2\n  Because."
    )


def test_several_findings_are_a_list() -> None:
    text = read_review(review(finding("One", body="a\n\nb"), finding("Two"))).text()
    assert text == (
        "Looks fine.\n\nFull review comments:\n\n"
        "- One — /ws/a.txt:1-2\n  a\n\n  b\n\n- Two — /ws/a.txt:1-2\n  Because."
    )


@pytest.mark.parametrize(
    "said",
    [
        review(),
        f"Here it is:\n```json\n{review()}\n```\nBye.",
        '{"overall_explanation": "Looks fine."}',
        "Looks fine.",
        '{"findings": "none", "overall_explanation": " Looks fine. "}',
        '{"findings": [5, {}, {"title": ""}], "overall_explanation": "Looks fine."}',
    ],
)
def test_an_answer_is_read_however_it_is_wrapped(said: str) -> None:
    assert read_review(said).text() == "Looks fine."


@pytest.mark.parametrize(
    ("place", "head"),
    [
        (None, "- T"),
        ("somewhere", "- T"),
        ({"absolute_file_path": "/a"}, "- T — /a"),
        ({"absolute_file_path": "/a", "line_range": {"start": 3}}, "- T — /a:3-3"),
        ({"path": "/a", "line_range": {"start": 3, "end": 4}}, "- T — /a:3-4"),
    ],
)
def test_a_finding_without_a_full_location_is_still_reported(place: JsonValue, head: str) -> None:
    said = review(finding("T", body="", code_location=place), explanation=None)
    assert read_review(said).text() == f"Review comment:\n\n{head}"


@pytest.mark.parametrize("said", ["", "  \n", "{}x"])
def test_a_missing_answer_is_reported(said: str) -> None:
    assert read_review(said).text() == (said.strip() or NO_ANSWER)
