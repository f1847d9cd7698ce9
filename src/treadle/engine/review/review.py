"""Review turns: a side conversation examines code, and the thread keeps only its report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.accounting.budget import BudgetExceeded
from treadle.engine.conversation.input import message
from treadle.engine.conversation.items import text_of
from treadle.engine.conversation.side import SideConversation
from treadle.engine.review.findings import read_review
from treadle.engine.review.target import ReviewTask
from treadle.engine.turn import ActiveTurn, PendingInput
from treadle.model.base import ModelError, ModelItem
from treadle.protocol.input import TextUserInput
from treadle.protocol.item import (
    AgentMessageThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

TOOLS: Final = frozenset(
    {"exec_command", "write_stdin", "shell", "shell_command", "view_image", "update_plan"}
)
"""The tools of a reviewer: it reads and runs commands, but does not edit."""

INTERRUPTED: Final = "The review was interrupted before the reviewer had finished."

# In the prompt instead of a response format: with one, some servers make no tool calls.
INSTRUCTIONS: Final = """\
You review changes to a colleague's code. Report problems but do not fix them: change no file and \
commit nothing.

How to work:
- Read the whole change first, then as much of the surrounding code as you need to judge it. Run \
commands that provide evidence; run tests if they are quick.
- Report what the author would want to fix: defects that this change introduces, that \
demonstrably occur, and that matter. Do not report earlier defects, matters of taste, or guesses \
about what the author intended.
- For each finding, state when it occurs and what its effect is, in one short paragraph, in a calm \
and helpful tone. Name the smallest range of lines that shows it; it must be within the change.
- Report all such findings, the most important first. If there are none, say so: an empty list is \
a good answer.

Your last message is this JSON object, with nothing before or after it and no code fence:
{
  "findings": [
    {
      "title": "<what to do, at most 80 characters>",
      "body": "<why, in Markdown>",
      "confidence_score": <0.0 to 1.0: how sure you are>,
      "priority": <0: stop everything, 1: fix next, 2: fix some day, 3: nice to have>,
      "code_location": {
        "absolute_file_path": "<path>",
        "line_range": {"start": <first line>, "end": <last line>}
      }
    }
  ],
  "overall_correctness": "patch is correct" | "patch is incorrect",
  "overall_explanation": "<one to three sentences>",
  "overall_confidence_score": <0.0 to 1.0>
}
"""


def begin_review(thread: LoadedThread, task: ReviewTask, *, model: str | None = None) -> ActiveTurn:
    """Accept a review; `LoadedThread.start_turn` starts it.

    Raises:
        InvalidInput: a turn is active.
    """
    turn = thread.begin_other("review")
    turn.side = SideConversation("review", task.hint, INSTRUCTIONS, thread.tools.only(TOOLS))
    turn.pending_input = [
        PendingInput([TextUserInput(task.prompt)], [message("user", task.prompt)])
    ]
    # A reviewer cannot ask for approval: what the sandbox denies stays denied. If every command
    # needs approval, so do those of a reviewer.
    is_strict = thread.settings.approval_policy == "untrusted"
    turn.adjust(model=model, approval_policy=None if is_strict else "never")
    return turn


def review_snapshot(turn: ActiveTurn, task: ReviewTask) -> TurnSnapshot:
    """Return the turn of a review as clients see it, with the task as its message."""
    label = UserMessageThreadItem(content=[TextUserInput(task.hint)], id=turn.id)
    return msgspec.structs.replace(turn.snapshot(), items=[label])


async def conduct(
    thread: LoadedThread, turn: ActiveTurn, request_response: Callable[[], Awaitable[bool]]
) -> None:
    """Run the reviewer; clients always receive the end of review mode.

    `request_response` sends one request to the model, and returns whether another is needed.
    """
    about = turn.side.about if turn.side is not None else ""
    turn.complete_item(EnteredReviewModeThreadItem(uuid7(), about))
    context = thread.context
    await context.read_folder()
    context.remember(turn, *context.context_items())
    for pending in turn.pending_input:
        context.add_input(turn, pending)
    turn.pending_input = []
    error: str | None = "The review failed."
    try:
        while await request_response():
            pass
        _conclude(thread, turn, about, read_review(_last_message(thread, turn)).text())
        error = None
    except asyncio.CancelledError:
        _conclude(thread, turn, about, INTERRUPTED)
        error = None
        raise
    except (ModelError, BudgetExceeded) as failure:
        error = f"The review failed: {failure}"
        raise
    finally:
        if error is not None:
            turn.complete_item(ExitedReviewModeThreadItem(uuid7(), error))


def _conclude(thread: LoadedThread, turn: ActiveTurn, about: str, text: str) -> None:
    """Publish the report, and add it to the thread's history as a message of the model."""
    turn.complete_item(ExitedReviewModeThreadItem(uuid7(), text))
    note = message(
        "user",
        f"<review>\nThe user had another agent review this: {about}\nThe user was shown its "
        "report, which follows as the next message, and may ask for some of it to be acted on.\n"
        "</review>",
    )
    part = {"type": "output_text", "text": text}
    answer: ModelItem = {"type": "message", "role": "assistant", "content": [part]}
    records = thread.context.history.take(note, answer)
    turn.complete_item(AgentMessageThreadItem(id=uuid7(), text=text), records)


def _last_message(thread: LoadedThread, turn: ActiveTurn) -> str:
    items = reversed(thread.context.history_of(turn).items)
    messages = (item for item in items if item.get("role") == "assistant")
    return text_of(next(messages, {}))
