"""Permissions that the model may request beyond its sandbox, for one command or all later ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from treadle.engine.approvals.permission import CommandRequest
from treadle.engine.tools.registry import ToolCall, ToolRefused
from treadle.protocol.base import JsonValue
from treadle.protocol.permission import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    AdditionalPermissionProfile,
    FileSystemAccessMode,
    FileSystemSandboxEntry,
    PathFileSystemPath,
)
from treadle.sandbox.paths import real
from treadle.sandbox.root_limits import roots_fault
from treadle.support.concurrency.workers import Workers
from treadle.support.files.links import follow

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import LoadedThread

FEATURE: Final = "exec_permission_approvals"
"""The feature that lets the model request permissions for one command."""

MAX_PARTS: Final = 4096
"""The most components of all paths of a request: each is examined several times."""

_WITH_MORE: Final = "with_additional_permissions"


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    path: PathFileSystemPath
    access: FileSystemAccessMode


class _Files(msgspec.Struct, forbid_unknown_fields=True):
    read: list[str] | None = None
    write: list[str] | None = None
    entries: list[_Entry] | None = None

    def paths(self, access: FileSystemAccessMode, cwd: str) -> list[str]:
        """The requested paths, absolute and without links; in a worker, because they may be deep.

        Raises:
            ToolRefused: there are too many, or one of them is too long, too deep or has too many
                links.
        """
        named = self.read if access == "read" else self.write
        entries = [entry.path.path for entry in self.entries or () if entry.access == access]
        paths, field = [*(named or ()), *entries], f"file_system.{access}"
        if (fault := roots_fault(paths, field)) is not None:
            raise ToolRefused(fault)
        places = [_place(path, cwd) for path in paths]
        # Links may lead to deeper folders than the paths name.
        if (fault := roots_fault(places, field)) is not None:
            raise ToolRefused(fault)
        return places


class NetworkOption(msgspec.Struct, forbid_unknown_fields=True):
    """Whether network access is requested."""

    enabled: bool | None = None


class Permissions(msgspec.Struct, forbid_unknown_fields=True):
    """Permissions in the format of the model."""

    network: NetworkOption | None = None
    file_system: _Files | None = None


def parts_of(
    permissions: Permissions, cwd: str
) -> tuple[AdditionalFileSystemPermissions | None, AdditionalNetworkPermissions | None]:
    """The permissions in the format of the protocol, without empty parts; call it in a worker.

    Raises:
        ToolRefused: the paths exceed a limit.
    """
    files, network = permissions.file_system, permissions.network
    enabled = network.enabled if network is not None else None
    read, write = (files.paths("read", cwd), files.paths("write", cwd)) if files else ([], [])
    parts = sum(path.count("/") for path in (*read, *write))
    if parts > MAX_PARTS:
        raise ToolRefused(f"the paths must have at most {MAX_PARTS} components, not {parts}")
    return (
        files_of(read, write),
        None if enabled is None else AdditionalNetworkPermissions(enabled=enabled),
    )


def files_of(read: Sequence[str], write: Sequence[str]) -> AdditionalFileSystemPermissions | None:
    """Paths in the newer and the older format of the protocol."""
    if not read and not write:
        return None
    modes: list[tuple[FileSystemAccessMode, Sequence[str]]] = [("read", read), ("write", write)]
    entries = [
        FileSystemSandboxEntry(access, PathFileSystemPath(path))
        for access, paths in modes
        for path in paths
    ]
    return AdditionalFileSystemPermissions(
        entries=entries, read=list(read) or None, write=list(write) or None
    )


def _place(path: str, cwd: str) -> str:
    way = follow(str(Path(cwd, path)))
    if way.is_too_long:
        raise ToolRefused(f"{path} leads through too many links")
    return way.place


def absolute(paths: Iterable[str], cwd: str) -> list[str]:
    """Resolve paths relative to a folder, with links, so that a grant cannot be redirected."""
    return [real(str(Path(cwd, path))) for path in paths]


def permissions_schema(description: str) -> dict[str, JsonValue]:
    """The schema of permissions for the model."""
    return _object(
        description,
        {
            "network": _object(
                "Network access.",
                {
                    "enabled": {
                        "type": "boolean",
                        "description": "Set to true to request network access.",
                    }
                },
            ),
            "file_system": _object(
                "File system access.",
                {
                    "read": _paths("Paths that commands need to read."),
                    "write": _paths("Paths that commands need to write."),
                },
            ),
        },
    )


def _paths(description: str) -> JsonValue:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _object(description: str, properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    about = {"type": "object", "description": description, "properties": properties}
    return {**about, "additionalProperties": False}


def _folder(cwd: str, workdir: str | None) -> str:
    return os.path.normpath(Path(cwd) / (workdir or ""))


class EscalationOptions(msgspec.Struct, kw_only=True):
    """The options that every command tool accepts."""

    workdir: str | None = None
    sandbox_permissions: Literal[
        "use_default", "require_escalated", "with_additional_permissions"
    ] = "use_default"
    justification: str | None = None
    prefix_rule: list[str] | None = None
    additional_permissions: Permissions | None = None

    async def request(
        self,
        call: ToolCall,
        argv: Sequence[str],
        settings: RunSettings,
        workers: Workers,
        *,
        is_terminal: bool = False,
    ) -> CommandRequest:
        """The command as a request for approval.

        Raises:
            ToolRefused: the requested permissions are invalid.
        """
        cwd = _folder(settings.cwd, self.workdir)
        is_on, additional = settings.is_enabled(FEATURE), None
        if self.additional_permissions is not None or self.sandbox_permissions == _WITH_MORE:
            additional = await workers.run(self._additional, cwd, is_on=is_on)
        return CommandRequest(
            call_id=call.id,
            argv=tuple(argv),
            cwd=cwd,
            escalated=self.sandbox_permissions == "require_escalated",
            justification=self.justification,
            prefix_rule=tuple(self.prefix_rule) if self.prefix_rule else None,
            additional=additional,
            is_terminal=is_terminal,
        )

    def _additional(self, cwd: str, *, is_on: bool) -> AdditionalPermissionProfile:
        permissions = self.additional_permissions
        if not is_on:
            raise ToolRefused(
                f"additional permissions are disabled; enable `features.{FEATURE}` before using "
                f"`{_WITH_MORE}`"
            )
        if self.sandbox_permissions != _WITH_MORE:
            raise ToolRefused(
                f"`additional_permissions` requires `sandbox_permissions` set to `{_WITH_MORE}`"
            )
        if permissions is None:
            raise ToolRefused(
                "missing `additional_permissions`; provide at least one of `network` or "
                f"`file_system` when using `{_WITH_MORE}`"
            )
        files, network = parts_of(permissions, cwd)
        if files is None and not (network and network.enabled):
            raise ToolRefused(
                "`additional_permissions` must include at least one requested permission in "
                "`network` or `file_system`"
            )
        return AdditionalPermissionProfile(files, network)


def escalation_schema(thread: LoadedThread) -> dict[str, JsonValue]:
    """The schema of these options for the model."""
    is_on = thread.settings.is_enabled(FEATURE)
    return _MORE if is_on else _USUAL


_USUAL: Final[dict[str, JsonValue]] = {
    "workdir": {"type": "string", "description": "Working folder. Defaults to the turn's folder."},
    "sandbox_permissions": {
        "type": "string",
        "enum": ["use_default", "require_escalated"],
        "description": "`require_escalated` asks the user for approval to run outside the sandbox.",
    },
    "justification": {
        "type": "string",
        "description": "Only with `require_escalated`: the question to the user, in one sentence.",
    },
    "prefix_rule": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Only with `require_escalated`: a command prefix that the user can allow "
        'permanently, such as ["git", "pull"].',
    },
}
_MORE: Final[dict[str, JsonValue]] = {
    **_USUAL,
    "sandbox_permissions": {
        "type": "string",
        "enum": ["use_default", "require_escalated", _WITH_MORE],
        "description": "`require_escalated` asks the user for approval to run outside the "
        f"sandbox, `{_WITH_MORE}` for the permissions in `additional_permissions`.",
    },
    "justification": {
        "type": "string",
        "description": "The question to the user, in one sentence, if approval is requested.",
    },
    "additional_permissions": permissions_schema(
        f"Only with `{_WITH_MORE}`: the permissions that this command needs."
    ),
}
