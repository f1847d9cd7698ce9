"""The sandbox of a server: the one object through which all its commands are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from treadle.sandbox.peers.commands import NetworkedCommands

# Imported with the first command: most servers answer their first requests without one.
if TYPE_CHECKING:
    from pathlib import Path

    from treadle.sandbox.backends.selection import Backend
    from treadle.sandbox.policy import Confinement
    from treadle.sandbox.supervisor.launch import CommandLauncher
    from treadle.sandbox.supervisor.launched import Descriptors, RunningCommand


class Sandbox:
    """Owns the supervisor, the selected backend and the record of networked commands.

    `landlock_protects` is read when the backend is selected. A backend that is given here is used
    without a test. Others are tested in a folder, which commands must not be able to write.
    """

    def __init__(
        self,
        *,
        landlock_protects: Callable[[], bool] = lambda: False,
        backend: Backend | None = None,
        folder: Path | None = None,
    ) -> None:
        self.networked = NetworkedCommands()
        self._landlock_protects = landlock_protects
        self._backend = backend
        self._folder = folder

    @cached_property
    def launcher(self) -> CommandLauncher:
        """Starts commands under the supervisor of this sandbox."""
        from treadle.sandbox.supervisor.launch import CommandLauncher

        return CommandLauncher(self.networked)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What commands can still do under the selected backend; empty before the selection."""
        return () if self._backend is None else self._backend.gaps

    async def prepare(self) -> None:
        """Do in advance what the first command would wait for; ignore failures."""
        from treadle.sandbox.backends.selection import SandboxUnavailable
        from treadle.sandbox.supervisor.launch import HAS_SUPERVISOR

        with suppress(SandboxUnavailable, OSError):
            if HAS_SUPERVISOR:
                self.launcher.start_supervisor()
            await self.find_backend()

    async def find_backend(self) -> Backend:
        """Return the best working backend; if none works, test again on the next call.

        Raises:
            SandboxUnavailable: no backend works.
            OSError: no descriptor is available for the tests.
        """
        if self._backend is None:
            from treadle.sandbox.backends.selection import select_backend

            self._backend = await select_backend(
                self.launcher, landlock_protects=self._landlock_protects(), folder=self._folder
            )
        return self._backend

    async def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        fds: Descriptors,
    ) -> RunningCommand:
        """Start a command with its confinement.

        Raises:
            SandboxUnavailable: it should be confined, and no backend can do that.
            OSError: the command or its folder is missing or inaccessible.
        """
        from treadle.sandbox.supervisor.launch import HAS_SUPERVISOR, require

        launcher = self.launcher
        if confinement.is_unrestricted:
            return await launcher.launch_unrestricted(argv, cwd=cwd, env=env, fds=fds)
        require(argv[0], cwd=cwd, env=env)
        backend = await self.find_backend()
        start = partial(
            backend.launch,
            argv,
            cwd=cwd,
            env=env,
            confinement=confinement,
            fds=fds,
            launcher=launcher,
        )
        if not confinement.network or not HAS_SUPERVISOR:
            return await start()
        self.networked.on_start(is_in_namespaces=backend.name == "bubblewrap")
        try:
            child = await start()
        except BaseException:
            self.networked.on_end()
            raise
        child.exited.add_done_callback(lambda _exited: self.networked.on_end())
        return child

    async def close(self) -> None:
        """End the supervisor, if there is one."""
        if "launcher" in self.__dict__:
            await self.launcher.close()
