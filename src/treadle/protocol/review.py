"""Code review turns."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, Value
from treadle.protocol.turn import Turn

ReviewDelivery = Literal["inline", "detached"]
"""In the thread itself, or in a new one forked from it; `detached` is deprecated."""


class BaseBranchReviewTarget(Value, tag="baseBranch", frozen=True):
    """The changes of the current branch since it diverged from another one."""

    branch: str


class CommitReviewTarget(Value, tag="commit", frozen=True):
    """The changes of one commit; the title is for display only."""

    sha: str
    title: str | None = None


class CustomReviewTarget(Value, tag="custom", frozen=True):
    """A target described by free-form instructions."""

    instructions: str


class UncommittedChangesReviewTarget(Value, tag="uncommittedChanges", frozen=True):
    """All changes since the last commit, including untracked files."""


ReviewTarget = (
    UncommittedChangesReviewTarget
    | BaseBranchReviewTarget
    | CommitReviewTarget
    | CustomReviewTarget
)


class ReviewStartParams(Params, frozen=True):
    """Start a code review, as a turn of the thread or in a separate thread."""

    target: ReviewTarget
    thread_id: str
    delivery: ReviewDelivery | None = None


class ReviewStartResponse(Value, frozen=True):
    """The review's turn and its thread: the given one unless detached."""

    review_thread_id: str
    turn: Turn
