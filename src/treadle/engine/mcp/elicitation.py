"""Forwards elicitations of MCP servers to the clients of the thread."""

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
from treadle.support.text.json_text import encode_json

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState

DECLINED: Final[Raw] = {"action": "decline"}

APPROVAL_KIND: Final = "codex_approval_kind"

MAX_QUESTION_BYTES: Final = 256 * 1024
"""The most bytes of an elicitation, which is stored and delivered to every client of the thread."""


async def elicit(
    thread: ThreadState, server: str, call_id: str | None, key: str, params: Raw
) -> Raw:
    """Forward an elicitation to the clients; decline it if it is too long or none is allowed.

    `call_id` names the tool call that it belongs to, if there is one. It does not survive a
    restart, because the MCP server ends with this server.
    """
    turn = thread.turn
    settings = thread.settings if turn is None else thread.settings_of(turn)
    if not _may_ask(settings.approval_policy) or len(encode_json(params)) > MAX_QUESTION_BYTES:
        return DECLINED
    request = _params(thread.id, turn.id if turn is not None else None, server, params)
    if request is None:
        return DECLINED
    try:
        answer = await thread.server_requests.send(
            MCP_SERVER_ELICITATION_REQUEST,
            request,
            turn=turn,
            key=key,
            call_id=call_id,
            flag="waitingOnApproval",
            default=McpServerElicitationRequestResponse("decline"),
            resumable=False,
        )
    except ServerRequestRefused:
        return DECLINED
    result: Raw = {"action": answer.action}
    if answer.content is not None and answer.action == "accept":
        result["content"] = answer.content
    return result if answer.meta is None else {**result, "_meta": answer.meta}


def _may_ask(policy: AskForApproval) -> bool:
    if isinstance(policy, GranularAskForApproval):
        return policy.granular is not None and policy.granular.mcp_elicitations
    return policy != "never"


def _params(
    thread_id: str, turn_id: str | None, server: str, params: Raw
) -> McpServerElicitationRequestParams | None:
    message = str(params.get("message") or "")
    meta = params.get("_meta") or None
    if isinstance(meta, dict):
        # By it, clients recognize an approval that this server requests.
        meta = {name: value for name, value in meta.items() if name != APPROVAL_KIND} or None
    if params.get("mode") == "url":
        return UrlMcpServerElicitationRequestParams(
            server_name=server,
            thread_id=thread_id,
            turn_id=turn_id,
            elicitation_id=str(params.get("elicitationId") or ""),
            message=message,
            url=str(params.get("url") or ""),
            meta=meta,
        )
    try:
        schema = msgspec.convert(params.get("requestedSchema"), McpElicitationSchema)
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
