"""Roots behind links: a link that a command could have made opens nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.commands import confine, names, run, snapshot, workspace
from treadle.protocol.base import JsonValue
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.backends import base as backends
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.policy import Confinement
from treadle.sandbox.supervisor.launch import CommandLauncher

# Each runs in the workspace, whose parent folder is writable too; then OUT is written.
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
async def test_a_granted_path_cannot_be_redirected(
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


async def test_a_workspace_behind_a_link_that_stays_inside_is_protected(
    bubblewrap: Backend, ws: Path
) -> None:
    """It is writable in any case; its `.git` must not be."""
    (ws / "project").mkdir()
    (ws / "alias").symlink_to("project")
    script = "mkdir .git; echo x > new"
    await run(["/bin/sh", "-c", script], workspace(ws / "alias", ws), cwd=ws / "alias")
    assert names(ws / "project") == ["new"]


async def test_many_roots_are_opened_and_all_of_them_protected(
    backend: Backend, tmp_path: Path
) -> None:
    roots = [tmp_path / "many" / str(number) for number in range(120)]
    for root in roots:
        (root / "sub").mkdir(parents=True)
    script = "for each in */; do mkdir $each/.git; echo x > $each/sub/new; done; echo over"
    done = await run(["/bin/sh", "-c", script], workspace(roots[0], *roots), cwd=tmp_path / "many")
    assert done.stdout == "over\n"
    assert all((root / "sub" / "new").exists() for root in roots)
    if backend.name == "bubblewrap":
        assert not any((root / ".git").exists() for root in roots)


async def test_more_roots_than_descriptors_are_refused_with_a_reason(
    bubblewrap: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [tmp_path / "many" / str(number) for number in range(20)]
    for root in roots:
        root.mkdir(parents=True)
    monkeypatch.setattr(backends, "inherited_limit", lambda: 64)
    with pytest.raises(SandboxUnavailable, match="need 81 descriptors, 32 are available"):
        await run(["true"], workspace(roots[0], *roots))
    assert all(names(root) == [] for root in roots)


async def test_root_that_is_swapped_before_it_is_mounted_opens_nothing_else(
    bubblewrap: Backend, ws: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that still runs in the workspace swaps a nested root at the worst moment."""
    (ws / "nested").mkdir()

    launch = CommandLauncher.launch_supervised

    def swap_and_launch(*args: JsonValue, **options: JsonValue) -> JsonValue:
        (ws / "nested").rename(ws / "moved")
        (ws / "nested").symlink_to(outside)
        return launch(*args, **options)

    confinement = workspace(ws / "nested", ws)
    monkeypatch.setattr(CommandLauncher, "launch_supervised", swap_and_launch)
    before = snapshot(outside)
    await run(["/bin/sh", "-c", f"echo x > {outside}/new"], confinement)
    assert snapshot(outside) == before
