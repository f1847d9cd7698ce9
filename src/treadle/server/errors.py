"""Turns the words of the layers below into answers. Existing clients know the texts."""

from __future__ import annotations

import msgspec

from treadle.engine.errors import (
    EngineError,
    InvalidInput,
    MessageConflict,
    NoActiveTurn,
    ThreadNotLoaded,
    TurnNotFound,
    TurnNotSteerable,
    WrongTurn,
)
from treadle.protocol.error import ActiveTurnNotSteerable, CodexErrorInfoDetail, TurnError
from treadle.rpc.errors import InternalError, InvalidRequest, RpcError
from treadle.server.config_file import ConfigError
from treadle.store.journal import (
    BadCursor,
    StoreError,
    ThreadCorrupt,
    ThreadLocked,
    ThreadNotFound,
)

_KINDS: dict[type[Exception], str] = {
    ThreadNotLoaded: "threadNotFound",
    NoActiveTurn: "noActiveTurn",
    WrongTurn: "wrongTurn",
    MessageConflict: "messageConflict",
    InvalidInput: "invalidParams",
    TurnNotFound: "turnNotFound",
    ThreadNotFound: "threadNotFound",
    ThreadLocked: "threadLocked",
    BadCursor: "invalidCursor",
    ConfigError: "invalidConfig",
}


def translate(error: Exception) -> RpcError | None:
    """The answer for an error, `None` if it is our own fault."""
    match error:
        case TurnNotSteerable():
            return _not_steerable(error)
        case ThreadNotFound():
            return InvalidRequest(
                f"no rollout found for thread id {error.thread}", kind="threadNotFound"
            )
        case ThreadCorrupt():
            return InternalError(str(error), kind="threadCorrupt", path=error.path)
        case EngineError() | StoreError() | ConfigError():
            return InvalidRequest(str(error), kind=_KINDS.get(type(error), "invalidRequest"))
        case OSError():
            return InternalError(f"{error.strerror or error}", kind="io")
        case _:
            return None


def _not_steerable(error: TurnNotSteerable) -> RpcError:
    info = CodexErrorInfoDetail(active_turn_not_steerable=ActiveTurnNotSteerable(error.kind))
    data = msgspec.to_builtins(TurnError(str(error), codex_error_info=info))
    answer = InvalidRequest(str(error))
    answer.data = {**data, "kind": "activeTurnNotSteerable"}
    return answer
