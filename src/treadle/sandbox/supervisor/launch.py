"""Starts commands: under a supervisor, or as direct children where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from errno import ENOENT
from functools import partial
from pathlib import Path
from typing import Final

from treadle.sandbox.backends.placeholders import Placeholder
from treadle.sandbox.paths import find_program
from treadle.sandbox.peers.commands import NetworkedCommands
from treadle.sandbox.supervisor.client import Confined, Supervisor, SupervisorGone
from treadle.sandbox.supervisor.delegation import delegated_group
from treadle.sandbox.supervisor.launched import Descriptors, RunningCommand
from treadle.support.files.programs import find_on_path

HAS_SUPERVISOR: Final = os.uname().sysname == "Linux"
"""Whether this system lets a process track all of its descendants."""


class CommandLauncher:
    """Starts commands under one supervisor, which it starts when needed and replaces if it dies."""

    def __init__(self, networked: NetworkedCommands) -> None:
        self._networked = networked
        self._supervisor: Supervisor | None = None

    def start_supervisor(self) -> Supervisor:
        """Return the supervisor; start it for the first command."""
        if self._supervisor is None:
            # First: the supervisor starts in the cgroup of this process.
            self._supervisor = Supervisor(delegated_group())
            self._networked.supervisors.append(self._supervisor.pid)
        return self._supervisor

    async def launch_supervised(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        fds: Descriptors,
        confined: Confined | None = None,
        inherited: Sequence[int] = (),
        placeholders: Sequence[Placeholder] = (),
        ends: bool = False,
    ) -> RunningCommand:
        """Start a command under the supervisor, or under a new one if it was killed."""
        supervisor = self.start_supervisor()
        start = partial(
            Supervisor.launch,
            argv=argv,
            cwd=cwd,
            env=env,
            fds=fds,
            confined=confined,
            inherited=inherited,
            placeholders=placeholders,
            ends=ends,
        )
        try:
            return await start(supervisor)
        except SupervisorGone:
            # Another caller may have noticed first, and started a new one.
            if supervisor is self._supervisor:
                self._supervisor = None
                supervisor.close()
            return await start(self.start_supervisor())

    async def launch_unrestricted(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], fds: Descriptors
    ) -> RunningCommand:
        """Start a command without a sandbox."""
        if HAS_SUPERVISOR:
            return await self.launch_supervised(argv, cwd=cwd, env=env, fds=fds)
        return self.launch_direct(argv, cwd=cwd, env=env, fds=fds)

    @staticmethod
    def launch_direct(
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        fds: Descriptors,
    ) -> RunningCommand:
        """Start a command as a child in its own process group, which `kill` ends."""
        program = argv[0] if "/" in argv[0] else find_on_path(argv[0], env.get("PATH"))
        if program is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), argv[0])
        process = subprocess.Popen(
            argv,
            executable=program,
            stdin=fds.stdin,
            stdout=fds.stdout,
            stderr=fds.stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        exited = _watch(process)

        def kill() -> None:
            if not exited.done():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)

        # Nothing finds what is left after the command itself.
        return RunningCommand(process.pid, exited, kill, is_gone=exited.done)

    async def close(self) -> None:
        """End the supervisor; commands that still run are killed when their pipes are closed."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.end()


def require(program: str, *, cwd: str, env: Mapping[str, str]) -> None:
    """Check for the program and its folder: a sandbox would give a worse error message.

    Raises:
        OSError: one of them is missing.
    """
    if not Path(cwd).is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), cwd)
    if find_program(program, cwd=cwd, path=env.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), program)


def _watch(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """Return the future exit code; the child is reaped even if no caller waits."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return loop.run_in_executor(None, _reap, process)
    exited: asyncio.Future[int] = loop.create_future()
    pidfd = os.pidfd_open(process.pid)

    def reap() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        code = _reap(process)
        if not exited.done():
            exited.set_result(code)

    loop.add_reader(pidfd, reap)
    return exited


def _reap(process: subprocess.Popen[bytes]) -> int:
    code = process.wait()
    return code if code >= 0 else 128 - code
