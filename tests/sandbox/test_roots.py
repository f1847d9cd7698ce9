"""Roots that a link leads to: one that a command could have made opens nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.commands import confine, names, run, snapshot, workspace
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.backend import Backend
from treadle.sandbox.policy import Confinement

# Each is run in the workspace, which is in a folder that may be written too; then OUT is written.
SWAPS = {
    "in the place of a root that is missing": "ln -s $OUT missing",
    "in the place of a root": "mv root moved; ln -s $OUT root",
    "above a root": "mv folder moved; mkdir folder; ln -s $OUT folder/root",
    "through another": "ln -s $OUT step; ln -s step missing",
    "in the place of the workspace": "cd ..; mv ws moved; ln -s $OUT ws",
}


def roots_of(top: Path) -> Confinement:
    ws = top / "ws"
    return workspace(ws, top, ws / "missing", ws / "root", ws / "folder" / "root")


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
async def test_a_link_that_a_command_made_opens_nothing(
    backend: Backend, tmp_path: Path, outside: Path, swap: str
) -> None:
    top = tmp_path / "top"
    for folder in ("root", "folder/root"):
        (top / "ws" / folder).mkdir(parents=True)
    before = snapshot(outside)
    script = swap.replace("$OUT", str(outside))
    await run(["/bin/sh", "-c", script], roots_of(top), cwd=top / "ws")
    done = await run(["/bin/sh", "-c", f"echo x > {outside}/new; echo over"], roots_of(top))
    assert done.stdout == "over\n"
    assert snapshot(outside) == before


def granting(ws: Path, path: Path) -> Confinement:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    files = AdditionalFileSystemPermissions(write=[str(path)])
    return confine(policy, str(ws), granted=[AdditionalPermissionProfile(file_system=files)])


@pytest.mark.parametrize("target", ["../outside", ".git", ".git/hooks"])
async def test_what_was_granted_cannot_be_led_elsewhere(
    bubblewrap: Backend, ws: Path, outside: Path, target: str
) -> None:
    (ws / ".git" / "hooks").mkdir(parents=True)
    (ws / "granted").symlink_to(target)
    script = "echo x > granted/new; echo x > .git/new; echo y > beside; echo over"
    done = await run(["/bin/sh", "-c", script], granting(ws, ws / "granted"), cwd=ws)
    assert (done.stdout, names(outside)) == ("over\n", ["file", "folder"])
    assert snapshot(ws / ".git").keys() == {"hooks"}
    assert (ws / "beside").read_text() == "y\n"


def test_a_link_that_no_command_could_make_is_followed(ws: Path, outside: Path) -> None:
    (outside / "alias").symlink_to(ws)
    confinement = workspace(outside / "alias")
    assert [root.path for root in confinement.writable] == [str(ws)]


async def test_a_workspace_behind_a_link_that_stays_inside_is_kept_as_one(
    bubblewrap: Backend, ws: Path
) -> None:
    """It may be written in any case; the point is that its `.git` may not."""
    (ws / "project").mkdir()
    (ws / "alias").symlink_to("project")
    script = "mkdir .git; echo x > new"
    await run(["/bin/sh", "-c", script], workspace(ws / "alias", ws), cwd=ws / "alias")
    assert names(ws / "project") == ["new"]
