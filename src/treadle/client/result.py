"""Results of turns and reviews."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from treadle.client._compat.lenient import Item
from treadle.protocol.item import AgentMessageThreadItem, ExitedReviewModeThreadItem
from treadle.protocol.turn import Turn, TurnPlanStep
from treadle.protocol.usage import ThreadTokenUsage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult(Generic[T]):
    """The result of a turn: its items, the final answer, the file changes and the token usage."""

    turn: Turn
    items: list[Item] = field(default_factory=list)
    agent_message: str = ""
    diff: str | None = None
    usage: ThreadTokenUsage | None = None
    plan: list[TurnPlanStep] = field(default_factory=list)
    output: T
    """The final answer as a value of `output_type`; `None` without an `output_type`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewResult:
    """The result of a review."""

    turn: Turn
    review_text: str
    items: list[Item] = field(default_factory=list)


def final_answer(items: Iterable[Item]) -> str:
    """Return the text of the final answer, else of the last message without a phase."""
    final = plain = None
    for item in items:
        if isinstance(item, AgentMessageThreadItem):
            if item.phase == "final_answer":
                final = item.text
            elif item.phase is None:
                plain = item.text
    return final if final is not None else plain or ""


def review_of(result: TurnResult[None]) -> ReviewResult:
    """Convert the result of a review's turn."""
    texts = [item.review for item in result.items if isinstance(item, ExitedReviewModeThreadItem)]
    text = texts[-1] if texts else result.agent_message
    return ReviewResult(turn=result.turn, review_text=text, items=result.items)
