"""Decides whether an MCP tool may be called, and requests approval where it is required."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from treadle.engine.approvals.permission import Denied
from treadle.engine.apps.tools import App, app_of, title_of
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.hooks.uses import ToolUseRequest
from treadle.engine.mcp.config import ApprovalMode
from treadle.engine.mcp.elicitation import APPROVAL_KIND
from treadle.engine.mcp.names import plain_names
from treadle.engine.mcp.server import McpServer, Raw
from treadle.engine.settings import RunSettings
from treadle.protocol.approval import McpToolCallGuardianApprovalReviewAction
from treadle.protocol.base import JsonValue
from treadle.protocol.elicitation import (
    FormMcpServerElicitationRequestParams,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
)
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
)
from treadle.protocol.server_requests import MCP_SERVER_ELICITATION_REQUEST
from treadle.store.records import Decided, Granted

if TYPE_CHECKING:
    from treadle.engine.approvals.approvals import Approvals
    from treadle.engine.mcp.servers import McpServers
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

REJECTED: Final = "user rejected MCP tool call"
CANCELLED: Final = "user cancelled MCP tool call"
NEVER: Final = "MCP tool call requires approval, but approval policy is never"

Verdict: TypeAlias = Literal["allow", "ask", "refuse"]


class McpRefused(Exception):
    """The tool may not be called; the message is for the model and the clients."""


class Judgement(Struct, frozen=True):
    """The decision about a call, and the rule that made it."""

    verdict: Verdict
    by: str


def judge(mode: ApprovalMode, hints: Raw, settings: RunSettings) -> Judgement:
    """Judge a call by the configured mode, the hints of the tool and the policy."""
    if not _needs_approval(mode, hints):
        return Judgement("allow", f"approval_mode {mode}")
    if settings.approval_policy != "never":
        return Judgement("ask", f"approval_mode {mode}")
    if isinstance(
        settings.enforced_sandbox, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy
    ):
        return Judgement("allow", "policy never without a sandbox")
    return Judgement("refuse", "policy never")


def _needs_approval(mode: ApprovalMode, hints: Raw) -> bool:
    """Without hints, a tool counts as destructive and open-world."""
    reads_only = hints.get("readOnlyHint") is True
    is_destructive = hints.get("destructiveHint")
    match mode:
        case "approve":
            return False
        case "prompt":
            return True
        case "writes":
            return not reads_only
        case "auto":
            if is_destructive is True:
                return True
            reaches_out = hints.get("openWorldHint") is not False
            return not reads_only and (is_destructive is not False or reaches_out)


class ToolUse(Struct, frozen=True):
    """A call that the model wants to make."""

    turn: ActiveTurn
    call_id: str
    server: McpServer
    tool: Raw
    arguments: Raw
    # The name for the model, which hooks see too.
    model_name: str

    @property
    def name(self) -> str:
        """The name of the tool on the server."""
        return str(self.tool["name"])

    @property
    def mode(self) -> ApprovalMode:
        """The configured approval mode."""
        return self.server.approval_mode(self.tool)

    @property
    def app(self) -> App | None:
        """The app that the tool is part of."""
        return app_of(self.tool) if self.server.apps is not None else None


async def approve(servers: McpServers, approvals: Approvals, use: ToolUse) -> None:
    """Allow a call, or request approval of it.

    Raises:
        McpRefused: it may not be made.
    """
    thread, settings = servers.thread, servers.thread.settings_of(use.turn)
    hints = use.tool.get("annotations")
    judgement = judge(use.mode, hints if isinstance(hints, dict) else {}, settings)
    is_known = judgement.verdict == "ask" and (use.server.name, use.name) in servers.approved
    asked = approvals.hooks.asked.get(use.call_id)
    if asked is not None and judgement.verdict == "allow":
        judgement, is_known = Judgement("ask", "hook"), False
    if judgement.verdict != "ask" or is_known:
        _record(thread, use, judgement, is_known=is_known)
    if judgement.verdict == "refuse":
        table = f"mcp_servers.{use.server.name}" if use.app is None else f"apps.{use.app.id}"
        key = f"{table}.tools.{use.name}.approval_mode"
        raise McpRefused(f'{NEVER} (to allow it without approval, set {key} = "approve")')
    if judgement.verdict == "allow" or is_known:
        return
    try:
        names = plain_names(use.server.name, use.name)
        requested = ToolUseRequest(use.model_name, use.arguments, names)
        if await approvals.hooks_allow(use.turn, use.call_id, requested):
            return
    except Denied as refusal:
        raise McpRefused(refusal.reason) from refusal
    if _reviewer(use, settings) != "user":
        await _review(approvals, use)
        return
    persist = ["session", "always"] if use.mode == "auto" else []
    answer = await _ask(thread, use, persist)
    if answer.action != "accept":
        raise McpRefused(REJECTED if answer.action == "decline" else CANCELLED)
    chosen = answer.meta.get("persist") if isinstance(answer.meta, dict) else None
    if chosen in persist:
        await servers.remember(
            use.server.name,
            use.name,
            app_id=use.app.id if use.app is not None else None,
            always=chosen == "always",
        )
        tool = (use.server.name, use.name)
        thread.log.record(Granted(use.turn.id, "session", tool=tool))


async def _ask(
    thread: ThreadState, use: ToolUse, persist: list[str]
) -> McpServerElicitationRequestResponse:
    server, app = use.server.name, use.app
    actor = f"the {server} MCP server" if app is None else app.title
    limits = thread.settings.request_deadline
    at_deadline = limits.decision if limits is not None else "decline"
    try:
        return await thread.server_requests.send(
            MCP_SERVER_ELICITATION_REQUEST,
            FormMcpServerElicitationRequestParams(
                server_name=server,
                thread_id=thread.id,
                turn_id=use.turn.id,
                message=f'Allow {actor} to run tool "{use.name}"?',
                requested_schema=McpElicitationSchema(properties={}, type="object"),
                meta=_meta(use, persist),
            ),
            turn=use.turn,
            key=use.call_id,
            flag="waitingOnApproval",
            default=McpServerElicitationRequestResponse(at_deadline),
        )
    except ServerRequestRefused as refusal:
        raise McpRefused(REJECTED) from refusal


def _reviewer(use: ToolUse, settings: RunSettings) -> str:
    """Return who decides: the app's own table comes before the thread's settings."""
    chosen = use.server.apps.policy.reviewer(use.tool) if use.server.apps is not None else None
    if chosen is None or (chosen != "user" and not settings.is_enabled("guardian_approval")):
        return settings.reviewer
    return chosen


def _meta(use: ToolUse, persist: list[str]) -> Raw:
    shown: list[JsonValue] = [
        {"name": name, "value": value, "display_name": name}
        for name, value in use.arguments.items()
    ]
    meta: Raw = {APPROVAL_KIND: "mcp_tool_call"}
    if persist:
        meta["persist"] = persist
    if title := title_of(use.tool) if use.app is not None else use.tool.get("title"):
        meta["tool_title"] = title
    if description := use.tool.get("description"):
        meta["tool_description"] = description
    if use.app is not None:
        about = {
            "connector_id": use.app.id,
            "link_id": use.app.link_id,
            "connector_name": use.app.name,
            "connector_description": use.app.description,
        }
        meta["source"] = "connector"
        meta |= {name: value for name, value in about.items() if value is not None}
    return {**meta, "tool_params": use.arguments, "tool_params_display": shown}


async def _review(approvals: Approvals, use: ToolUse) -> None:
    """Let the guardian decide."""
    title, app = use.tool.get("title"), use.app
    action = McpToolCallGuardianApprovalReviewAction(
        use.server.name,
        use.name,
        connector_id=app.id if app is not None else None,
        connector_name=app.name if app is not None else None,
        tool_title=title if isinstance(title, str) else None,
    )
    details = {"arguments": use.arguments, "hints": use.tool.get("annotations")}
    review = await approvals.guardian.review(use.turn, action, use.call_id, None, details=details)
    if review.status != "approved":
        raise McpRefused(
            review.rationale or f"the automatic review ended with status {review.status}"
        )


def _record(thread: ThreadState, use: ToolUse, judgement: Judgement, *, is_known: bool) -> None:
    """Record a decision that was made without a request."""
    decision = "forbidden" if judgement.verdict == "refuse" else "allowed"
    by = "approved for the session" if is_known else judgement.by
    action = f"mcp {use.server.name}/{use.name}"
    now = use.turn.clock()
    thread.log.record(Decided(use.call_id, use.turn.id, action, decision, by, now))
