"""Errors of the engine.

EngineError
├── ThreadNotLoaded      the thread is not in memory
├── NoActiveTurn         no turn to steer or interrupt
├── WrongTurn            the active turn is not the expected one
├── TurnNotSteerable     the active turn does not accept input
├── MessageConflict      the message id was used before with other content
├── InvalidInput         the input is invalid; names the field
├── TooManyThreads       no further thread may be loaded
└── TurnNotFound         the thread has no such turn
"""

from __future__ import annotations

from typing import Literal


class EngineError(Exception):
    """The engine cannot fulfil the request; the message gives the reason."""


class ThreadNotLoaded(EngineError):
    """The thread is not in memory."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread not found: {thread_id}")
        self.thread_id = thread_id


class NoActiveTurn(EngineError):
    """There is no turn to steer or interrupt."""

    def __init__(self, purpose: Literal["steer", "interrupt"]) -> None:
        super().__init__(f"no active turn to {purpose}")


class WrongTurn(EngineError):
    """The active turn is not the expected one."""

    def __init__(self, purpose: Literal["steer", "interrupt"], expected: str, found: str) -> None:
        # Upstream quotes the ids only for `steer`.
        mark = "`" if purpose == "steer" else ""
        super().__init__(
            f"expected active turn id {mark}{expected}{mark} but found {mark}{found}{mark}"
        )
        self.expected = expected
        self.found = found


class TurnNotSteerable(EngineError):
    """The active turn does not accept input."""

    def __init__(self, kind: Literal["review", "compact"]) -> None:
        super().__init__(f"cannot steer a {kind} turn")
        self.kind = kind


class MessageConflict(EngineError):
    """The message id was used before with other content."""

    def __init__(self, client_id: str) -> None:
        super().__init__(f"message id {client_id!r} was used before with other content")
        self.client_id = client_id


class InvalidInput(EngineError):
    """The input is invalid; `path` names the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


class TurnNotFound(EngineError):
    """The thread has no such turn."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn not found: {turn_id}")
        self.turn_id = turn_id


class TurnCancelled(Exception):
    """The user denied an action and cancelled the whole turn."""


class TooManyThreads(EngineError):
    """The threads in memory take their share of descriptors."""

    def __init__(self, limit: int) -> None:
        message = f"too many threads are loaded: at most {limit}; unsubscribe from others first"
        super().__init__(message)
