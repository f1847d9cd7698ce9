"""Runs commands in sandboxes and inspects what they changed."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import uuid4

from tests.harness.sandbox import SANDBOX
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.network.proxy import EgressProxy
from treadle.sandbox.policy import Confinement
from treadle.sandbox.process import Process
from treadle.sandbox.protection import Protection

SECONDS = 30.0
PYTHON = [sys.executable, "-I", "-S", "-c"]
confine = Boundary(Protection()).confine
"""Works out a policy for a server that has nothing to protect."""


@dataclass
class Output:
    """The output of a command."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    grew: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        (self.stdout if stream == "stdout" else self.stderr).extend(data)
        self.grew.set()

    @property
    def text(self) -> str:
        """Return its stdout."""
        return self.stdout.decode()

    async def until(self, word: str) -> None:
        """Wait until it has printed a word."""
        async with asyncio.timeout(SECONDS):
            while word.encode() not in self.stdout:
                self.grew.clear()
                await self.grew.wait()


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    exit_code: int
    stdout: str
    stderr: str


async def start(
    argv: Sequence[str],
    confinement: Confinement,
    *,
    cwd: Path | None = None,
    size: tuple[int, int] | None = None,
    has_stdin: bool = False,
    env: dict[str, str] | None = None,
    proxy: EgressProxy | None = None,
) -> tuple[Process, Output]:
    """Start a command and collect its output."""
    output = Output()
    process = await Process.start(
        SANDBOX,
        argv,
        cwd=str(cwd or Path("/")),
        env={"PATH": os.environ["PATH"]} if env is None else env,
        confinement=confinement,
        on_output=output,
        size=size,
        has_stdin=has_stdin,
        proxy=proxy,
    )
    return process, output


async def run(argv: Sequence[str], confinement: Confinement, *, cwd: Path | None = None) -> Done:
    """Run a command to its end."""
    async with asyncio.timeout(SECONDS):
        process, output = await start(argv, confinement, cwd=cwd)
        code = await process.wait()
    return Done(code, output.text, output.stderr.decode())


def workspace(folder: Path, *roots: Path, network: bool = False) -> Confinement:
    """Return the confinement of a writable workspace, without a temporary folder."""
    policy = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True,
        exclude_tmpdir_env_var=True,
        network_access=network,
        writable_roots=[str(root) for root in roots],
    )
    return confine(policy, str(folder))


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Return every file below a folder: its mode, and its content or link target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            content = str(path.readlink())
        else:
            content = path.read_text() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(folder))] = (mode, content)
    return found


def names(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def new_token() -> str:
    """Return a word that no other process has among its arguments."""
    return f"treadle-{uuid4().hex}"


def processes_with(token: str) -> list[int]:
    """Return the processes with a word among their arguments, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until_gone(token: str) -> None:
    """Wait until processes have ended that are not our children: there is no event for this."""
    deadline = time.monotonic() + SECONDS
    while found := processes_with(token):
        assert time.monotonic() < deadline, f"still there: {found}"
        time.sleep(0.01)
