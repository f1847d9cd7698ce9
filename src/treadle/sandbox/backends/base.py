"""The ways to confine commands: namespaces, Landlock, Seatbelt."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from treadle.sandbox.backends import bubblewrap, landlock, seatbelt
from treadle.sandbox.backends.selection import BackendName, SandboxUnavailable
from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.child import Descriptors, RunningCommand
from treadle.sandbox.supervisor.client import Confined
from treadle.sandbox.supervisor.launch import launch_direct, launch_kept
from treadle.support.files.descriptors import inherited_limit

_FIX_LINK: Final = "put a folder in its place, or let the command run without a sandbox"
# Landlock tells ports apart and no hosts: whoever listens on the gate's port could be reached.
_NO_GATE: Final = "commands can be kept to chosen hosts only by bubblewrap"
_FIX_GATE: Final = "install bubblewrap, or switch the managed network off"
_FIX_DESCRIPTORS: Final = "name fewer writable roots, or raise the limit (ulimit -n)"
# What the keeper and a guard have open besides.
_SPARE: Final = 32
_ALL: Final = bubblewrap.NamespaceSupport()


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces around each command, made by the program of this name."""

    program: str
    flavour: bubblewrap.NamespaceSupport = _ALL
    name: BackendName = "bubblewrap"

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a command could still do, in words for people."""
        return bubblewrap.gaps(self.flavour)

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        fds: Descriptors,
    ) -> RunningCommand:
        """Start a command in namespaces of its own."""
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
            child = await launch_kept(
                wrapped.argv,
                cwd="/",
                env=bubblewrap.outer_environment(env),
                # The terminal is for the command, not for bubblewrap.
                fds=replace(fds, is_terminal=False),
                inherited=[
                    wrapped.filter_fd,
                    *([] if fds.gate is None else [fds.gate]),
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
    """Refuse what the keeper could not take; the kernel would drop what is too much.

    Raises:
        SandboxUnavailable: a command needs more descriptors than it may have.
    """
    limit = inherited_limit() - _SPARE
    if needed > limit:
        reason = f"the writable folders of the command need {needed} descriptors, {limit} are left"
        raise SandboxUnavailable(reason, _FIX_DESCRIPTORS)


@dataclass(frozen=True, slots=True)
class Landlock:
    """Rules that a command cannot shed, under a guard that cannot be fled."""

    # Whether .git and the like stay read-only, at the price of nothing new beside them.
    protects: bool = False
    name: BackendName = "landlock"

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a command could still do, in words for people."""
        return landlock.gaps(landlock.version(), protects=self.protects)

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        fds: Descriptors,
    ) -> RunningCommand:
        """Start a command that puts the rules on before it runs."""
        if confinement.has_gate:
            raise SandboxUnavailable(_NO_GATE, _FIX_GATE)
        ruleset = landlock.ruleset(confinement, protects=self.protects)
        try:
            confined = Confined(ruleset, landlock.filter_program(confinement))
            return await launch_kept(argv, cwd=cwd, env=env, fds=fds, confined=confined, ends=True)
        finally:
            os.close(ruleset)


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """The sandbox of macOS."""

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
    ) -> RunningCommand:
        """Start a command under a profile made for it."""
        if confinement.has_gate:
            raise SandboxUnavailable(_NO_GATE, _FIX_GATE)
        wrapped = seatbelt.arguments(argv, confinement)
        return launch_direct(wrapped, cwd=cwd, env=env, fds=fds)
