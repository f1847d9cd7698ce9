"""The backends behind one interface: namespaces, Landlock, Seatbelt."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.sandbox.backends import bubblewrap, landlock, seatbelt
from treadle.sandbox.backends.selection import BackendName, SandboxUnavailable
from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.client import Confined
from treadle.sandbox.supervisor.launch import CommandLauncher
from treadle.sandbox.supervisor.launched import Descriptors, RunningCommand
from treadle.support.files.descriptors import inherited_limit

_FIX_LINK: Final = "replace it with a folder, or run the command without a sandbox"
# Landlock filters ports, not hosts: any listener on the proxy's port would be reachable.
_NO_PROXY: Final = "only bubblewrap can restrict commands to chosen hosts"
_FIX_PROXY: Final = "install bubblewrap, or turn off the managed network"
_FIX_DESCRIPTORS: Final = "use fewer writable roots, or raise the limit (ulimit -n)"
# What the supervisor and a guard have open besides.
_SPARE: Final = 32
_ALL: Final = bubblewrap.NamespaceSupport()


class Bubblewrap(Struct, frozen=True):
    """Namespaces around each command, created by the program with this name."""

    program: str
    flavour: bubblewrap.NamespaceSupport = _ALL
    name: BackendName = "bubblewrap"

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a command could still do, for people."""
        return bubblewrap.gaps(self.flavour)

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        fds: Descriptors,
        launcher: CommandLauncher,
    ) -> RunningCommand:
        """Start a command in its own namespaces."""
        try:
            wrapped = bubblewrap.wrap(
                argv,
                program_path=self.program,
                flavour=self.flavour,
                cwd=cwd,
                env=env,
                confinement=confinement,
                has_terminal=fds.is_terminal,
            )
        except bubblewrap.Unprotectable as error:
            raise SandboxUnavailable(str(error), _FIX_LINK) from error
        try:
            _check_descriptors(len(wrapped.placeholders) + len(wrapped.descriptors))
            child = await launcher.launch_supervised(
                wrapped.argv,
                cwd="/",
                env=bubblewrap.outer_environment(env),
                # The terminal is for the command, not for bubblewrap.
                fds=replace(fds, is_terminal=False),
                inherited=[
                    wrapped.filter_fd,
                    *([] if fds.proxy is None else [fds.proxy]),
                    *wrapped.mounted,
                ],
                placeholders=wrapped.placeholders,
                ends=True,
            )
        except BaseException:
            for placeholder in wrapped.placeholders:
                placeholder.release()
            raise
        finally:
            for descriptor in wrapped.descriptors:
                os.close(descriptor)
        for placeholder in wrapped.placeholders:
            placeholder.hand_over()
        return child


def _check_descriptors(needed: int) -> None:
    """Reject what the supervisor could not receive; the kernel would drop the excess.

    Raises:
        SandboxUnavailable: a command needs more descriptors than it may have.
    """
    limit = inherited_limit() - _SPARE
    if needed > limit:
        reason = (
            f"the writable folders of the command need {needed} descriptors, {limit} are available"
        )
        raise SandboxUnavailable(reason, _FIX_DESCRIPTORS)


class Landlock(Struct, frozen=True):
    """Rules that a command cannot remove, under a guard that it cannot escape."""

    # Whether .git and the like stay read-only; nothing new can be created beside them then.
    protects: bool = False
    name: BackendName = "landlock"

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a command could still do, for people."""
        return landlock.gaps(landlock.version(), protects=self.protects)

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        fds: Descriptors,
        launcher: CommandLauncher,
    ) -> RunningCommand:
        """Start a command that applies the rules before it runs."""
        if confinement.has_proxy:
            raise SandboxUnavailable(_NO_PROXY, _FIX_PROXY)
        ruleset = landlock.ruleset(confinement, protects=self.protects)
        try:
            confined = Confined(ruleset, landlock.filter_program(confinement))
            return await launcher.launch_supervised(
                argv, cwd=cwd, env=env, fds=fds, confined=confined, ends=True
            )
        finally:
            os.close(ruleset)


class Seatbelt(Struct, frozen=True):
    """The macOS sandbox."""

    name: BackendName = "seatbelt"
    gaps: tuple[str, ...] = ()

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        fds: Descriptors,
        launcher: CommandLauncher,
    ) -> RunningCommand:
        """Start a command under a generated profile."""
        if confinement.has_proxy:
            raise SandboxUnavailable(_NO_PROXY, _FIX_PROXY)
        wrapped = seatbelt.arguments(argv, confinement)
        return launcher.launch_direct(wrapped, cwd=cwd, env=env, fds=fds)
