"""Ends turns: whatever fails meanwhile, clients get exactly one terminal event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from treadle.engine.conversation import instructions
from treadle.engine.conversation.history import open_calls
from treadle.engine.conversation.input import message
from treadle.engine.conversation.items import ItemStream
from treadle.engine.read_states import mark_unread
from treadle.engine.step_logs import log_end
from treadle.engine.tools.registry import output_item, read_call
from treadle.protocol import notifications as n
from treadle.protocol.error import ErrorNotification, TurnError
from treadle.protocol.status import IdleThreadStatus, SystemErrorThreadStatus

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn, EndStep

logger = logging.getLogger(__name__)

ABORTED: Final = "aborted by user"
"""The output of a call that the user interrupted."""


def end_turn(
    thread: LoadedThread, turn: ActiveTurn, step: EndStep, error: TurnError | None
) -> None:
    """End a turn and make the thread ready for the next one.

    A turn that can no longer be stored ends as failed, whatever `step` says.
    """
    if turn.is_suspended:
        turn.ended.set()
        thread.state.set_turn(None)
        return
    turn.is_ending = True
    turn.run_actions("at_end")
    if turn.failure is not None:
        step, error = "fail", turn.failure
    if step != "complete":
        _attempt(turn, lambda: _settle_calls(thread, turn, step))
    _attempt(turn, lambda: mark_unread(thread.state, turn))
    if step == "complete":
        _attempt(turn, lambda: thread.state.set_status(IdleThreadStatus()))
    if turn.failure is not None:
        step, error = "fail", turn.failure
    _attempt(turn, lambda: _publish_cause(thread, turn, error))
    try:
        turn.end(step, error)
    finally:
        log_end(turn, thread.settings)
        # In all cases: a thread that stays busy could never be used again.
        turn.ended.set()
        turn.run_actions("after_end")
        thread.turn_ended(turn)


def take_input(thread: LoadedThread, turn: ActiveTurn) -> None:
    """Add pending input to the history: at the start, between two responses, and at the end."""
    thread.context.flush_notes()
    pending, turn.pending_input = turn.pending_input, []
    for each in pending:
        if each.content and thread.hooks.has("userPromptSubmit"):
            # The turn ended before the hooks could check it.
            thread.context.discard(each)
            thread.hooks.warn("input was dropped: the turn ended before hooks could check it")
        else:
            thread.context.add_input(turn, each)


def _attempt(turn: ActiveTurn, action: Callable[[], None]) -> None:
    try:
        action()
    except Exception:
        # Cleanup: clients wait for the terminal event, which comes next.
        logger.exception("could not end turn cleanly", extra={"turn": turn.id})


def _publish_cause(thread: LoadedThread, turn: ActiveTurn, error: TurnError | None) -> None:
    if error is None:
        thread.state.set_status(IdleThreadStatus())
        return
    thread.state.set_status(SystemErrorThreadStatus())
    params = ErrorNotification(error, thread.id, turn.id, will_retry=False)
    turn.log.publish(n.ERROR, params)


def _settle_calls(thread: LoadedThread, turn: ActiveTurn, step: EndStep) -> None:
    """Complete open items, answer open calls, and add the user's pending input."""
    ItemStream(turn).abandon()
    text = ABORTED if step == "interrupt" else "not executed: the turn failed"
    calls = [read_call(item) for item in open_calls(thread.context.history_of(turn).items)]
    thread.context.remember(turn, *(output_item(call, text) for call in calls if call is not None))
    take_input(thread, turn)
    if step == "interrupt":
        thread.context.remember(turn, message("user", instructions.INTERRUPTED))
