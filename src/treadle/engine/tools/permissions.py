"""The model asks for wider permissions before it needs them; the user grants a part or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.approvals.judgement import granular
from treadle.engine.events.server_requests import ServerRequestRefused
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

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

FEATURE: Final = "request_permissions_tool"
"""The switch that offers the tool to the model."""

ENVIRONMENT: Final = "local"
_NOTHING: Final = PermissionsRequestApprovalResponse(GrantedPermissionProfile())


class _Arguments(msgspec.Struct):
    permissions: Permissions
    reason: str | None = None
    environment_id: str | None = None


class _FilesGiven(msgspec.Struct, omit_defaults=True):
    read: list[str] | None = None
    write: list[str] | None = None


class _Given(msgspec.Struct):
    network: NetworkOption | None = None
    file_system: _FilesGiven | None = None


class _Answer(msgspec.Struct, omit_defaults=True):
    permissions: _Given
    scope: PermissionGrantScope
    strict_auto_review: bool = False


_PARAMETERS: Final[JsonValue] = {
    "type": "object",
    "properties": {
        "permissions": permissions_schema("What to ask for; leave out what is not needed."),
        "reason": {"type": "string", "description": "Why, in a few words for the user."},
        "environment_id": {"type": "string", "description": "Leave out for the primary one."},
    },
    "required": ["permissions"],
    "additionalProperties": False,
}


class RequestPermissions:
    """Asks the user to open up files or the network for later commands."""

    name = "request_permissions"

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        return {
            "type": "function",
            "name": self.name,
            "description": "Ask the user for more rights before a command needs them, and wait. "
            "The user may grant a part of them, for this turn or for the rest of the thread; "
            "later commands then have them. Relative paths start at the working folder.",
            "strict": False,
            "parameters": _PARAMETERS,
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Ask, take over what was granted, and tell the model what it was."""
        arguments = read_arguments(call, _Arguments)
        if arguments.environment_id not in (None, ENVIRONMENT):
            raise ToolRefused(f"unknown turn environment id `{arguments.environment_id}`")
        settings = self._thread.settings_of(turn)
        wanted = RequestPermissionProfile(*parts_of(arguments.permissions, settings.cwd))
        if wanted.network is None and wanted.file_system is None:
            raise ToolRefused("request_permissions requires at least one permission")
        answer = _NOTHING
        if _may_ask(settings.approval_policy):
            put = self._ask if settings.approvals_reviewer == "user" else self._review
            answer = await put(call, turn, wanted, arguments.reason)
        given = _common(wanted, answer.permissions, settings.cwd)
        is_strict = bool(answer.strict_auto_review)
        if is_strict and answer.scope == "session":
            # A review of every command can be asked for one turn only: granting it otherwise
            # would give the rights without the review.
            given, is_strict, answer = _Given(), False, _NOTHING
        self._grant(turn, given, answer.scope)
        if is_strict:
            self._thread.approvals.grants.review_all(turn)
            params = StrictReviewRequiredNotification(turn.clock(), turn.thread_id, turn.id)
            turn.log.publish(n.AUTO_APPROVAL_REVIEW_STRICT_REVIEW_REQUIRED, params)
        said = _Answer(given, answer.scope, strict_auto_review=is_strict)
        return msgspec.json.encode(said).decode()

    async def _ask(
        self, call: ToolCall, turn: ActiveTurn, wanted: RequestPermissionProfile, reason: str | None
    ) -> PermissionsRequestApprovalResponse:
        params = PermissionsRequestApprovalParams(
            cwd=self._thread.settings_of(turn).cwd,
            item_id=call.id,
            permissions=wanted,
            started_at_ms=turn.clock(),
            thread_id=turn.thread_id,
            turn_id=turn.id,
            environment_id=ENVIRONMENT,
            reason=reason,
        )
        try:
            return await self._thread.server_requests.ask(
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
        self, call: ToolCall, turn: ActiveTurn, wanted: RequestPermissionProfile, reason: str | None
    ) -> PermissionsRequestApprovalResponse:
        """Let a model decide in the user's stead: all of it for the turn, or nothing."""
        from treadle.engine.approvals.guardian import review_action

        action = RequestPermissionsGuardianApprovalReviewAction(wanted, reason)
        review = await review_action(self._thread, turn, action, call.id, reason)
        if review.status != "approved":
            return _NOTHING
        granted = GrantedPermissionProfile(wanted.file_system, wanted.network)
        return PermissionsRequestApprovalResponse(granted)

    def _grant(self, turn: ActiveTurn, given: _Given, scope: PermissionGrantScope) -> None:
        files = given.file_system
        if files is None and given.network is None:
            return
        profile = GrantedPermissionProfile(
            file_system=files_of(files.read or [], files.write or []) if files else None,
            network=AdditionalNetworkPermissions(enabled=True) if given.network else None,
        )
        self._thread.approvals.grant(turn, profile, scope)


def _may_ask(policy: AskForApproval) -> bool:
    switches = granular(policy)
    return policy != "never" if switches is None else switches.request_permissions


def _common(
    wanted: RequestPermissionProfile, granted: GrantedPermissionProfile, cwd: str
) -> _Given:
    """What was both asked for and granted: an answer can narrow a request, never widen it."""
    asked, opened = wanted.network, granted.network
    has_network = bool(asked and asked.enabled and opened and opened.enabled)
    return _Given(
        network=NetworkOption(enabled=True) if has_network else None,
        file_system=_common_files(wanted.file_system, granted.file_system, cwd),
    )


def _common_files(
    wanted: AdditionalFileSystemPermissions | None,
    granted: AdditionalFileSystemPermissions | None,
    cwd: str,
) -> _FilesGiven | None:
    if wanted is None or granted is None:
        return None
    write = _within(_places(granted, "write", cwd), wanted.write or ())
    # Whoever may write a place may read it.
    read = _within(_places(granted, "read", cwd), [*(wanted.read or ()), *(wanted.write or ())])
    return _FilesGiven(read or None, write or None) if read or write else None


def _places(
    granted: AdditionalFileSystemPermissions, access: FileSystemAccessMode, cwd: str
) -> list[str]:
    named = granted.read if access == "read" else granted.write
    entries = [
        entry.path.path
        for entry in granted.entries or ()
        if entry.access == access and isinstance(entry.path, PathFileSystemPath)
    ]
    return list(dict.fromkeys(absolute([*(named or ()), *entries], cwd)))


def _within(paths: Iterable[str], roots: Iterable[str]) -> list[str]:
    folders = [root.rstrip("/") for root in roots]
    return [
        path
        for path in paths
        if any(path == (folder or "/") or path.startswith(f"{folder}/") for folder in folders)
    ]
