"""`.git`, `.codex` and `.agents` in a workspace: their content runs outside of sandboxes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.harness.sandbox import using
from tests.sandbox.commands import confine, names, new_token, run, snapshot, start, workspace
from treadle.protocol.base import JsonValue
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.backends.selection import Backend
from treadle.sandbox.policy import PROTECTED
from treadle.sandbox.supervisor.launch import CommandLauncher

CHANGES = {
    "a new file": "echo x > $IT/new",
    "a change": "echo x > $IT/config",
    "a rename": "mv $IT moved",
    "a rename inside": "mv $IT/config $IT/moved",
    "a removal": "rm -rf $IT",
    "a rename over it": "mkdir d; mv -T d $IT",
    "a file moved in": "echo x > folder/f; mv folder/f $IT/config",
}
CREATIONS = {
    "a folder": "mkdir $IT",
    "a file": "echo x > $IT",
    "a link": "ln -s folder $IT",
    "a rename": "mv folder $IT",
    "a copy": "cp -r folder $IT",
}


@pytest.fixture
def full(ws: Path) -> Path:
    """Return a workspace with all protected paths, and some others."""
    for name in (*PROTECTED, "folder"):
        (ws / name).mkdir()
        (ws / name / "config").write_text("precious")
    return ws


@pytest.mark.parametrize("name", PROTECTED)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_protected_paths_stay_unchanged(
    backend: Backend, full: Path, name: str, change: str
) -> None:
    before = snapshot(full / name)
    script = change.replace("$IT", name) + "; echo over"
    done = await run(["/bin/sh", "-c", script], workspace(full), cwd=full)
    assert done.stdout == "over\n"
    assert snapshot(full / name) == before


async def test_by_default_landlock_protects_nothing_and_reports_it(
    plain_landlock: Backend, full: Path
) -> None:
    """A known gap: with protection, hardly any build, test or package manager could work."""
    script = "echo x > .git/config; echo y > new; ls -A"
    done = await run(["/bin/sh", "-c", script], workspace(full), cwd=full)
    assert ((full / ".git" / "config").read_text(), done.exit_code) == ("x\n", 0)
    assert names(full) == [".agents", ".codex", ".git", "folder", "new"]
    assert "are not protected" in plain_landlock.gaps[0]


async def test_denied_paths_stay_closed_whatever_is_configured(
    plain_landlock: Backend, full: Path
) -> None:
    confinement = replace(workspace(full), denied=(str(full / "folder"),))
    await run(["/bin/sh", "-c", "echo x > folder/config"], confinement, cwd=full)
    assert (full / "folder" / "config").read_text() == "precious"


@pytest.mark.parametrize("name", PROTECTED)
async def test_an_empty_folder_protects_nothing_under_landlock(
    working: dict[str, Backend], ws: Path, name: str
) -> None:
    """It contains nothing to damage; other programs leave such folders in /tmp."""
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    (ws / name).mkdir()
    with using(working["landlock"]):
        await run(["/bin/sh", "-c", "echo y > new"], workspace(ws), cwd=ws)
    assert names(ws) == sorted([name, "new"])


async def test_files_beside_protected_paths_can_be_changed(backend: Backend, full: Path) -> None:
    script = "echo y > folder/config; echo x > folder/new; cat .git/config"
    done = await run(["/bin/sh", "-c", script], workspace(full), cwd=full)
    assert (done.stdout, names(full / "folder")) == ("precious", ["config", "new"])


@pytest.mark.parametrize("name", PROTECTED)
@pytest.mark.parametrize("creation", CREATIONS.values(), ids=CREATIONS)
async def test_missing_protected_paths_cannot_be_created(
    bubblewrap: Backend, ws: Path, name: str, creation: str
) -> None:
    (ws / "folder").mkdir()
    script = creation.replace("$IT", name) + f"; ls -A {name}"
    done = await run(["/bin/sh", "-c", script], workspace(ws), cwd=ws)
    assert done.stdout == ""
    assert names(ws) == ["folder"]


async def test_a_repository_elsewhere_is_protected_through_its_pointer(
    backend: Backend, ws: Path, tmp_path: Path
) -> None:
    main = tmp_path / "main"
    (main / ".git" / "worktrees" / "ws").mkdir(parents=True)
    (main / ".git" / "worktrees" / "ws" / "commondir").write_text("../..\n")
    (main / ".git" / "config").write_text("precious")
    (ws / ".git").write_text(f"gitdir: {main}/.git/worktrees/ws\n")
    script = f"echo x > {main}/.git/config; echo x > {main}/.git/worktrees/ws/HEAD; echo x > .git"
    await run(["/bin/sh", "-c", script], workspace(ws, tmp_path), cwd=ws)
    assert (main / ".git" / "config").read_text() == "precious"
    assert (ws / ".git").read_text().startswith("gitdir: ")
    assert names(main / ".git" / "worktrees" / "ws") == ["commondir"]


async def test_a_workspace_in_a_writable_folder_cannot_be_replaced(
    bubblewrap: Backend, tmp_path: Path
) -> None:
    top = tmp_path / "top"
    inner = top / "outer" / "middle" / "ws"
    inner.mkdir(parents=True)
    script = (
        "cd ../../..; mv outer/middle outer/m; mv outer o; mkdir -p outer/middle/ws/.git; echo over"
    )
    done = await run(["/bin/sh", "-c", script], workspace(inner, top), cwd=inner)
    assert done.stdout == "over\n"
    assert snapshot(top).keys() == {"outer", "outer/middle", "outer/middle/ws"}


async def test_a_protected_folder_that_was_granted_is_writable(
    backend: Backend, full: Path
) -> None:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    files = AdditionalFileSystemPermissions(write=[str(full / ".git")])
    granted = [AdditionalPermissionProfile(file_system=files)]
    script = "echo x > .git/config; echo x > .codex/config"
    confinement = confine(policy, str(full), granted=granted)
    await run(["/bin/sh", "-c", script], confinement, cwd=full)
    assert (full / ".git" / "config").read_text() == "x\n"
    assert (full / ".codex" / "config").read_text() == "precious"


async def test_a_placeholder_stays_until_the_last_command_has_ended(
    bubblewrap: Backend, ws: Path
) -> None:
    script = f"echo ready; read line; mkdir .codex; ls -A .codex # {new_token()}"
    first, output = await start(["/bin/sh", "-c", script], workspace(ws), cwd=ws, has_stdin=True)
    await output.until("ready")
    await run(["true"], workspace(ws), cwd=ws)
    assert names(ws) == sorted(PROTECTED)
    first.close_stdin()
    await first.wait()
    assert (output.text, names(ws)) == ("ready\n", [])


async def test_a_placeholder_that_was_locked_at_its_start_outlasts_a_shorter_command(
    bubblewrap: Backend, ws: Path
) -> None:
    """A command of another folder can lock one first; the kernel detaches mounts on a removed one.

    The last command releases everything, although it has no lock.
    """
    (ws / ".codex").mkdir(0o1555)
    (ws / ".codex").chmod(0o1555)
    lock = os.open(ws / ".codex", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    script = "echo ready; read line; mkdir -p .codex && echo x > .codex/config.toml"
    first, output = await start(["/bin/sh", "-c", script], workspace(ws), cwd=ws, has_stdin=True)
    await output.until("ready")
    os.close(lock)
    await run(["true"], workspace(ws), cwd=ws)
    first.close_stdin()
    assert await first.wait() != 0
    assert names(ws) == []


async def test_a_placeholder_that_took_the_place_of_another_is_not_removed(
    bubblewrap: Backend, ws: Path
) -> None:
    """The user may have removed the first one while its command runs."""
    first, output = await start(["cat"], workspace(ws), cwd=ws, has_stdin=True)
    (ws / ".codex").rmdir()
    script = "echo ready; read line; mkdir -p .codex && echo x > .codex/config.toml"
    second, output = await start(["/bin/sh", "-c", script], workspace(ws), cwd=ws, has_stdin=True)
    await output.until("ready")
    first.close_stdin()
    await first.wait()
    second.close_stdin()
    assert await second.wait() != 0
    assert names(ws) == []


async def test_a_placeholder_left_by_a_killed_server_is_removed_with_the_next_command(
    bubblewrap: Backend, ws: Path
) -> None:
    (ws / ".codex").mkdir()
    (ws / ".codex").chmod(0o1555)
    await run(["true"], workspace(ws), cwd=ws)
    assert names(ws) == []


async def test_a_placeholder_obstructs_no_backend(backend: Backend, ws: Path) -> None:
    (ws / ".codex").mkdir()
    (ws / ".codex").chmod(0o1555)
    done = await run(["/bin/sh", "-c", "echo x > new"], workspace(ws), cwd=ws)
    assert (done.exit_code, (ws / "new").read_text()) == (0, "x\n")


async def test_an_empty_folder_of_the_user_stays(bubblewrap: Backend, ws: Path) -> None:
    (ws / ".agents").mkdir()
    await run(["true"], workspace(ws), cwd=ws)
    assert names(ws) == [".agents"]


async def test_files_put_into_a_placeholder_meanwhile_stay(bubblewrap: Backend, ws: Path) -> None:
    process, output = await start(
        ["/bin/sh", "-c", "echo ready; read line"], workspace(ws), cwd=ws, has_stdin=True
    )
    await output.until("ready")
    (ws / ".codex").chmod(0o755)
    (ws / ".codex" / "config.toml").write_text("mine")
    process.close_stdin()
    await process.wait()
    assert snapshot(ws).keys() == {".codex", ".codex/config.toml"}


@pytest.mark.parametrize("vanishes", [False, True], ids=["stays", "vanishes"])
async def test_an_empty_folder_that_another_program_removes_meanwhile_fails_no_command(
    bubblewrap: Backend, ws: Path, monkeypatch: pytest.MonkeyPatch, vanishes: bool
) -> None:
    """Upstream also creates such folders in shared roots, and removes them when it is done."""
    (ws / ".git").mkdir()

    launch = CommandLauncher.launch_supervised

    def launch_later(*args: JsonValue, **options: JsonValue) -> JsonValue:
        if vanishes:
            (ws / ".git").rmdir()
        return launch(*args, **options)

    monkeypatch.setattr(CommandLauncher, "launch_supervised", launch_later)
    script = "mkdir .git/hooks; mv .git moved; rmdir .git; echo over"
    done = await run(["/bin/sh", "-c", script], workspace(ws), cwd=ws)
    assert done.stdout == "over\n"
    assert list((ws / ".git").iterdir()) == []
