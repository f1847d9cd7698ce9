"""Review turns: another agent reads the code, and the thread keeps only what it found."""

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
from treadle.engine.turn import ActiveTurn, Message
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
"""What a reviewer can use: it looks and runs, and leaves the repair to others."""

INTERRUPTED: Final = "The review was interrupted before the reviewer had finished."

# Written out here and not sent as a response format: with one, some servers make no tool calls.
INSTRUCTIONS: Final = """\
You review changes to code that a colleague made. You report; you do not repair: change no file \
and commit nothing.

How to work:
- Read the whole change first, then as much of the code around it as you need to judge it. Run \
commands that tell you something; run tests when they are quick.
- Report what the author would want to fix once told: faults that this change brings in, that can \
be shown to happen, and that matter. What was wrong before, matters of taste and guesses about \
what the author intended are no findings.
- Say for each finding under which circumstances it happens and what follows from it, in one short \
paragraph, in a calm and helpful tone. Name the smallest range of lines that shows it; it must \
lie within the change.
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


def begin_review(
    thread: LoadedThread, task: ReviewTask, *, model: str | None = None
) -> tuple[TurnSnapshot, Callable[[], None]]:
    """Accept a review; gives its turn, and what starts it once the client has had its answer.

    Raises:
        InvalidInput: a turn is running.
    """
    turn, start = thread.begin_other("review")
    turn.aside = SideConversation("review", task.hint, INSTRUCTIONS, thread.tools.only(TOOLS))
    turn.waiting = [Message([TextUserInput(task.prompt)], [message("user", task.prompt)])]
    # Nobody follows a reviewer step by step: what the sandbox refuses stays refused. Where every
    # command needs approval, those of a reviewer do as well.
    is_strict = thread.settings.approval_policy == "untrusted"
    turn.adjust(model=model, approval_policy=None if is_strict else "never")
    label = UserMessageThreadItem(content=[TextUserInput(task.hint)], id=turn.id)
    return msgspec.structs.replace(turn.snapshot(), items=[label]), start


async def conduct(
    thread: LoadedThread, turn: ActiveTurn, ask: Callable[[], Awaitable[bool]]
) -> None:
    """Let the reviewer work; however it ends, clients hear that it is over.

    `ask` asks the model once, and says whether it has to be asked again.
    """
    about = turn.aside.about if turn.aside is not None else ""
    turn.complete_item(EnteredReviewModeThreadItem(uuid7(), about))
    await thread.look_around()
    thread.remember(turn, *thread.context_items())
    for said in turn.waiting:
        thread.hear(turn, said)
    turn.waiting = []
    fill = thread.usage.fill
    failed: str | None = "The review failed."
    try:
        while await ask():
            pass
        _conclude(thread, turn, about, read_review(_last_words(thread, turn)).text())
        failed = None
    except asyncio.CancelledError:
        _conclude(thread, turn, about, INTERRUPTED)
        failed = None
        raise
    except (ModelError, BudgetExceeded) as failure:
        failed = f"The review failed: {failure}"
        raise
    finally:
        # What the reviewer read takes no room in the thread's own context.
        thread.usage.fill = fill
        if failed is not None:
            turn.complete_item(ExitedReviewModeThreadItem(uuid7(), failed))


def _conclude(thread: LoadedThread, turn: ActiveTurn, about: str, text: str) -> None:
    """Tell what came of it; the thread's model learns of it as of a message of its own."""
    turn.complete_item(ExitedReviewModeThreadItem(uuid7(), text))
    note = message(
        "user",
        f"<review>\nThe user had another agent review this: {about}\nThe user was shown its "
        "report, which follows as the next message, and may ask for some of it to be acted on.\n"
        "</review>",
    )
    part = {"type": "output_text", "text": text}
    answer: ModelItem = {"type": "message", "role": "assistant", "content": [part]}
    records = thread.history.take(note, answer)
    turn.complete_item(AgentMessageThreadItem(id=uuid7(), text=text), records)


def _last_words(thread: LoadedThread, turn: ActiveTurn) -> str:
    items = reversed(thread.history_of(turn).items)
    messages = (item for item in items if item.get("role") == "assistant")
    return text_of(next(messages, {}))
