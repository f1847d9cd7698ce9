"""How an agent that works for another one is doing, by its turns and in words for the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treadle.protocol.base import JsonValue
from treadle.protocol.error import TurnError
from treadle.protocol.item import AgentMessageThreadItem, CollabAgentState

if TYPE_CHECKING:
    from treadle.engine.turn import ActiveTurn
    from treadle.protocol.turn import Turn as TurnSnapshot

PENDING: Final = CollabAgentState(status="pendingInit")
RUNNING: Final = CollabAgentState(status="running")
INTERRUPTED: Final = CollabAgentState(status="interrupted")
SHUTDOWN: Final = CollabAgentState(status="shutdown")
NOT_FOUND: Final = CollabAgentState(status="notFound")
_WORDS: Final = {"pendingInit": "pending_init", "notFound": "not_found"}


def word_for(state: CollabAgentState) -> JsonValue:
    """A state as the model reads it."""
    if state.status in ("completed", "errored"):
        return {state.status: state.message}
    return _WORDS.get(state.status, state.status)


def outcome(turn: ActiveTurn) -> CollabAgentState:
    """How an agent is doing whose turn has just ended."""
    said = turn.last_message.text if turn.last_message is not None else None
    return _state(turn.state, said, turn.error)


def state_after(turns: Sequence[TurnSnapshot]) -> CollabAgentState:
    """How an agent is doing that has had these turns."""
    if not turns:
        return INTERRUPTED  # it was given something, and its server died before it could begin
    last = turns[-1]
    said = [item.text for item in last.items if isinstance(item, AgentMessageThreadItem)]
    return _state(last.status, said[-1] if said else None, last.error)


def _state(status: str, said: str | None, error: TurnError | None) -> CollabAgentState:
    match status:
        case "completed":
            return CollabAgentState(status="completed", message=said)
        case "failed":
            return CollabAgentState(status="errored", message=error.message if error else None)
        case "interrupted":
            return INTERRUPTED
        case _:
            return RUNNING
