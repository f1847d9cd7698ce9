"""Roots behind links: a link that a command could have made opens nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.ticks import wait_for_tick
from tests.sandbox.commands import confine, names, run, snapshot, workspace
from treadle.protocol.base import JsonValue
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import (
    ReadOnlySandboxPolicy,
    RestrictedReadOnlyAccess,
    WorkspaceWriteSandboxPolicy,
)
from treadle.sandbox.backends import base as backends
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.opened_roots import OpenedRoots
from treadle.sandbox.paths import real
from treadle.sandbox.policy import PLATFORM_FOLDERS, Confinement, WritableRoot
from treadle.sandbox.protection import Protection
from treadle.sandbox.supervisor.launch import CommandLauncher
from treadle.support.files.links import follow

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


# -- links that change between the decision and the command


@pytest.mark.parametrize("target", ["../outside", "/outside"], ids=["relative", "absolute"])
async def test_a_root_that_became_a_link_is_not_mounted(
    bubblewrap: Backend, ws: Path, outside: Path, target: str
) -> None:
    """Opened without following links, a link was mounted itself, and led to its target."""
    (ws / "build").symlink_to(str(outside) if target == "/outside" else target)
    confinement = Confinement(writable=(WritableRoot(str(ws)), WritableRoot(str(ws / "build"))))
    before = snapshot(outside)
    with pytest.raises(SandboxUnavailable, match="build"):
        await run(["/bin/sh", "-c", f"echo x > {outside}/new"], confinement)
    assert snapshot(outside) == before


async def test_a_readable_root_that_became_a_link_shows_nothing(
    backend: Backend, ws: Path, outside: Path
) -> None:
    (outside / "key").write_text("secret")
    (ws / "data").symlink_to(outside)
    confinement = Confinement(readable=(*PLATFORM_FOLDERS, str(ws / "data")))
    done = await run(["/bin/sh", "-c", f"cat {outside}/key {ws}/data/key; echo over"], confinement)
    assert done.stdout == "over\n"


def test_a_link_that_vanishes_while_it_is_followed_opens_nothing(
    ws: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place and the links on the way there were found one after the other."""
    build, read = ws / "build", os.readlink
    build.symlink_to(outside)

    def read_once(path: str, **options: int) -> str:
        target = read(path, **options)
        if os.fspath(path) == str(build):
            build.unlink()
            build.mkdir()
        return target

    monkeypatch.setattr(os, "readlink", read_once)
    policy = WorkspaceWriteSandboxPolicy(
        writable_roots=[str(build)], exclude_slash_tmp=True, exclude_tmpdir_env_var=True
    )
    assert [root.path for root in confine(policy, str(ws)).writable] == [str(ws)]


@pytest.mark.parametrize("reader", ["in the workspace", "elsewhere"])
def test_a_readable_root_that_a_command_redirected_opens_nothing(
    tmp_path: Path, ws: Path, outside: Path, reader: str
) -> None:
    boundary = Boundary(Protection(), OpenedRoots(tmp_path / "home"))
    access = RestrictedReadOnlyAccess(readable_roots=[str(ws / "data")])
    writer = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True, exclude_tmpdir_env_var=True, read_only_access=access
    )
    boundary.confine(writer, str(ws))
    wait_for_tick(tmp_path)
    (ws / "data").symlink_to(outside)
    policy = writer if reader == "in the workspace" else ReadOnlySandboxPolicy(access=access)

    readable = boundary.confine(policy, str(ws)).readable

    assert readable is not None
    assert str(outside) not in readable
    assert not boundary.may_read(policy, str(ws))(str(outside / "key"))


def test_a_chain_of_links_is_followed_as_far_as_the_kernel_does(ws: Path, outside: Path) -> None:
    """Following all of 3,000 links, each with a long target, took 26 seconds on the event loop."""
    for number in range(60):
        (ws / str(number)).symlink_to(str(number + 1))
    (ws / "60").symlink_to(outside)

    with pytest.raises(OSError, match="Too many"):
        os.stat(ws / "0")  # noqa: PTH116 - the kernel's own answer
    assert follow(str(ws / "0" / "file")).is_too_long
    assert not real(str(ws / "0" / "file")).startswith(str(outside))
    assert real(str(ws / "30" / "file")) == str(outside / "file")


def test_long_targets_of_links_are_followed_in_few_steps(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ws / "d").mkdir()
    for number in range(39):
        (ws / str(number)).symlink_to("d/../" * 800 + str(number + 1))
    count, read = 0, os.readlink

    def counted(path: str, **options: int) -> str:
        nonlocal count
        count += 1
        return read(path, **options)

    monkeypatch.setattr(os, "readlink", counted)
    assert follow(str(ws / "0")).is_too_long
    assert count < 6000
