"""Why a request cannot be done.

EngineError
├── ThreadNotLoaded      no such thread in memory
├── NoActiveTurn         nothing runs that could be steered or interrupted
├── WrongTurn            another turn runs than the one expected
├── TurnNotSteerable     what runs takes no input
├── MessageConflict      a message id was used before, with other content
├── InvalidInput         the input cannot be used; names the field
└── TurnNotFound         no such turn in the thread
"""

from __future__ import annotations

from typing import Literal


class EngineError(Exception):
    """The request cannot be done; the message says why."""


class ThreadNotLoaded(EngineError):
    """No such thread in memory."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread not found: {thread_id}")
        self.thread_id = thread_id


class NoActiveTurn(EngineError):
    """Nothing runs that could be steered or interrupted."""

    def __init__(self, purpose: Literal["steer", "interrupt"]) -> None:
        super().__init__(f"no active turn to {purpose}")


class WrongTurn(EngineError):
    """Another turn runs than the one expected."""

    def __init__(self, purpose: Literal["steer", "interrupt"], expected: str, found: str) -> None:
        # Upstream quotes the ids in one of the two only.
        mark = "`" if purpose == "steer" else ""
        super().__init__(
            f"expected active turn id {mark}{expected}{mark} but found {mark}{found}{mark}"
        )
        self.expected = expected
        self.found = found


class TurnNotSteerable(EngineError):
    """What runs takes no input."""

    def __init__(self, kind: Literal["review", "compact"]) -> None:
        super().__init__(f"cannot steer a {kind} turn")
        self.kind = kind


class MessageConflict(EngineError):
    """A message id was used before, with other content."""

    def __init__(self, client_id: str) -> None:
        super().__init__(f"message id {client_id!r} was used before with other content")
        self.client_id = client_id


class InvalidInput(EngineError):
    """The input cannot be used; `path` names the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


class TurnNotFound(EngineError):
    """No such turn in the thread."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn not found: {turn_id}")
        self.turn_id = turn_id


class TurnCancelled(Exception):
    """The user refused an action and wants the whole turn to stop."""
