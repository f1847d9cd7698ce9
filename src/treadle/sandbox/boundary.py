"""The one place that decides what commands and tools of the model may write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from treadle.sandbox.paths import find_program, real
from treadle.sandbox.policy import Confinement, confine
from treadle.sandbox.protection import Protection

if TYPE_CHECKING:
    from treadle.protocol.permission import AdditionalPermissionProfile
    from treadle.protocol.policy import SandboxPolicy
    from treadle.sandbox.opened_roots import OpenedRoots


class Boundary:
    """Works out confinements under which nothing that decides about the sandbox is writable.

    Commands, patches, images, MCP servers and `command/exec` all ask the boundary of their server.
    It knows what that server protects and which folders its commands could write so far.
    """

    def __init__(self, protection: Protection, opened: OpenedRoots | None = None) -> None:
        self._protection = protection
        self._opened = opened

    def confine(
        self,
        policy: SandboxPolicy,
        cwd: str,
        *,
        environ: Mapping[str, str] | None = None,
        granted: Sequence[AdditionalPermissionProfile] = (),
    ) -> Confinement:
        """Work out a policy for commands of a folder, widened by what was granted."""
        opened = self._opened
        found = confine(
            policy,
            cwd,
            protected=self._protection.now(),
            is_planted=(lambda _link: False) if opened is None else opened.may_have_made,
            environ=environ,
            granted=granted,
        )
        if opened is not None:
            # Recorded before the first command can write there.
            opened.add(root.path for root in found.writable)
        return found


def trusted_path(path: str, confinement: Confinement) -> str:
    """The folders of a `PATH` that commands in this confinement cannot write.

    A relative folder depends on where a command runs, and therefore is not trusted either.
    """
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not _is_writable(folder, confinement)
    ]
    return os.pathsep.join(folders)


def is_out_of_sandbox(program: str, path: str, confinement: Confinement) -> bool:
    """Whether a bare name leads to a program that commands in this confinement cannot replace."""
    if "/" in program:
        return True
    trusted = trusted_path(path, confinement)
    is_trusted = find_program(program, cwd="/", path=trusted) is not None if trusted else False
    return is_trusted or find_program(program, cwd="/", path=path) is None


def _is_writable(folder: str, confinement: Confinement) -> bool:
    """Whether commands can put a program into a folder, or another folder in its place."""
    return confinement.is_open(real(folder)) or confinement.is_open(os.path.normpath(folder))
