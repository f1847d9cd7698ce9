"""Answering the server: every question gets one answer, whatever becomes of its handler.

Handlers run beside the reader of the line. One that is missing, raises or makes no sense answers
with the harmless choice: no, nothing, or a failed tool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from treadle.client._compat.lenient import decode
from treadle.client._runtime import decisions
from treadle.client._runtime.callbacks import call
from treadle.client._runtime.dedup import RequestDeduplicator
from treadle.client._runtime.notifications import NotificationRouter
from treadle.client._runtime.turn_state import TurnState
from treadle.client.approvals import (
    ApprovalPolicy,
    CannotDecide,
    CommandApproval,
    FileChangeApproval,
)
from treadle.client.errors import ApprovalRequired, InputRequired
from treadle.client.events import AskResolved
from treadle.client.tools import ClientTools
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.envelope import Id
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol import server_requests as wire
from treadle.protocol.approval import (
    ApplyPatchApprovalParams,
    CommandExecutionRequestApprovalParams,
    ExecCommandApprovalParams,
    FileChangeRequestApprovalParams,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.item import FileUpdateChange
from treadle.protocol.method import Request
from treadle.protocol.tool import CurrentTimeReadResponse, DynamicToolCallParams
from treadle.support.concurrency.tasks import BackgroundTasks

Handler: TypeAlias = Callable[[JsonValue], object | Awaitable[object]]
Respond: TypeAlias = Callable[[object, JsonValue], msgspec.Struct]

logger = logging.getLogger(__name__)


class NoHandler(InvalidRequest):
    """Nobody here can answer this."""

    KIND = "noHandler"


class ServerRequestHandlers:
    """The handlers of one client, and the answers made of what they return."""

    def __init__(
        self,
        hub: NotificationRouter,
        tools: ClientTools,
        policy: ApprovalPolicy | None,
        tasks: BackgroundTasks,
    ) -> None:
        self._hub = hub
        self._tools = tools
        self._once = RequestDeduplicator(tasks, can_return=hub.can_return)
        self._handlers: dict[str, Handler] = {}
        self._running: dict[Id, asyncio.Task[Any]] = {}
        hub.on_resolved = self._withdraw
        if policy is not None:
            self.follow(policy)

    @property
    def can_approve(self) -> bool:
        """Whether somebody decides about commands or files."""
        kinds = (
            wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
            wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL,
        )
        return any(kind.method in self._handlers for kind in kinds)

    def follow(self, policy: ApprovalPolicy) -> None:
        """Let a policy decide all that it has a decision for."""
        handlers: Mapping[Request[Any, Any], Handler | None] = {
            wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL: policy.command,
            wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL: policy.file_change,
            wire.ITEM_PERMISSIONS_REQUEST_APPROVAL: policy.permissions,
            wire.ITEM_TOOL_REQUEST_USER_INPUT: policy.user_input,
            wire.MCP_SERVER_ELICITATION_REQUEST: policy.elicitation,
        }
        for method, handler in handlers.items():
            if handler is not None:
                self.handle(method, handler)

    def handle(self, method: Request[Any, Any], handler: Handler) -> None:
        """Let this handler answer a method from now on."""
        self._handlers[method.method] = handler

    def router(self) -> Router[None]:
        """What answers the server on a connection."""
        router: Router[None] = Router(wire.SERVER_REQUESTS)
        for method in wire.SERVER_REQUESTS.values():
            # Params are read here and not by the router, which would refuse what it does not know.
            raw = Request(method.method, msgspec.Raw, method.result)
            router.request(raw)(partial(self._answer, method))
        return router

    async def _answer(
        self, method: Request[Any, Any], context: Context[None], raw: msgspec.Raw
    ) -> msgspec.Struct:
        task = asyncio.current_task()
        id_ = context.answered_id
        if task is not None:
            self._running[id_] = task
        try:
            key = id_, method.method, sha256(raw).digest()
            return await self._once.do(key, context.connection, partial(self._do, method, raw))
        finally:
            if self._running.get(id_) is task:
                del self._running[id_]

    async def _do(self, method: Request[Any, Any], raw: msgspec.Raw) -> msgspec.Struct:
        params = decode(method.params_decoder, method.params, raw)
        key = getattr(params, "thread_id", None), getattr(params, "turn_id", None) or ""
        state = self._hub.turns.get(key)
        with _noted(state):
            if isinstance(params, DynamicToolCallParams):
                return await self._tools.call(params)
            return await self._decide(method, params, state)

    async def _decide(
        self,
        method: Request[Any, Any],
        params: JsonValue,
        state: TurnState | None,
    ) -> msgspec.Struct:
        kind = _SAME.get(method.method, method.method)
        respond = _RESPOND.get(method.method)
        handler = self._handlers.get(kind)
        if handler is None:
            return _answer_unasked(method, respond)
        question: object = params
        try:
            # What a server of another kind asks may make no sense.
            question = self._question(params)
            outcome = await call(handler, question)
            return respond(outcome, params) if respond else _plain(outcome, method)
        except CannotDecide:
            if state is not None:
                is_input = method is wire.ITEM_TOOL_REQUEST_USER_INPUT
                error = InputRequired if is_input else ApprovalRequired
                state.fail(error(state.result(), question))
            return _answer_cancelled(method, respond)
        except Exception as error:
            logger.exception("handler failed", extra={"method": method.method})
            self._hub.report(error)
            if respond is None:
                raise
            return respond(None, params)

    def _question(self, params: JsonValue) -> object:
        match params:
            case CommandExecutionRequestApprovalParams() | ExecCommandApprovalParams():
                return _command_approval(params)
            case FileChangeRequestApprovalParams() | ApplyPatchApprovalParams():
                edits = self._hub.edits(getattr(params, "item_id", ""))
                return _file_approval(params, edits)
            case _:
                return params

    def _withdraw(self, event: AskResolved) -> None:
        """Stop asking: somebody else has answered, or the turn moved on."""
        task = self._running.pop(event.request_id, None)
        if task is not None:
            task.cancel()
        self._once.give_up(event.request_id)


@contextmanager
def _noted(state: TurnState | None) -> Iterator[None]:
    """Let no clock of the turn run meanwhile."""
    if state is not None:
        state.open_asks += 1
    try:
        yield
    finally:
        if state is not None:
            state.open_asks -= 1
            state.heard_at = state.now()


def _command_approval(
    params: CommandExecutionRequestApprovalParams | ExecCommandApprovalParams,
) -> CommandApproval:
    if isinstance(params, CommandExecutionRequestApprovalParams):
        return CommandApproval(
            thread_id=params.thread_id,
            turn_id=params.turn_id,
            item_id=params.item_id,
            command=params.command,
            cwd=params.cwd,
            reason=params.reason,
            actions=params.command_actions or (),
            params=params,
        )
    return CommandApproval(
        thread_id=params.conversation_id,
        turn_id="",
        item_id=params.call_id,
        command=decisions.joined(params.command),
        cwd=params.cwd,
        reason=params.reason,
        actions=[decisions.action_of(part) for part in params.parsed_cmd],
        params=params,
    )


def _file_approval(
    params: FileChangeRequestApprovalParams | ApplyPatchApprovalParams,
    edits: Sequence[FileUpdateChange],
) -> FileChangeApproval:
    if isinstance(params, FileChangeRequestApprovalParams):
        thread_id, turn_id, item_id = params.thread_id, params.turn_id, params.item_id
    else:
        thread_id, turn_id, item_id = params.conversation_id, "", params.call_id
        edits = decisions.edits_of(params.file_changes)
    return FileChangeApproval(
        thread_id=thread_id,
        turn_id=turn_id,
        item_id=item_id,
        changes=edits,
        reason=params.reason,
        grant_root=params.grant_root,
        params=params,
    )


def _answer_unasked(method: Request[Any, Any], respond: Respond | None) -> msgspec.Struct:
    if method is wire.CURRENT_TIME_READ:
        return CurrentTimeReadResponse(int(time.time()))
    if respond is None:
        raise NoHandler(f"this client has no handler for {method.method}", method=method.method)
    logger.info("nobody to ask", extra={"method": method.method})
    return respond(None, None)


def _answer_cancelled(method: Request[Any, Any], respond: Respond | None) -> msgspec.Struct:
    if respond is None:
        raise NoHandler(f"{method.method} cannot be answered here", method=method.method)
    is_approval = method.method in _CANCELLABLE
    return respond("cancel" if is_approval else None, None)


def _plain(outcome: object, method: Request[Any, Any]) -> msgspec.Struct:
    if isinstance(outcome, msgspec.Struct):
        return outcome
    response: msgspec.Struct = msgspec.convert(outcome, method.result)
    return response


_SAME: Final = {
    wire.EXEC_COMMAND_APPROVAL.method: wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL.method,
    wire.APPLY_PATCH_APPROVAL.method: wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL.method,
}
_RESPOND: Final[dict[str, Respond]] = {
    wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL.method: decisions.on_command,
    wire.EXEC_COMMAND_APPROVAL.method: decisions.on_old_command,
    wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL.method: decisions.on_file_change,
    wire.APPLY_PATCH_APPROVAL.method: decisions.on_old_patch,
    wire.ITEM_PERMISSIONS_REQUEST_APPROVAL.method: decisions.on_permissions,
    wire.ITEM_TOOL_REQUEST_USER_INPUT.method: decisions.on_user_input,
    wire.MCP_SERVER_ELICITATION_REQUEST.method: decisions.on_elicitation,
}
_CANCELLABLE: Final = frozenset(
    {
        wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL.method,
        wire.EXEC_COMMAND_APPROVAL.method,
        wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL.method,
        wire.APPLY_PATCH_APPROVAL.method,
        wire.MCP_SERVER_ELICITATION_REQUEST.method,
    }
)
