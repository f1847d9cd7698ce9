"""A sandboxed command tries to replace the server's socket by its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.sandbox import findings, using
from tests.sandbox.commands import PYTHON, run
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.protection import server_protection
from treadle.support.listeners import OWN_LISTENERS
from treadle.transport.unix import UnixListener

TRICKS = {
    "a rename": "os.rename(path, path + '.real')",
    "a removal": "os.unlink(path)",
    "a rename over it": "open('x', 'w').close(); os.rename('x', path)",
    "a rename of its folder": "os.rename('deep/run', 'deep/old'); os.mkdir('deep/run')",
    "a rename of a folder above": "os.rename('deep', 'old'); os.makedirs('deep/run')",
}
HIJACK = """
import os, socket, sys
path = sys.argv[1]
try:
    {trick}
except OSError:
    pass
line = socket.socket(socket.AF_UNIX)
try:
    line.bind(path)
except OSError:
    print("kept")
"""


@pytest.fixture
def ws(short_folder: Path) -> Path:
    """Return a writable folder whose path is short enough for a socket."""
    folder = short_folder.resolve() / "ws"
    (folder / "deep").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
async def test_command_cannot_replace_the_servers_socket(
    home: Path, ws: Path, name: str, trick: str
) -> None:
    backends = {f.name: f.backend async for f in findings() if f.backend is not None}
    if name not in backends:
        pytest.skip(f"{name} does not work here")
    listener = UnixListener(ws / "deep" / "run" / "s")
    await listener.start()
    try:
        before = os.stat(listener.path)  # noqa: PTH116 - a socket, not a link
        policy = WorkspaceWriteSandboxPolicy(
            network_access=True, exclude_slash_tmp=True, exclude_tmpdir_env_var=True
        )
        confinement = Boundary(server_protection(str(home))).confine(policy, str(ws))
        assert confinement.network
        with using(backends[name]):
            argv = [*PYTHON, HIJACK.format(trick=trick), str(listener.path)]
            done = await run(argv, confinement, cwd=ws)
        assert (done.stdout, done.stderr) == ("kept\n", "")
        assert os.path.samestat(before, listener.path.stat())
    finally:
        listener.close()
    assert OWN_LISTENERS.paths == frozenset()


async def test_link_that_clients_use_is_protected_too(home: Path, ws: Path) -> None:
    (ws / "real").mkdir()
    (ws / "deep" / "link").symlink_to(ws / "real")
    listener = UnixListener(ws / "deep" / "link" / "s")
    await listener.start()
    try:
        policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
        confinement = Boundary(server_protection(str(home))).confine(policy, str(ws))
        assert not confinement.may_write(str(ws / "deep" / "link" / "s"))
        assert not confinement.is_open(str(ws / "deep" / "link"))
        assert confinement.is_open(str(ws / "file"))
    finally:
        listener.close()
    assert OWN_LISTENERS.paths == frozenset()
