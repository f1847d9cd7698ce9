"""Questions of MCP servers to the user, put to the clients of the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.mcp.server import Raw
from treadle.protocol.elicitation import (
    FormMcpServerElicitationRequestParams,
    McpElicitationSchema,
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    UrlMcpServerElicitationRequestParams,
)
from treadle.protocol.policy import AskForApproval, GranularAskForApproval
from treadle.protocol.server_requests import MCP_SERVER_ELICITATION_REQUEST

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

DECLINED: Final[Raw] = {"action": "decline"}


async def elicit(
    thread: LoadedThread, server: str, call_id: str | None, key: str, asked: Raw
) -> Raw:
    """Put a question of a server to the clients; where nobody may be asked, it is declined.

    `call_id` names the call of the model that it is asked for, if it is for one. It cannot be
    answered under another server: the MCP server that asks dies with this one.
    """
    turn = thread.turn
    settings = thread.settings if turn is None else thread.settings_of(turn)
    if not _may_ask(settings.approval_policy):
        return DECLINED
    params = _params(thread.id, turn.id if turn is not None else None, server, asked)
    if params is None:
        return DECLINED
    try:
        answer = await thread.server_requests.ask(
            MCP_SERVER_ELICITATION_REQUEST,
            params,
            turn=turn,
            key=key,
            call_id=call_id,
            flag="waitingOnApproval",
            default=McpServerElicitationRequestResponse("decline"),
            resumable=False,
        )
    except ServerRequestRefused:
        return DECLINED
    given: Raw = {"action": answer.action}
    if answer.content is not None and answer.action == "accept":
        given["content"] = answer.content
    return given if answer.meta is None else {**given, "_meta": answer.meta}


def _may_ask(policy: AskForApproval) -> bool:
    if isinstance(policy, GranularAskForApproval):
        return policy.granular is not None and policy.granular.mcp_elicitations
    return policy != "never"


def _params(
    thread_id: str, turn_id: str | None, server: str, asked: Raw
) -> McpServerElicitationRequestParams | None:
    message = str(asked.get("message") or "")
    meta = asked.get("_meta") or None
    if asked.get("mode") == "url":
        return UrlMcpServerElicitationRequestParams(
            server_name=server,
            thread_id=thread_id,
            turn_id=turn_id,
            elicitation_id=str(asked.get("elicitationId") or ""),
            message=message,
            url=str(asked.get("url") or ""),
            meta=meta,
        )
    try:
        schema = msgspec.convert(asked.get("requestedSchema"), McpElicitationSchema)
    except msgspec.ValidationError:
        return None
    return FormMcpServerElicitationRequestParams(
        server_name=server,
        thread_id=thread_id,
        turn_id=turn_id,
        message=message,
        requested_schema=schema,
        meta=meta,
    )
