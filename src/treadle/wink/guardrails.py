"""The check of a prompt's completion."""

from __future__ import annotations

import contextlib

from weakincentives import BudgetExceededError, BudgetTracker
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import TaskCompletionContext

from treadle.wink.context import EvaluationContext


def missing_work(
    context: EvaluationContext, cwd: str, tracker: BudgetTracker | None, text: str
) -> str | None:
    """Return the checker's feedback for the next turn; `None` if done or out of budget."""
    checker = context.prompt.task_completion_checker
    if checker is None:
        return None
    if tracker is not None:
        try:
            tracker.check()
        except BudgetExceededError:
            return None
    check_context = TaskCompletionContext(
        session=context.session,
        tentative_output=text,
        filesystem=_filesystem(context, cwd),
        adapter=context.adapter,
        stop_reason="completed",
    )
    verdict = checker.check(check_context)
    return None if verdict.complete else verdict.feedback or None


def _filesystem(context: EvaluationContext, cwd: str) -> Filesystem:
    # A resource that is created on demand is not available outside its context.
    with contextlib.suppress(RuntimeError):
        bound: Filesystem | None = context.prompt.resources.get_optional(Filesystem)
        if bound is not None:
            return bound
    return HostFilesystem(_root=cwd)
