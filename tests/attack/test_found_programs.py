"""A program that is looked up by name is never one that a workspace provides."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import environment
from tests.harness.threads import Refused, Stage
from tests.harness.ticks import wait_for_tick
from tests.sandbox.commands import names
from treadle.client._runtime.find import find_command
from treadle.client.async_client import AsyncClient
from treadle.client.errors import ServerUnavailable
from treadle.protocol.base import JsonValue
from treadle.sandbox.backends.bubblewrap_program import find_bubblewrap
from treadle.sandbox.opened_roots import OpenedRoots
from treadle.support.files.programs import find_on_path
from treadle.unattended import ServerNotFound, Session, SessionOptions


def program(folder: Path, name: str, trace: Path | None = None) -> str:
    """Write a program that leaves a trace."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" if trace is None else f"#!/bin/sh\ntouch {trace}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("path", [".", "", "bin", ".:bin:"])
@pytest.mark.parametrize("merges", [True, False])
async def test_relative_folders_of_the_path_are_not_searched(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, path: str, merges: bool
) -> None:
    for folder in (workspace, workspace / "bin"):
        program(folder, "server", outside / "sprung")
    monkeypatch.chdir(workspace)
    env = {"PATH": path}
    for where in ("server", ["server", "app-server"]):
        with pytest.raises(ServerUnavailable):
            await AsyncClient(where, cwd=str(workspace), env=env).connect()
        options = SessionOptions(cwd=workspace, server=where, env=env, merge_stderr=merges)
        with pytest.raises(ServerNotFound):
            await Session(options).start()
    assert names(outside) == []


def test_program_of_the_workspace_does_not_take_the_place_of_another(
    workspace: Path, outside: Path
) -> None:
    inside, other = workspace / "venv" / "bin", outside / "bin"
    planted, known = program(inside, "codex"), program(other, "codex")
    (outside / "link").symlink_to(inside)
    (outside / "codex").symlink_to(planted)
    path = f"{inside}:{outside}/link:{outside}:{other}"
    found = find_command("codex", {"PATH": path}, workspace=str(workspace))
    assert found == [known, "app-server"]
    # A user who works in this folder may have installed a program there, and only there.
    assert find_on_path("codex", str(inside), workspace=str(workspace)) == planted


@pytest.mark.parametrize("path", ["", ":/usr/bin:/bin", ".:bin:/usr/bin:/bin", "/usr/bin:/bin:"])
async def test_command_of_a_client_is_not_searched_for_in_its_folder(
    stage: Stage, outside: Path, path: str
) -> None:
    """A known name must not start what a repository contains, nor must one that is misspelled."""
    for folder in (stage.workspace, stage.workspace / "bin"):
        for name in ("uname", "unmae"):
            program(folder, name, outside / "sprung")
    client = await stage.client()
    where: JsonValue = {"cwd": str(stage.workspace), "env": {"PATH": path}}
    policy: JsonValue = {"type": "dangerFullAccess"}
    for name in ("uname", "unmae"):
        for method, more in (
            ("command/exec", {"sandboxPolicy": policy}),
            ("process/spawn", {"processHandle": name}),
        ):
            with contextlib.suppress(Refused):
                await client.request(method, {"command": [name], **where, **more})
                if method == "process/spawn":
                    await client.until("process/exited")
    assert names(outside) == []


async def test_mcp_server_without_a_thread_is_not_one_that_a_command_wrote(
    stage: Stage, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request about all servers starts them in the folder of this server, not in a workspace."""
    inside = stage.workspace / "bin"
    known = Path(program(outside / "bin", "tool", outside / "started"))
    monkeypatch.setenv("PATH", f"{inside}:{known.parent}:{os.environ['PATH']}")
    stage.configure('[mcp_servers.tool]\ncommand = "tool"')
    script = (
        f"mkdir bin; printf '#!/bin/sh\\ntouch {outside}/sprung\\n' > bin/tool; chmod +x bin/tool"
    )
    client = await stage.client()
    command: JsonValue = {"command": ["/bin/sh", "-c", script], "cwd": str(stage.workspace)}
    more = {"excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
    policy: JsonValue = {"type": "workspaceWrite", **more}
    await client.request("command/exec", {**command, "sandboxPolicy": policy})
    assert names(inside) == ["tool"]
    await client.request("mcpServerStatus/list", {})
    assert names(outside) == ["bin", "started"]


def test_module_of_the_workspace_is_not_taken_for_the_server(
    home: Path, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.client._runtime.find._find", lambda *_: None)
    (workspace / "treadle.py").write_text(f"open({str(outside / 'sprung')!r}, 'w')\n")
    command = find_command("treadle")
    assert command[0] == sys.executable
    done = subprocess.run(
        [*command, "--help"], cwd=workspace, env=environment(home), capture_output=True, check=False
    )
    assert done.returncode == 0
    assert names(outside) == []


@pytest.mark.parametrize("place", ["tools", "link"])
def test_bubblewrap_that_a_command_may_have_planted_is_not_used(
    home: Path, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A machine without the program finds the one that an earlier command left on the path."""
    OpenedRoots(home).add([str(workspace)])
    wait_for_tick(home.parent)
    program(workspace / "tools", "bwrap", outside / "sprung")
    (workspace / "link").symlink_to(workspace / "tools")
    monkeypatch.setenv("PATH", f"{workspace}/{place}")
    assert find_bubblewrap() is None
    known = program(outside / "bin", "bwrap")
    monkeypatch.setenv("PATH", os.pathsep.join([f"{workspace}/{place}", f"{outside}/bin"]))
    assert find_bubblewrap() == known
