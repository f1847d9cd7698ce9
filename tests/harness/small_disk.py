"""A server whose home is a small file system, which a test can fill up and relieve."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.model_server import ModelServer, model_server
from tests.harness.peer import Peer
from tests.harness.processes import TREADLE, environment
from tests.harness.threads import Client, configure
from treadle.transport.subprocess import SubprocessTransport, spawn

_SIZE = "16m"
_MOUNT = """
mount -t tmpfs -o "size=$1,mode=700" none "$2"
cp -r "$3/." "$2"
shift 3
exec "$@"
"""


@dataclass(slots=True)
class SmallDisk:
    """The server, its client, its model, and its home as it is seen from outside."""

    client: Client
    model: ModelServer
    workspace: Path
    home: Path
    server: SubprocessTransport

    def fill(self) -> None:
        """Leave no room for a single page."""
        with (self.home / "ballast").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(64 * 1024))
        with (self.home / "ballast").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1))

    def make_room(self) -> None:
        """Delete what `fill` has written."""
        (self.home / "ballast").unlink()

    def save(self, to: Path) -> None:
        """Copy the home, without ballast and index, to a disk that outlives the server."""
        shutil.copytree(self.home, to, ignore=shutil.ignore_patterns("ballast", "treadle.sqlite*"))


def _mount_prefix() -> list[str]:
    """Return the words before a command that let it mount a file system; skip without any."""
    words = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-Ur", "--mount"]
    try_it = [*words, "mount", "-t", "tmpfs", "none", "/mnt"]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    if subprocess.run(try_it, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system may be mounted here, not even in a user namespace")
    return words


@asynccontextmanager
async def small_disk(folder: Path) -> AsyncIterator[SmallDisk]:
    """Start a server whose home has room for 16 MiB."""
    words = _mount_prefix()
    home, seed, workspace = folder / "small", folder / "seed", folder / "work"
    for each in (home, seed, workspace):
        each.mkdir()
    async with model_server() as model:
        configure(seed, model)
        server = [TREADLE, "app-server"]
        command = [*words, "sh", "-ec", _MOUNT, "sh", _SIZE, str(home), str(seed), *server]
        transport = spawn(command, cwd=folder, env=environment(home))
        try:
            client = Client(Peer(transport))
            await client.initialize()
            inside = Path(f"/proc/{transport.pid}/root{home}")
            yield SmallDisk(client, model, workspace, inside, transport)
        finally:
            await transport.close()
