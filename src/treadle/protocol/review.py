"""Code review turns."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, Value
from treadle.protocol.turn import Turn

ReviewDelivery = Literal["inline", "detached"]
"""In the thread itself, or in a new one forked from it; the latter is deprecated."""


class BaseBranchReviewTarget(Value, tag="baseBranch", frozen=True):
    """What the current branch changed since it left another one."""

    branch: str


class CommitReviewTarget(Value, tag="commit", frozen=True):
    """What a single commit changed; the title only serves for display."""

    sha: str
    title: str | None = None


class CustomReviewTarget(Value, tag="custom", frozen=True):
    """Whatever the instructions, written in free text, say."""

    instructions: str


class UncommittedChangesReviewTarget(Value, tag="uncommittedChanges", frozen=True):
    """All that differs from the last commit, files not yet tracked included."""


ReviewTarget = (
    UncommittedChangesReviewTarget
    | BaseBranchReviewTarget
    | CommitReviewTarget
    | CustomReviewTarget
)


class ReviewStartParams(Params, frozen=True):
    """Let the reviewer read code, as a turn of the thread or in a thread of its own."""

    target: ReviewTarget
    thread_id: str
    delivery: ReviewDelivery | None = None


class ReviewStartResponse(Value, frozen=True):
    """The review's turn, and the thread it runs in: the given one unless detached."""

    review_thread_id: str
    turn: Turn
