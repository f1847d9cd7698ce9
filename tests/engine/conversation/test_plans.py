"""Plans inside messages: found however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.engine.conversation.plans.proposed import PlanSplitter, split


@pytest.mark.parametrize(
    ("text", "said", "plan"),
    [
        ("no plan", "no plan", None),
        ("Intro\n<proposed_plan>\n- a\n</proposed_plan>\nEnd", "Intro\nEnd", "- a\n"),
        ("<proposed_plan>\n</proposed_plan>", "", ""),
        ("<proposed_plan>\nnever closed", "", "never closed"),
        ("a <proposed_plan", "a <proposed_plan", None),
        ("</proposed_plan> alone", "</proposed_plan> alone", None),
    ],
)
def test_a_message_is_separated_from_its_plan(text: str, said: str, plan: str | None) -> None:
    assert split(text) == (said, plan)


@given(
    st.lists(st.sampled_from(["<proposed_plan>", "</proposed_plan>", "\n", "x", "<", "plan>"])),
    st.data(),
)
def test_any_split_of_the_text_gives_the_same_parts(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    splitter = PlanSplitter()
    parts = [part for piece in pieces for part in splitter.feed(piece)] + splitter.finish()

    said, plan = split(text)
    assert "".join(part for is_plan, part in parts if not is_plan) == said
    assert "".join(part for is_plan, part in parts if is_plan) == (plan or "")
