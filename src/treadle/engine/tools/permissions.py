"""The `request_permissions` tool: the user grants all, some or none of the permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.approvals.judgement import granular
from treadle.engine.approvals.permission import Denied
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.hooks.uses import ToolUseRequest
from treadle.engine.tools.options import (
    NetworkOption,
    Permissions,
    absolute,
    files_of,
    parts_of,
    permissions_schema,
)
from treadle.engine.tools.registry import Output, ToolCall, ToolRefused, read_arguments
from treadle.model.base import ModelTool
from treadle.protocol import notifications as n
from treadle.protocol.approval import (
    RequestPermissionsGuardianApprovalReviewAction,
    StrictReviewRequiredNotification,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.permission import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    FileSystemAccessMode,
    GrantedPermissionProfile,
    PathFileSystemPath,
    PermissionGrantScope,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
    RequestPermissionProfile,
)
from treadle.protocol.policy import AskForApproval
from treadle.protocol.server_requests import ITEM_PERMISSIONS_REQUEST_APPROVAL
from treadle.sandbox.root_limits import MAX_ROOTS, roots_fault

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

FEATURE: Final = "request_permissions_tool"
"""The feature that offers the tool to the model."""

ENVIRONMENT: Final = "local"
_NOTHING: Final = PermissionsRequestApprovalResponse(GrantedPermissionProfile())


class _Arguments(msgspec.Struct):
    permissions: Permissions
    reason: str | None = None
    environment_id: str | None = None


class _GrantedFiles(msgspec.Struct, omit_defaults=True):
    read: list[str] | None = None
    write: list[str] | None = None


class _Granted(msgspec.Struct):
    network: NetworkOption | None = None
    file_system: _GrantedFiles | None = None


class _Result(msgspec.Struct, omit_defaults=True):
    permissions: _Granted
    scope: PermissionGrantScope
    strict_auto_review: bool = False


_PARAMETERS: Final[JsonValue] = {
    "type": "object",
    "properties": {
        "permissions": permissions_schema("Permissions to request. Omit what you do not need."),
        "reason": {"type": "string", "description": "Short reason, shown to the user."},
        "environment_id": {
            "type": "string",
            "description": "Environment id. Omit it for the primary environment.",
        },
    },
    "required": ["permissions"],
    "additionalProperties": False,
}


class RequestPermissions:
    """Requests file or network access for later commands."""

    name = "request_permissions"

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        return {
            "type": "function",
            "name": self.name,
            "description": "Request more permissions from the user before a command needs them, "
            "and wait for the answer. The user may grant some of them, for this turn or for the "
            "rest of the session; they apply to later commands. Paths are relative to the working "
            "folder.",
            "strict": False,
            "parameters": _PARAMETERS,
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Request the permissions, apply the grant, and return it to the model."""
        arguments = read_arguments(call, _Arguments)
        if arguments.environment_id not in (None, ENVIRONMENT):
            raise ToolRefused(f"unknown turn environment id `{arguments.environment_id}`")
        settings = self._thread.settings_of(turn)
        # In a worker: the paths may be deep, and lead through many links.
        workers = self._thread.services.file_workers
        parts = await workers.run(parts_of, arguments.permissions, settings.cwd)
        requested = RequestPermissionProfile(*parts)
        if requested.network is None and requested.file_system is None:
            raise ToolRefused("request_permissions requires at least one permission")
        answer = _NOTHING
        if _may_ask(settings.approval_policy):
            answer = await self._decided(call, turn, requested)
        if answer is _NOTHING and _may_ask(settings.approval_policy):
            request = self._ask if settings.reviewer == "user" else self._review
            answer = await request(call, turn, requested, arguments.reason)
        grant = await workers.run(_common, requested, answer.permissions, settings.cwd)
        is_strict = bool(answer.strict_auto_review)
        if is_strict and answer.scope == "session":
            # A review of every command is possible for one turn only: a session grant would
            # give the permissions without the review.
            grant, is_strict, answer = _Granted(), False, _NOTHING
        self._grant(turn, grant, answer.scope)
        if is_strict:
            self._thread.approvals.grants.review_all(turn)
            params = StrictReviewRequiredNotification(turn.clock(), turn.thread_id, turn.id)
            turn.log.publish(n.AUTO_APPROVAL_REVIEW_STRICT_REVIEW_REQUIRED, params)
        result = _Result(grant, answer.scope, strict_auto_review=is_strict)
        return msgspec.json.encode(result).decode()

    async def _decided(
        self, call: ToolCall, turn: ActiveTurn, requested: RequestPermissionProfile
    ) -> PermissionsRequestApprovalResponse:
        """Let hooks decide: all permissions for the turn, or none.

        Raises:
            ToolRefused: a hook denies them.
        """
        use = ToolUseRequest(self.name, read_arguments(call, dict[str, JsonValue]))
        try:
            if not await self._thread.approvals.hooks_allow(turn, call.id, use):
                return _NOTHING
        except Denied as refusal:
            raise ToolRefused(f"permissions denied: {refusal.reason}") from refusal
        granted = GrantedPermissionProfile(requested.file_system, requested.network)
        return PermissionsRequestApprovalResponse(granted)

    async def _ask(
        self,
        call: ToolCall,
        turn: ActiveTurn,
        requested: RequestPermissionProfile,
        reason: str | None,
    ) -> PermissionsRequestApprovalResponse:
        params = PermissionsRequestApprovalParams(
            cwd=self._thread.settings_of(turn).cwd,
            item_id=call.id,
            permissions=requested,
            started_at_ms=turn.clock(),
            thread_id=turn.thread_id,
            turn_id=turn.id,
            environment_id=ENVIRONMENT,
            reason=reason,
        )
        try:
            return await self._thread.server_requests.send(
                ITEM_PERMISSIONS_REQUEST_APPROVAL,
                params,
                turn=turn,
                key=call.id,
                flag="waitingOnApproval",
                default=_NOTHING,
            )
        except ServerRequestRefused:
            return _NOTHING

    async def _review(
        self,
        call: ToolCall,
        turn: ActiveTurn,
        requested: RequestPermissionProfile,
        reason: str | None,
    ) -> PermissionsRequestApprovalResponse:
        """Let the guardian decide: all permissions for the turn, or none."""
        action = RequestPermissionsGuardianApprovalReviewAction(requested, reason)
        review = await self._thread.approvals.guardian.review(turn, action, call.id, reason)
        if review.status != "approved":
            return _NOTHING
        granted = GrantedPermissionProfile(requested.file_system, requested.network)
        return PermissionsRequestApprovalResponse(granted)

    def _grant(self, turn: ActiveTurn, grant: _Granted, scope: PermissionGrantScope) -> None:
        files = grant.file_system
        if files is None and grant.network is None:
            return
        profile = GrantedPermissionProfile(
            file_system=files_of(files.read or [], files.write or []) if files else None,
            network=AdditionalNetworkPermissions(enabled=True) if grant.network else None,
        )
        self._thread.approvals.grant(turn, profile, scope)


def _may_ask(policy: AskForApproval) -> bool:
    switches = granular(policy)
    return policy != "never" if switches is None else switches.request_permissions


def _common(
    requested: RequestPermissionProfile, granted: GrantedPermissionProfile, cwd: str
) -> _Granted:
    """The permissions both requested and granted: an answer can only narrow a request."""
    before, after = requested.network, granted.network
    has_network = bool(before and before.enabled and after and after.enabled)
    return _Granted(
        network=NetworkOption(enabled=True) if has_network else None,
        file_system=_common_files(requested.file_system, granted.file_system, cwd),
    )


def _common_files(
    requested: AdditionalFileSystemPermissions | None,
    granted: AdditionalFileSystemPermissions | None,
    cwd: str,
) -> _GrantedFiles | None:
    if requested is None or granted is None:
        return None
    write = _within(_granted_paths(granted, "write", cwd), requested.write or ())
    # Write access includes read access.
    read = _within(
        _granted_paths(granted, "read", cwd), [*(requested.read or ()), *(requested.write or ())]
    )
    return _GrantedFiles(read or None, write or None) if read or write else None


def _granted_paths(
    granted: AdditionalFileSystemPermissions, access: FileSystemAccessMode, cwd: str
) -> list[str]:
    named = granted.read if access == "read" else granted.write
    entries = [
        entry.path.path
        for entry in granted.entries or ()
        if entry.access == access and isinstance(entry.path, PathFileSystemPath)
    ]
    # An answer can only narrow a request, so paths beyond the limit are not granted.
    paths = list(dict.fromkeys([*(named or ()), *entries]))
    paths = [path for path in paths[:MAX_ROOTS] if roots_fault([path], access) is None]
    return list(dict.fromkeys(absolute(paths, cwd)))


def _within(paths: Iterable[str], roots: Iterable[str]) -> list[str]:
    folders = [root.rstrip("/") for root in roots]
    return [
        path
        for path in paths
        if any(path == (folder or "/") or path.startswith(f"{folder}/") for folder in folders)
    ]
