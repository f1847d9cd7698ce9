"""What came of a turn or a review."""

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
    """A turn that is over: its items, the agent's last word, the edits and what it cost."""

    turn: Turn
    items: list[Item] = field(default_factory=list)
    agent_message: str = ""
    diff: str | None = None
    usage: ThreadTokenUsage | None = None
    plan: list[TurnPlanStep] = field(default_factory=list)
    output: T
    """The last word as the type that was asked for; `None` if none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewResult:
    """A review that is over, and what it says."""

    turn: Turn
    review_text: str
    items: list[Item] = field(default_factory=list)


def last_word(items: Iterable[Item]) -> str:
    """The final answer, else the last message of no phase; a commentary is neither."""
    final = plain = None
    for item in items:
        if isinstance(item, AgentMessageThreadItem):
            if item.phase == "final_answer":
                final = item.text
            elif item.phase is None:
                plain = item.text
    return final if final is not None else plain or ""


def review_of(result: TurnResult[None]) -> ReviewResult:
    """Read a turn as the review it was."""
    texts = [item.review for item in result.items if isinstance(item, ExitedReviewModeThreadItem)]
    text = texts[-1] if texts else result.agent_message
    return ReviewResult(turn=result.turn, review_text=text, items=result.items)
