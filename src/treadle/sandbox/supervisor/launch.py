"""Starts a command: under a supervisor, or as a direct child where there is none."""

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
from treadle.sandbox.peers.identity import NETWORKED
from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.child import Descriptors, RunningCommand
from treadle.sandbox.supervisor.client import Confined, Supervisor, SupervisorGone
from treadle.sandbox.supervisor.delegation import delegated_group

HAS_SUPERVISOR: Final = os.uname().sysname == "Linux"
"""Whether this system lets a process track all of its descendants."""

_supervisors: list[Supervisor] = []


async def launch(
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
    if confinement.is_unrestricted:
        if HAS_SUPERVISOR:
            return await launch_kept(argv, cwd=cwd, env=env, fds=fds)
        return launch_direct(argv, cwd=cwd, env=env, fds=fds)
    from treadle.sandbox.backends.selection import find_backend

    require(argv[0], cwd=cwd, env=env)
    backend = await find_backend()
    start = partial(backend.launch, argv, cwd=cwd, env=env, confinement=confinement, fds=fds)
    if not confinement.network or not HAS_SUPERVISOR:
        return await start()
    NETWORKED.on_start(is_in_namespaces=backend.name == "bubblewrap")
    try:
        child = await start()
    except BaseException:
        NETWORKED.on_end()
        raise
    child.exited.add_done_callback(lambda _exited: NETWORKED.on_end())
    return child


def require(program: str, *, cwd: str, env: Mapping[str, str]) -> None:
    """Check for the program and its folder: a sandbox would give a worse error message.

    Raises:
        OSError: one of them is missing.
    """
    if not Path(cwd).is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), cwd)
    if find_program(program, cwd=cwd, path=env.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), program)


def start_supervisor() -> Supervisor:
    """Return the supervisor of this process; start it for the first command."""
    if not _supervisors:
        # First: the supervisor starts in the cgroup of this process.
        _supervisors.append(Supervisor(delegated_group()))
        NETWORKED.supervisors.append(_supervisors[0].pid)
    return _supervisors[0]


async def launch_kept(
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
    """Start a command under the supervisor of this process, or a new one if it was killed."""
    supervisor = start_supervisor()
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
        if supervisor in _supervisors:
            _supervisors.remove(supervisor)
            supervisor.close()
        return await start(start_supervisor())


def launch_direct(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    fds: Descriptors,
) -> RunningCommand:
    """Start a command as a child in its own process group, which `kill` ends."""
    process = subprocess.Popen(
        argv,
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

    return RunningCommand(process.pid, exited, kill)


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
