"""The one place that decides what commands and tools of the model may write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from treadle.sandbox.paths import find_program, links, real
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

    def trusted_path(self, path: str, confinement: Confinement) -> str:
        """The folders of a `PATH` into which no command can have put a program.

        A relative folder depends on where a command runs, and therefore is not trusted either.
        """
        folders = path.split(os.pathsep)
        return os.pathsep.join(each for each in folders if self._is_trusted(each, confinement))

    def is_trusted_program(
        self, name: str, path: str, confinement: Confinement, *, cwd: str | None
    ) -> bool:
        """Whether a name leads to a program that no command can have made or changed.

        A plain name that leads nowhere is trusted: it is built into the shell, or fails. A path is
        resolved against `cwd`; without one, a relative path is not trusted.
        """
        if "/" in name:
            is_known = cwd is not None or name.startswith("/")
            found = find_program(name, cwd=cwd or "/", path="") if is_known else None
        elif find_program(name, cwd="/", path=path) is None:
            return True
        else:
            trusted = self.trusted_path(path, confinement)
            found = find_program(name, cwd="/", path=trusted) if trusted else None
        return found is not None and self._is_safe(found, confinement)

    def _is_trusted(self, folder: str, confinement: Confinement) -> bool:
        if not folder.startswith("/") or not self._is_safe(folder, confinement):
            return False
        if confinement.is_open(os.path.normpath(folder)):
            return False
        return self._opened is None or not self._opened.may_have_filled(real(folder))

    def _is_safe(self, path: str, confinement: Confinement) -> bool:
        """Whether no command can have chosen what a path leads to, by a link or in its place."""
        opened = self._opened
        return not any(
            confinement.is_open(place) or (opened is not None and opened.may_have_made(place))
            for place in (*links(path), real(path))
        )
