"""Selects the backend for this machine, once, by testing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Protocol

from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.child import Descriptors, RunningCommand

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
    ) -> RunningCommand:
        """Start a confined command.

        Raises:
            SandboxUnavailable: the backend cannot enforce this confinement.
            OSError: the kernel refuses.
        """
        ...


_chosen: list[Backend] = []
_wishes: dict[str, bool] = {"landlock_protects": False}


def wish(*, landlock_protects: bool) -> None:
    """Set the options of backends; call this before the first command."""
    _wishes["landlock_protects"] = landlock_protects


def known_gaps() -> tuple[str, ...]:
    """What commands can still do under the selected backend; empty before the selection."""
    return _chosen[0].gaps if _chosen else ()


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Use this backend for a while, regardless of the selection."""
    before = _chosen[:]
    _chosen[:] = [backend]
    try:
        yield
    finally:
        _chosen[:] = before


async def prepare() -> None:
    """Do in advance what the first command would wait for; ignores failures."""
    from treadle.sandbox.supervisor.launch import HAS_SUPERVISOR, start_supervisor

    with suppress(SandboxUnavailable, OSError):
        if HAS_SUPERVISOR:
            start_supervisor()
        await find_backend()


async def find_backend() -> Backend:
    """Return the best working backend; if none works, test again on the next call.

    Raises:
        SandboxUnavailable: no backend works.
        OSError: no descriptor is available for the tests.
    """
    if not _chosen:
        from treadle.sandbox.backends.probe import findings

        causes = []
        async for finding in findings(**_wishes):
            if finding.backend is not None:
                _chosen.append(finding.backend)
                break
            causes.append(finding)
        else:
            reason = "; ".join(f"{cause.name}: {cause.reason}" for cause in causes)
            fix = next((cause.fix for cause in causes if cause.fix), "")
            raise SandboxUnavailable(f"no sandbox works here ({reason})", fix)
    return _chosen[0]
