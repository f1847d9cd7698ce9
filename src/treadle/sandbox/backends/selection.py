"""The interface of the backends, and the selection of one by testing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.launched import Descriptors, RunningCommand

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.sandbox.supervisor.launch import CommandLauncher

BackendName = Literal["bubblewrap", "landlock", "seatbelt", "none"]


class SandboxUnavailable(Exception):
    """A command should be confined, and no backend can do it; gives the reason and a fix."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason = reason
        self.fix = fix


class Backend(Protocol):
    """A way to confine commands."""

    @property
    def name(self) -> BackendName:
        """The name of the backend."""
        ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a command could still do, for people."""
        ...

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
        """Start a confined command.

        Raises:
            SandboxUnavailable: the backend cannot enforce this confinement.
            OSError: the kernel refuses.
        """
        ...


async def select_backend(
    launcher: CommandLauncher, *, landlock_protects: bool, folder: Path | None = None
) -> Backend:
    """Return the best backend that works on this machine.

    Raises:
        SandboxUnavailable: no backend works.
        OSError: no descriptor is available for the tests.
    """
    from treadle.sandbox.backends.probe import findings

    failures = []
    async for finding in findings(launcher, landlock_protects=landlock_protects, folder=folder):
        if finding.backend is not None:
            return finding.backend
        failures.append(finding)
    reason = "; ".join(f"{failure.name}: {failure.reason}" for failure in failures)
    fix = next((failure.fix for failure in failures if failure.fix), "")
    raise SandboxUnavailable(f"no sandbox works here ({reason})", fix)
