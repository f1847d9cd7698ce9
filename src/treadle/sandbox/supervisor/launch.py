"""Starts a command: under a keeper, or as a direct child where there is none."""

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

HAS_KEEPER: Final = os.uname().sysname == "Linux"
"""Whether this system can tell a process about all that it started."""

_keepers: list[Supervisor] = []


async def launch(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    confinement: Confinement,
    fds: Descriptors,
) -> RunningCommand:
    """Start a command as its confinement asks for.

    Raises:
        SandboxUnavailable: it should be confined and nothing here can do that.
        OSError: the command or its folder is not there or may not be used.
    """
    if confinement.is_unrestricted:
        if HAS_KEEPER:
            return await launch_kept(argv, cwd=cwd, env=env, fds=fds)
        return launch_direct(argv, cwd=cwd, env=env, fds=fds)
    from treadle.sandbox.backends.selection import find_backend

    require(argv[0], cwd=cwd, env=env)
    backend = await find_backend()
    start = partial(backend.launch, argv, cwd=cwd, env=env, confinement=confinement, fds=fds)
    if not confinement.network or not HAS_KEEPER:
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
    """Look for a program and its folder, which a sandbox would only complain about in passing.

    Raises:
        OSError: one of them is not there.
    """
    if not Path(cwd).is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), cwd)
    if find_program(program, cwd=cwd, path=env.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), program)


def start_keeper() -> Supervisor:
    """The keeper of this process, started if it is the first command's."""
    if not _keepers:
        # First: the keeper is where this process is.
        _keepers.append(Supervisor(delegated_group()))
        NETWORKED.keepers.append(_keepers[0].pid)
    return _keepers[0]


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
    """Start a command under the keeper of this process, or under a new one if that was killed."""
    keeper = start_keeper()
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
        return await start(keeper)
    except SupervisorGone:
        # Others may have noticed first, and have started a new one.
        if keeper in _keepers:
            _keepers.remove(keeper)
            keeper.close()
        return await start(start_keeper())


def launch_direct(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    fds: Descriptors,
) -> RunningCommand:
    """Start a command as a child that leads a group of its own, which is what `kill` ends."""
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
    """The exit code to come; nobody has to wait for it for the child to be reaped."""
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
