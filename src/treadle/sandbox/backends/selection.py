"""The way to confine commands on this machine, chosen once by trying."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Protocol

from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.child import Descriptors, RunningCommand

BackendName = Literal["bubblewrap", "landlock", "seatbelt", "none"]


class SandboxUnavailable(Exception):
    """A command should be confined, and that cannot be done; says why, and what would help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason = reason
        self.fix = fix


class Backend(Protocol):
    """One way to confine commands."""

    @property
    def name(self) -> BackendName:
        """What it is called."""
        ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a command could still do, in words for people."""
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
        """Start a command, confined.

        Raises:
            SandboxUnavailable: this confinement is more than it can do.
            OSError: the kernel refuses.
        """
        ...


_chosen: list[Backend] = []
_wishes: dict[str, bool] = {"landlock_protects": False}


def wish(*, landlock_protects: bool) -> None:
    """Say how commands are to be confined where there is a choice; before the first of them."""
    _wishes["landlock_protects"] = landlock_protects


def known_gaps() -> tuple[str, ...]:
    """What commands can still do under the backend that was chosen; nothing before one was."""
    return _chosen[0].gaps if _chosen else ()


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Confine with this backend for a while, whatever works best here."""
    before = _chosen[:]
    _chosen[:] = [backend]
    try:
        yield
    finally:
        _chosen[:] = before


async def prepare() -> None:
    """Do ahead of time what the first command would wait for; says nothing of what is missing."""
    from treadle.sandbox.supervisor.launch import HAS_KEEPER, start_keeper

    with suppress(SandboxUnavailable, OSError):
        if HAS_KEEPER:
            start_keeper()
        await find_backend()


async def find_backend() -> Backend:
    """The best that works here; none that works is looked for again the next time.

    Raises:
        SandboxUnavailable: nothing works.
        OSError: no descriptor is left to find out.
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
