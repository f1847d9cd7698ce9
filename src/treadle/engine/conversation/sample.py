"""One question to a thread's model that becomes no part of the thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.engine.conversation.history import open_calls
from treadle.engine.conversation.input import message
from treadle.engine.conversation.items import text_of
from treadle.engine.conversation.request import request_of
from treadle.engine.tools.registry import output_item, read_call
from treadle.engine.turn import ActiveTurn
from treadle.model.base import Completed, ItemDone, ModelError, ModelItem, ResponseUsage
from treadle.model.retry import stream_with_retries
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

RUNNING: Final = "still running"
"""The output of a call that has not ended when the question is asked."""


class Sample(Struct, frozen=True):
    """The answer; without a text if the model called a tool instead."""

    response_id: str
    text: str | None
    usage: ResponseUsage | None


async def sample(thread: LoadedThread, prompt: str, *, effort: str | None = None) -> Sample:
    """Ask the model about the conversation so far; nothing is published or stored.

    The tokens count toward the budgets of the thread, and of its parents.

    Raises:
        BudgetExceeded: a budget is used up.
        ModelError: the request failed.
    """
    for meter in thread.usage.meters:
        meter.admit()
    turn = ActiveTurn(uuid7(), thread.id, thread.log, thread.services.clock, "regular")
    if effort is not None:
        turn.adjust(effort=effort)
    history = [*_answered(thread.context.history.items), message("user", prompt)]
    # The tools are the same as in a turn, so that the provider's cache of the prompt fits.
    request = replace(request_of(thread.state, turn, history, thread.tools), subagent="sample")
    model, policy = thread.state.model(turn)
    response_id, usage, text, has_calls = "", None, None, False
    if (reason := await thread.hooks.refresh()) is not None:
        raise ModelError(reason)
    stream = await thread.hooks.around(turn, stream_with_retries(model, request, policy=policy))
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, ItemDone):
                has_calls = has_calls or read_call(event.item) is not None
                if event.item.get("type") == "message":
                    text = text_of(event.item) or text
            elif isinstance(event, Completed):
                response_id, usage = event.response_id or turn.id, event.usage
    if usage is not None:
        for meter in thread.usage.meters:
            meter.charge(usage.total_tokens or usage.input_tokens + usage.output_tokens)
    return Sample(response_id, None if has_calls else text, usage)


def _answered(items: Sequence[ModelItem]) -> list[ModelItem]:
    """Return the items with an output for each call: providers refuse calls without one."""
    calls = [read_call(item) for item in open_calls(items)]
    return [*items, *(output_item(call, RUNNING) for call in calls if call is not None)]
