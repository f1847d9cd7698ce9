"""The boundary: decides what commands and tools of the model may write."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from treadle.sandbox.paths import find_program, is_within, links, parents, real
from treadle.sandbox.policy import PROTECTED, Confinement, confine, restricts_reading
from treadle.sandbox.protection import Protection

if TYPE_CHECKING:
    from treadle.protocol.permission import AdditionalPermissionProfile
    from treadle.protocol.policy import SandboxPolicy
    from treadle.sandbox.opened_roots import OpenedRoots


class Boundary:
    """Computes confinements in which nothing that controls the sandbox is writable.

    Commands, patches, images, MCP servers and `command/exec` all use the boundary of their server.
    It knows what the server protects and which folders its commands could write so far.
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
        """Compute the confinement of a policy for commands of a folder, extended by grants."""
        found = self._compute(policy, cwd, environ, granted)
        if self._opened is not None:
            # Recorded before the first command can write there.
            self._opened.add(root.path for root in found.writable)
        return found

    def may_read(self, policy: SandboxPolicy, cwd: str) -> Callable[[str], bool]:
        """Return the check of what commands of a folder may read, without grants."""
        if not restricts_reading(policy):
            return lambda _path: True
        # No command runs with this confinement, so no folder is recorded as writable.
        return self._compute(policy, cwd).may_read

    def may_follow(self, policy: SandboxPolicy, cwd: str) -> Callable[[str], bool]:
        """Return the check of links that neither a command nor the workspace can have made."""
        found, workspace, opened = self._compute(policy, cwd), real(cwd), self._opened
        return lambda link: (
            not (
                is_within(link, workspace)
                or found.is_open(link)
                or (opened is not None and opened.may_have_made(link))
            )
        )

    def _compute(
        self,
        policy: SandboxPolicy,
        cwd: str,
        environ: Mapping[str, str] | None = None,
        granted: Sequence[AdditionalPermissionProfile] = (),
    ) -> Confinement:
        opened = self._opened
        return confine(
            policy,
            cwd,
            protected=self._protection.now(),
            is_planted=(lambda _link: False) if opened is None else opened.may_have_made,
            environ=environ,
            granted=granted,
        )

    def trusted_path(
        self, path: str, confinement: Confinement, *, names: Collection[str] = ()
    ) -> str:
        """Return the folders of a `PATH` in which no command can have created a program.

        A relative folder depends on where a command runs, so it is not trusted either, nor is one
        in which one of the names is a link to a program that a command can have created.
        """
        return os.pathsep.join(
            folder
            for folder in path.split(os.pathsep)
            if self._is_trusted(folder, confinement)
            and all(self._is_safe(f"{folder}/{name}", confinement) for name in names)
        )

    def is_trusted_program(
        self, name: str, path: str, confinement: Confinement, *, cwd: str | None
    ) -> bool:
        """Return whether a name leads to a program that no command can have created or changed.

        A plain name that is not found is trusted: it is a shell builtin, or fails. A path is
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

    def is_protected(self, path: str, confinement: Confinement, *, top: str | None) -> bool:
        """Return whether no command can have created, changed or redirected a path.

        `top` is the folder that contains it in `.git`, if one does: `top` itself may be writable,
        names such as `.git` directly in it are not.
        """
        return self._is_safe(path, confinement, above=top)

    def is_fixed(self, path: str, confinement: Confinement) -> bool:
        """Return whether no command can change what a path leads to, or lead it elsewhere.

        Nor has one while it could. Unlike `is_protected`, a new file counts too if it is where no
        command can ever write.
        """
        protected, opened = self._protection.now(), self._opened
        return all(
            not confinement.is_open(place)
            and (
                opened is None
                or not protected.may_open(place)
                or not opened.may_have_made(place, above=_above_settings(place))
            )
            for place in (*links(path), real(path))
        )

    def _is_trusted(self, folder: str, confinement: Confinement) -> bool:
        if not folder.startswith("/") or not self._is_safe(folder, confinement):
            return False
        if confinement.is_open(os.path.normpath(folder)):
            return False
        return self._opened is None or not self._opened.may_have_filled(real(folder))

    def _is_safe(self, path: str, confinement: Confinement, *, above: str | None = None) -> bool:
        """Return whether no command can have redirected a path, by a link or a replacement."""
        opened = self._opened
        return not any(
            confinement.is_open(place)
            or (opened is not None and opened.may_have_made(place, above=above))
            for place in (*links(path), real(path))
        )


def _above_settings(path: str) -> str | None:
    """Return the folder of the settings that contain a path: commands there cannot write them."""
    folders = (os.path.split(each) for each in (path, *parents(path)))
    return next((above for above, name in folders if name in PROTECTED), None)
