"""What the model may ask for beyond its sandbox: for one command, or for all that follow."""

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

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import LoadedThread

FEATURE: Final = "exec_permission_approvals"
"""The switch that lets the model ask for permissions of one command."""

_WITH_MORE: Final = "with_additional_permissions"


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    path: PathFileSystemPath
    access: FileSystemAccessMode


class _Files(msgspec.Struct, forbid_unknown_fields=True):
    read: list[str] | None = None
    write: list[str] | None = None
    entries: list[_Entry] | None = None

    def paths(self, access: FileSystemAccessMode, cwd: str) -> list[str]:
        """The places asked for, without their short forms."""
        named = self.read if access == "read" else self.write
        entries = [entry.path.path for entry in self.entries or () if entry.access == access]
        return absolute([*(named or ()), *entries], cwd)


class NetworkOption(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the network is wanted."""

    enabled: bool | None = None


class Permissions(msgspec.Struct, forbid_unknown_fields=True):
    """Permissions in the model's spelling."""

    network: NetworkOption | None = None
    file_system: _Files | None = None


def parts_of(
    asked: Permissions, cwd: str
) -> tuple[AdditionalFileSystemPermissions | None, AdditionalNetworkPermissions | None]:
    """The same in the protocol's spelling; a part that asks for nothing is left out."""
    files, network = asked.file_system, asked.network
    enabled = network.enabled if network is not None else None
    return (
        files_of(files.paths("read", cwd), files.paths("write", cwd)) if files else None,
        None if enabled is None else AdditionalNetworkPermissions(enabled=enabled),
    )


def files_of(read: Sequence[str], write: Sequence[str]) -> AdditionalFileSystemPermissions | None:
    """Places in the newer spelling and in the older one."""
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


def absolute(paths: Iterable[str], cwd: str) -> list[str]:
    """Paths seen from a folder, as they are without links: what is granted cannot be led away."""
    return [os.path.realpath(Path(cwd, path)) for path in paths]


def permissions_schema(words: str) -> dict[str, JsonValue]:
    """How the model is told to spell permissions."""
    return _object(
        words,
        {
            "network": _object(
                "The network.",
                {"enabled": {"type": "boolean", "description": "True asks for it."}},
            ),
            "file_system": _object(
                "Files and folders.",
                {
                    "read": _paths("Paths that commands should be able to read."),
                    "write": _paths("Paths that commands should be able to write."),
                },
            ),
        },
    )


def _paths(words: str) -> JsonValue:
    return {"type": "array", "items": {"type": "string"}, "description": words}


def _object(words: str, properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    about = {"type": "object", "description": words, "properties": properties}
    return {**about, "additionalProperties": False}


class EscalationOptions(msgspec.Struct, kw_only=True):
    """What the model may say about any command that it wants to run."""

    workdir: str | None = None
    sandbox_permissions: Literal[
        "use_default", "require_escalated", "with_additional_permissions"
    ] = "use_default"
    justification: str | None = None
    prefix_rule: list[str] | None = None
    additional_permissions: Permissions | None = None

    def request(self, call: ToolCall, argv: Sequence[str], settings: RunSettings) -> CommandRequest:
        """The command as it is judged.

        Raises:
            ToolRefused: it asks for more in a way that cannot be answered.
        """
        cwd = os.path.normpath(Path(settings.cwd) / (self.workdir or ""))
        return CommandRequest(
            call_id=call.id,
            argv=tuple(argv),
            cwd=cwd,
            escalated=self.sandbox_permissions == "require_escalated",
            justification=self.justification,
            prefix_rule=tuple(self.prefix_rule) if self.prefix_rule else None,
            additional=self._additional(cwd, is_on=settings.features.get(FEATURE, False)),
        )

    def _additional(self, cwd: str, *, is_on: bool) -> AdditionalPermissionProfile | None:
        asked = self.additional_permissions
        wants_more = self.sandbox_permissions == _WITH_MORE
        if asked is None and not wants_more:
            return None
        if not is_on:
            raise ToolRefused(
                f"additional permissions are disabled; enable `features.{FEATURE}` before using "
                f"`{_WITH_MORE}`"
            )
        if not wants_more:
            raise ToolRefused(
                f"`additional_permissions` requires `sandbox_permissions` set to `{_WITH_MORE}`"
            )
        if asked is None:
            raise ToolRefused(
                "missing `additional_permissions`; provide at least one of `network` or "
                f"`file_system` when using `{_WITH_MORE}`"
            )
        files, network = parts_of(asked, cwd)
        if files is None and not (network and network.enabled):
            raise ToolRefused(
                "`additional_permissions` must include at least one requested permission in "
                "`network` or `file_system`"
            )
        return AdditionalPermissionProfile(files, network)


def wishes_schema(thread: LoadedThread) -> dict[str, JsonValue]:
    """How the model is told of them."""
    is_on = thread.settings.features.get(FEATURE, False)
    return _MORE if is_on else _USUAL


_USUAL: Final[dict[str, JsonValue]] = {
    "workdir": {"type": "string", "description": "Folder to run in; the turn's own by default."},
    "sandbox_permissions": {
        "type": "string",
        "enum": ["use_default", "require_escalated"],
        "description": "`require_escalated` asks the user to run it outside the sandbox.",
    },
    "justification": {
        "type": "string",
        "description": "Only with `require_escalated`: the question to the user, in a sentence.",
    },
    "prefix_rule": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Only with `require_escalated`: the first words of commands that the user "
        'might allow once and for all, such as ["git", "pull"].',
    },
}
_MORE: Final[dict[str, JsonValue]] = {
    **_USUAL,
    "sandbox_permissions": {
        "type": "string",
        "enum": ["use_default", "require_escalated", _WITH_MORE],
        "description": "`require_escalated` asks the user to run it outside the sandbox, "
        f"`{_WITH_MORE}` to open the sandbox as far as `additional_permissions` says.",
    },
    "justification": {
        "type": "string",
        "description": "The question to the user, in a sentence, when more is asked for.",
    },
    "additional_permissions": permissions_schema(
        f"Only with `{_WITH_MORE}`: what this command needs."
    ),
}
