"""A command cannot change, create or move the settings of a trusted project into place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import (
    NO_TEMPORARY_FOLDERS,
    PLANTED,
    layers_of,
    plant,
    run_in,
    trust,
)
from tests.harness.commands import bench
from tests.harness.sandbox import find_backend
from tests.harness.ticks import wait_for_tick
from tests.sandbox.commands import run
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.policy import Confinement
from treadle.sandbox.protection import Protection


def confine(trusted: Path, cwd: Path, *granted: Path) -> Confinement:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    files = AdditionalFileSystemPermissions(write=[str(path) for path in granted])
    profile = AdditionalPermissionProfile(file_system=files)
    protection = Protection(trusted=lambda: [str(trusted)])
    return Boundary(protection).confine(policy, str(cwd), granted=[profile])


async def skip_without_bubblewrap() -> None:
    if (await find_backend()).name != "bubblewrap":
        pytest.skip("only bubblewrap keeps a place where nothing is")


def nothing(_project: Path) -> None:
    """Leave the folder that the user trusts missing."""


def a_file(project: Path) -> None:
    project.parent.mkdir()
    project.write_text("not a folder any more")


def a_closed_folder(project: Path) -> None:
    project.mkdir(parents=True)
    project.chmod(0o555)


@pytest.mark.parametrize("make", [nothing, a_file, a_closed_folder])
async def test_settings_are_not_planted_where_the_trusted_folder_has_none(
    workspace: Path, make: Callable[[Path], None]
) -> None:
    await skip_without_bubblewrap()
    project = workspace / "deep" / "project"
    make(project)
    script = f"chmod u+w {project}; rm -f {project}; mkdir -p {project}/.codex; "
    script += f"printf '{PLANTED}' > {project}/.codex/config.toml; touch {workspace}/done"
    await run(["/bin/sh", "-c", script], confine(project, workspace), cwd=workspace)
    assert (workspace / "done").exists()
    assert not (project / ".codex" / "config.toml").exists()
    assert not (workspace / ".codex").exists()


async def test_trusted_folder_that_is_missing_does_not_open_it_to_a_later_thread(
    home: Path,
) -> None:
    await skip_without_bubblewrap()
    folder = home.parent / "projects"
    folder.mkdir()
    async with bench(home) as bench_:
        bench_.stage.configure(trust(folder / "gone"))
        script = f"mkdir -p gone/.codex; printf '{PLANTED}' > gone/.codex/config.toml"
        await run_in(bench_, folder, script)
        (folder / "gone").mkdir(exist_ok=True)
        answer = await bench_.client.request("thread/start", {"cwd": str(folder / "gone")})
        assert answer["sandbox"]["type"] != "dangerFullAccess"


@pytest.mark.parametrize("place", [".codex", ".codex/rules", ".agents"])
def test_no_grant_and_no_folder_opens_settings_of_a_trusted_project(
    workspace: Path, place: str
) -> None:
    (workspace / place).mkdir(parents=True)
    file = str(workspace / place / "planted")
    assert not confine(workspace, workspace, workspace / place).may_write(file)
    assert not confine(workspace, workspace / place).may_write(file)


async def test_link_targets_of_a_trusted_projects_settings_cannot_be_changed(
    home: Path, outside: Path
) -> None:
    await skip_without_bubblewrap()
    shared = home.parent / "dotfiles" / "project"
    shared.mkdir(parents=True)
    (outside / ".codex").symlink_to(shared)
    async with bench(home) as bench_:
        bench_.stage.configure(trust(outside) + NO_TEMPORARY_FOLDERS)
        script = f"touch made; printf '{PLANTED}' > project/config.toml"
        await run_in(bench_, shared.parent, script)
        assert (shared.parent / "made").exists()
        assert not (shared / "config.toml").exists()


MOUNTED = """
import subprocess, sys
from pathlib import Path
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.protection import Protection
top = Path(sys.argv[1])
home, project, ws = top / "user/home", top / "user/project", top / "ws"
for folder in (home / "rules", home / "worktrees", project / ".codex", ws / "all", ws / "a b"):
    folder.mkdir(parents=True)
(ws / "tree").mkdir()
for source, target in ((home.parent, "all"), (home / "rules", "a b"), (home / "worktrees", "tree")):
    subprocess.run(["mount", "--bind", source, ws / target], check=True)
boundary = Boundary(Protection(homes=[str(home)], trusted=lambda: [str(project)]))
policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
whole = boundary.confine(policy, str(ws))
places = ["new", "all/new", "all/project/new", "tree/new"]
places += ["all/home/config.toml", "all/project/.codex/config.toml", "a b/default.rules"]
print(*(whole.may_write(str(ws / place)) for place in places))
print(boundary.confine(policy, str(ws / "a b")).may_write(str(ws / "a b" / "default.rules")))
"""


def test_homes_and_settings_are_protected_under_every_name_that_mounts_give_them(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", MOUNTED]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("root may not create a mount namespace here")
    answers = "True True True True False False False\nFalse\n"
    assert (done.stdout, done.stderr) == (answers, "")


async def test_link_that_a_command_redirected_is_not_the_folder_that_was_trusted(
    home: Path,
) -> None:
    folder = home.parent / "releases"
    (folder / "first").mkdir(parents=True)
    (folder / "current").symlink_to("first")
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        bench_.stage.configure(trust(folder / "current") + NO_TEMPORARY_FOLDERS)
        plant(folder / "first")
        wait_for_tick(home.parent)
        assert set((await layers_of(bench_, folder / "current")).values()) == {None}
        script = f"mkdir -p second/.codex; printf '{PLANTED}' > second/.codex/config.toml"
        await run_in(bench_, folder, f"{script}; ln -sfn second current")
        assert (folder / "current" / ".codex" / "config.toml").exists()
        assert None not in (await layers_of(bench_, folder / "current")).values()
        answer = await bench_.client.request("thread/start", {"cwd": str(folder / "current")})
        assert answer["sandbox"]["type"] == "readOnly"


def claim(folder: Path, inside: Path) -> None:
    """Make a folder claim to be a worktree of another one, which confirms it."""
    inside.mkdir(parents=True)
    (inside / "gitdir").write_text(f"{folder}/.git\n")
    (folder / ".git").write_text(f"gitdir: {inside}\n")
    plant(folder)


async def test_folder_that_names_its_own_parent_as_checkout_is_not_trusted(home: Path) -> None:
    folder = home.parent / "archive"
    claim(folder, folder / "worktrees" / "x")
    async with bench(home) as bench_:
        bench_.stage.configure(trust(home.parent))
        assert None not in (await layers_of(bench_, folder)).values()


async def test_worktree_that_a_command_registered_is_not_trusted(home: Path) -> None:
    """The trusted checkout is in a folder that commands can write, with its `.git`."""
    archive, checkout = home.parent / "archive", home.parent / "projects" / "checkout"
    archive.mkdir()
    checkout.mkdir(parents=True)
    async with bench(home) as bench_:
        bench_.stage.configure(trust(checkout) + NO_TEMPORARY_FOLDERS)
        claim(archive, checkout / ".git" / "worktrees" / "mine")
        assert None in (await layers_of(bench_, archive)).values()
        script = f"rm -r {checkout}/.git; mkdir -p {checkout}/.git/worktrees/x; "
        script += f"echo {archive}/.git > {checkout}/.git/worktrees/x/gitdir"
        await run_in(bench_, checkout.parent, script)
        (archive / ".git").write_text(f"gitdir: {checkout}/.git/worktrees/x\n")
        assert None not in (await layers_of(bench_, archive)).values()
