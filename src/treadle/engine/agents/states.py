"""The state of a sub-agent, derived from its turns, and its form for the model."""

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
    """Return a state as the model reads it."""
    if state.status in ("completed", "errored"):
        return {state.status: state.message}
    return _WORDS.get(state.status, state.status)


def outcome(turn: ActiveTurn) -> CollabAgentState:
    """Return the state of an agent whose turn has just ended."""
    text = turn.last_message.text if turn.last_message is not None else None
    return _state(turn.state, text, turn.error)


def state_after(turns: Sequence[TurnSnapshot]) -> CollabAgentState:
    """Return the state of an agent with these turns."""
    if not turns:
        return INTERRUPTED  # its server died before the first turn started
    last = turns[-1]
    texts = [item.text for item in last.items if isinstance(item, AgentMessageThreadItem)]
    return _state(last.status, texts[-1] if texts else None, last.error)


def _state(status: str, text: str | None, error: TurnError | None) -> CollabAgentState:
    match status:
        case "completed":
            return CollabAgentState(status="completed", message=text)
        case "failed":
            return CollabAgentState(status="errored", message=error.message if error else None)
        case "interrupted":
            return INTERRUPTED
        case _:
            return RUNNING
