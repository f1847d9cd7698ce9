"""Handlers of server requests: each request receives exactly one answer.

Handlers run concurrently with the reader of the connection. If a handler is missing, raises or
returns an invalid value, the answer is the harmless one: decline, nothing, or a failed tool call.
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
from treadle.client.events import ServerRequestResolved
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
    """The client has no handler for this request."""

    KIND = "noHandler"


class ServerRequestHandlers:
    """The handlers of one client, and the conversion of their results to answers."""

    def __init__(
        self,
        notifications: NotificationRouter,
        tools: ClientTools,
        policy: ApprovalPolicy | None,
        tasks: BackgroundTasks,
    ) -> None:
        self._notifications = notifications
        self._tools = tools
        self._deduplicator = RequestDeduplicator(tasks, can_return=notifications.can_return)
        self._handlers: dict[str, Handler] = {}
        self._running: dict[Id, asyncio.Task[Any]] = {}
        if policy is not None:
            self.follow(policy)

    @property
    def can_approve(self) -> bool:
        """Whether there is a handler for command or file approvals."""
        kinds = (
            wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
            wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL,
        )
        return any(kind.method in self._handlers for kind in kinds)

    def follow(self, policy: ApprovalPolicy) -> None:
        """Register the handlers of a policy."""
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
        """Register the handler of a method."""
        self._handlers[method.method] = handler

    def router(self) -> Router[None]:
        """Return the router that answers server requests on a connection."""
        router: Router[None] = Router(wire.SERVER_REQUESTS)
        for method in wire.SERVER_REQUESTS.values():
            # Params are decoded here, because the router would reject unknown fields and values.
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
            return await self._deduplicator.do(
                key, context.connection, partial(self._do, method, raw)
            )
        finally:
            if self._running.get(id_) is task:
                del self._running[id_]

    async def _do(self, method: Request[Any, Any], raw: msgspec.Raw) -> msgspec.Struct:
        params = decode(method.params_decoder, method.params, raw)
        key = getattr(params, "thread_id", None), getattr(params, "turn_id", None) or ""
        state = self._notifications.turns.get(key)
        with _suspend_timeout(state):
            if isinstance(params, DynamicToolCallParams):
                return await self._tools.call(params)
            return await self._decide(method, params, state)

    async def _decide(
        self,
        method: Request[Any, Any],
        params: JsonValue,
        state: TurnState | None,
    ) -> msgspec.Struct:
        kind = _NEW_METHODS.get(method.method, method.method)
        respond = _RESPOND.get(method.method)
        handler = self._handlers.get(kind)
        if handler is None:
            return _answer_without_handler(method, respond)
        request: object = params
        try:
            # Inside the try: another server's params may be inconsistent.
            request = self._handler_argument(params)
            outcome = await call(handler, request)
            return respond(outcome, params) if respond else _plain(outcome, method)
        except CannotDecide:
            if state is not None:
                is_input = method is wire.ITEM_TOOL_REQUEST_USER_INPUT
                error = InputRequired if is_input else ApprovalRequired
                state.fail(error(state.result(), request))
            return _answer_cancelled(method, respond)
        except Exception as error:  # user callback: the server receives a refusal
            logger.exception("handler failed", extra={"method": method.method})
            self._notifications.report(error)
            if respond is None:
                raise
            return respond(None, params)

    def _handler_argument(self, params: JsonValue) -> object:
        match params:
            case CommandExecutionRequestApprovalParams() | ExecCommandApprovalParams():
                return _command_approval(params)
            case FileChangeRequestApprovalParams() | ApplyPatchApprovalParams():
                edits = self._notifications.edits(getattr(params, "item_id", ""))
                return _file_approval(params, edits)
            case _:
                return params

    def withdraw(self, event: ServerRequestResolved) -> None:
        """Cancel a handler: another client has answered, or the turn has moved on."""
        task = self._running.pop(event.request_id, None)
        if task is not None:
            task.cancel()
        self._deduplicator.give_up(event.request_id)


@contextmanager
def _suspend_timeout(state: TurnState | None) -> Iterator[None]:
    """Suspend the idle timeout of a turn."""
    if state is not None:
        state.open_requests += 1
    try:
        yield
    finally:
        if state is not None:
            state.open_requests -= 1
            state.last_event_at = state.now()


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
        command=decisions.join_command(params.command),
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


def _answer_without_handler(method: Request[Any, Any], respond: Respond | None) -> msgspec.Struct:
    if method is wire.CURRENT_TIME_READ:
        return CurrentTimeReadResponse(int(time.time()))
    if respond is None:
        raise NoHandler(f"this client has no handler for {method.method}", method=method.method)
    logger.info("no handler", extra={"method": method.method})
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


_NEW_METHODS: Final = {
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
