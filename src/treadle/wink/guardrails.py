"""Whether a prompt's task is done, by the judgement of its completion checker."""

from __future__ import annotations

import contextlib

from weakincentives import BudgetExceededError, BudgetTracker
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import TaskCompletionContext

from treadle.wink.context import EvaluationContext


def unfinished(
    scene: EvaluationContext, cwd: str, tracker: BudgetTracker | None, text: str
) -> str | None:
    """What is still to be done, for the next turn; `None` if nothing is, or nothing can be."""
    checker = scene.prompt.task_completion_checker
    if checker is None:
        return None
    if tracker is not None:
        try:
            tracker.check()
        except BudgetExceededError:
            return None
    context = TaskCompletionContext(
        session=scene.session,
        tentative_output=text,
        filesystem=_filesystem(scene, cwd),
        adapter=scene.adapter,
        stop_reason="completed",
    )
    verdict = checker.check(context)
    return None if verdict.complete else verdict.feedback or None


def _filesystem(scene: EvaluationContext, cwd: str) -> Filesystem:
    # A resource that is made on demand cannot be had outside its context.
    with contextlib.suppress(RuntimeError):
        bound: Filesystem | None = scene.prompt.resources.get_optional(Filesystem)
        if bound is not None:
            return bound
    return HostFilesystem(_root=cwd)
