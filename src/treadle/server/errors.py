"""Translates errors of the layers below to JSON-RPC errors. Existing clients rely on the texts."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from treadle.config.file import ConfigError
from treadle.engine.errors import (
    EngineError,
    InvalidInput,
    MessageConflict,
    NoActiveTurn,
    ThreadNotLoaded,
    TooManyThreads,
    TurnNotFound,
    TurnNotSteerable,
    WrongTurn,
)
from treadle.jsonrpc.errors import InternalError, InvalidRequest, RpcError
from treadle.protocol.error import ActiveTurnNotSteerable, CodexErrorInfoDetail, TurnError
from treadle.store.journal import (
    BadCursor,
    StorageFailed,
    StoreError,
    ThreadCorrupt,
    ThreadLocked,
    ThreadNotFound,
    ThreadTooLarge,
)

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")

_KINDS: dict[type[Exception], str] = {
    NoActiveTurn: "noActiveTurn",
    WrongTurn: "wrongTurn",
    MessageConflict: "messageConflict",
    TooManyThreads: "tooManyThreads",
    TurnNotFound: "turnNotFound",
    BadCursor: "invalidCursor",
    ConfigError: "invalidConfig",
}


def translate(error: Exception) -> RpcError | None:
    """Return the JSON-RPC error for an exception, or `None` for an internal fault."""
    match error:
        case TurnNotSteerable():
            return _not_steerable(error)
        case ThreadNotFound():
            return unknown_thread("no rollout found for thread id", error.thread)
        case ThreadNotLoaded():
            return unknown_thread("thread not found", error.thread_id)
        case InvalidInput():
            return InvalidRequest(str(error), kind="invalidParams", path=error.path)
        case ThreadLocked() | StorageFailed() | ThreadTooLarge() | ThreadCorrupt():
            return _translate_store_error(error)
        case EngineError() | StoreError() | ConfigError():
            return InvalidRequest(str(error), kind=_KINDS.get(type(error), "invalidRequest"))
        case OSError():
            return InternalError(f"{error.strerror or error}", kind="io")
        case _:
            return None


def _translate_store_error(
    error: ThreadLocked | StorageFailed | ThreadTooLarge | ThreadCorrupt,
) -> RpcError:
    match error:
        case ThreadLocked():
            return InvalidRequest(str(error), kind="threadLocked", pid=error.pid, host=error.host)
        case StorageFailed():
            return InternalError(str(error), kind="io", errno=error.code, path=error.folder)
        case ThreadTooLarge(path=path, size=size, limit=limit):
            about = {"path": path, "size": size, "limit": limit}
            return InvalidRequest(str(error), kind="threadTooLarge", **about)
        case ThreadCorrupt():
            return InternalError(str(error), kind="threadCorrupt", path=error.path)


def check_uuid(thread_id: str, path: str) -> None:
    """Refuse an id that no thread can have.

    Raises:
        InvalidRequest: it is not a UUID.
    """
    if not _UUID.fullmatch(thread_id):
        message = f"invalid thread id: {thread_id[:200]!r} is not a UUID"
        raise InvalidRequest(message, kind="invalidParams", path=path)


def unknown_thread(phrase: str, thread: str) -> RpcError:
    """Return the error for a missing thread; `phrase` is the text that clients rely on."""
    if "/" in thread:
        return InvalidRequest(f"no rollout found at {thread}", kind="threadNotFound", path="path")
    if not _UUID.fullmatch(thread):
        message = f"invalid thread id: {thread!r} is not a UUID"
        return InvalidRequest(message, kind="invalidParams", path="threadId")
    # Upstream puts a colon after some of its phrases and not after others.
    mark = "" if phrase.endswith("id") else ":"
    return InvalidRequest(f"{phrase}{mark} {thread}", kind="threadNotFound")


def _not_steerable(error: TurnNotSteerable) -> RpcError:
    info = CodexErrorInfoDetail(active_turn_not_steerable=ActiveTurnNotSteerable(error.kind))
    data = msgspec.to_builtins(TurnError(str(error), codex_error_info=info))
    answer = InvalidRequest(str(error))
    answer.data = {**data, "kind": "activeTurnNotSteerable"}
    return answer
