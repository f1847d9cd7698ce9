"""Folders that a command renames, and programs that it rewrites, take no effect outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import (
    NO_TEMPORARY_FOLDERS,
    layers_of,
    plant,
    program,
    repository,
    rule,
    run_in,
    trust,
)
from tests.harness.commands import bench
from tests.harness.model_server import calls
from tests.harness.questions import answer, question
from tests.harness.threads import Stage
from tests.harness.ticks import wait_for_tick
from tests.sandbox.commands import names
from treadle.sandbox import opened_roots
from treadle.sandbox.file_systems import dates_renames
from treadle.sandbox.opened_roots import OpenedRoots

# -- folders above those that a record judges


async def test_old_link_in_a_renamed_folder_opens_nothing(home: Path, outside: Path) -> None:
    top = home.parent / "top"
    (top / "build" / "out").mkdir(parents=True)
    (top / "vendor").mkdir()
    (top / "vendor" / "out").symlink_to(outside)
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        await run_in(bench_, top, "mv build old; mv vendor build")
        assert (top / "build" / "out").is_symlink()
        output = await run_in(bench_, top / "build" / "out", "echo x > planted; echo over")
        assert "over" in output
    assert names(outside) == []


@pytest.mark.parametrize("place", ["svc", "deep/svc"])
async def test_old_settings_in_a_renamed_folder_are_ignored(home: Path, place: str) -> None:
    project = repository(home.parent / "project")
    plant(project / "fixtures" / place)
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS + trust(project))
        first = place.partition("/")[0]
        await run_in(bench_, project, f"mv fixtures/{first} {first}")
        assert (project / place / ".codex" / "config.toml").exists()
        assert set((await layers_of(bench_, project / place)).values()) - {None}


async def test_settings_stay_in_force_while_files_are_made_beside_them(home: Path) -> None:
    project = repository(home.parent / "project")
    plant(project / "packages" / "one")
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS + trust(project))
        await run_in(bench_, project, "echo x > new; echo x > packages/one/new")
        assert (project / "packages" / "one" / "new").exists()
        folder = project / "packages" / "one"
        assert set((await layers_of(bench_, folder)).values()) == {None}


SWAPS = {
    "by a rename": "mv tools t0; mv evil tools",
    "by a link": "mv tools t0; ln -s evil tools",
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
async def test_folder_of_the_path_that_was_replaced_is_omitted(
    home: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, swap: str
) -> None:
    project = home.parent / "project"
    program(project / "tools" / "bin", "mine", "echo good")
    program(project / "evil" / "bin", "mine", f"echo evil; echo x > {outside}/planted")
    rule(home, "mine")
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        monkeypatch.setenv("PATH", f"{project}/tools/bin:{os.environ['PATH']}")
        await run_in(bench_, project, swap)
        assert "evil" in await run_in(bench_, bench_.stage.workspace, "mine", login=False)
    assert names(outside) == []


def opened(tmp_path: Path) -> tuple[Path, OpenedRoots]:
    """Return a folder with an old link two levels down, and a record that has just opened it."""
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "link").symlink_to("target")
    wait_for_tick(tmp_path)
    record = OpenedRoots(tmp_path / "home")
    record.add([str(root)])
    wait_for_tick(tmp_path)
    return root, record


MOVES: dict[str, Callable[[Path], object]] = {
    "the nearest folder": lambda root: (root / "a" / "b").rename(root / "a" / "c"),
    "a folder further up": lambda root: (root / "a").rename(root / "c"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_each_folder_on_the_way_is_judged(tmp_path: Path, move: Callable[[Path], object]) -> None:
    root, record = opened(tmp_path)
    assert not record.may_have_made(str(root / "a" / "b" / "link"))
    move(root)
    (link,) = root.rglob("link")
    assert record.may_have_made(str(link))


def test_renaming_the_root_or_a_folder_above_it_is_not_what_a_command_can_do(
    tmp_path: Path,
) -> None:
    root, record = opened(tmp_path)
    root.rename(tmp_path / "moved")
    (tmp_path / "moved").rename(root)
    assert not record.may_have_made(str(root / "a" / "b" / "link"))


def test_file_system_that_does_not_date_renames_is_judged_strictly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, record = opened(tmp_path)
    monkeypatch.setattr(opened_roots, "dates_renames", lambda _path: False)
    assert record.may_have_made(str(root / "a" / "b" / "link"))
    assert not record.may_have_made(str(tmp_path / "home"))


def test_a_rename_here_sets_the_change_time_as_the_record_relies_on(tmp_path: Path) -> None:
    if not dates_renames(str(tmp_path)):
        pytest.skip("this file system is judged strictly")
    folder = tmp_path / "holder" / "folder"
    folder.mkdir(parents=True)
    before = folder.lstat().st_ctime_ns
    wait_for_tick(tmp_path)
    moved = folder.rename(tmp_path / "holder" / "moved")
    assert min(moved.lstat().st_ctime_ns, moved.parent.lstat().st_ctime_ns) > before


def test_unknown_file_systems_are_not_relied_on() -> None:
    assert not dates_renames("/proc/self/status")
    assert not dates_renames("/missing")


# -- programs that a rule names by their path


@pytest.mark.parametrize("command", ["./run.sh", "{ws}/run.sh", "cd sub && ../run.sh"])
async def test_program_that_a_command_rewrote_runs_in_the_sandbox(
    home: Path, outside: Path, command: str
) -> None:
    async with bench(home) as bench_:
        ws = bench_.stage.workspace
        (ws / "sub").mkdir()
        command = command.format(ws=ws)
        rule(home, command.rpartition(" ")[2])
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        program(ws, "run.sh", "echo good")
        await run_in(bench_, ws, f"echo 'echo evil; echo x > {outside}/planted' >> run.sh")
        assert "evil" in await run_in(bench_, ws, command, login=False)
    assert names(outside) == []


async def test_program_that_another_thread_may_have_made_runs_in_the_sandbox(
    home: Path, outside: Path
) -> None:
    project = home.parent / "project"
    program(project, "run.sh", "echo good")
    rule(home, f"{project}/run.sh")
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        await run_in(bench_, project, f"echo 'echo evil; echo x > {outside}/planted' >> run.sh")
        output = await run_in(bench_, bench_.stage.workspace, f"{project}/run.sh", login=False)
        assert "evil" in output
    assert names(outside) == []


async def test_relative_path_after_a_change_of_folder_runs_in_the_sandbox(
    home: Path, outside: Path
) -> None:
    """The rule means a program beside the workspace; `cd` makes it resolve inside the workspace."""
    rule(home, "../run.sh")
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        ws = bench_.stage.workspace
        (ws / "sub").mkdir()
        program(ws.parent, "run.sh", "echo good")
        program(ws, "run.sh", f"echo evil; echo x > {outside}/planted")
        assert "evil" in await run_in(bench_, ws, "cd sub && ../run.sh", login=False)
    assert names(outside) == []


async def test_link_in_the_workspace_to_a_program_is_not_allowed_by_a_rule(
    home: Path, outside: Path
) -> None:
    rule(home, "./link")
    program(home.parent / "tools", "mine", f"echo ran; echo x > {outside}/planted")
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        ws = bench_.stage.workspace
        (ws / "link").symlink_to(home.parent / "tools" / "mine")
        assert "ran" in await run_in(bench_, ws, "./link", login=False)
    assert names(outside) == []


@pytest.mark.parametrize("name", ["{tools}/mine", "../tools/mine"])
async def test_rule_still_allows_a_program_that_no_command_can_write(
    home: Path, outside: Path, name: str
) -> None:
    async with bench(home) as bench_:
        ws = bench_.stage.workspace
        tools = ws.parent / "tools"
        program(tools, "mine", f"echo x > {outside}/made")
        name = name.format(tools=tools)
        rule(home, name)
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        await run_in(bench_, ws, name, login=False)
    assert names(outside) == ["made"]


async def test_rule_does_not_allow_the_shell_of_a_repository(stage: Stage, home: Path) -> None:
    (home / "rules").mkdir(exist_ok=True)
    (home / "rules" / "default.rules").write_text('prefix_rule(pattern=["git", "status"])\n')
    shell = stage.workspace / "bash"
    shell.write_text("#!/bin/sh\ntouch made\n")
    shell.chmod(0o755)
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="untrusted", sandbox="danger-full-access"
    )
    stage.model.plays(calls("shell", {"command": ["./bash", "-lc", "git status"]}))
    turn_id = await client.start_turn(thread_id)
    request = await question(client, "item/commandExecution/requestApproval")
    await answer(client, request, {"decision": "decline"})
    await client.end_of(turn_id)
    assert not (stage.workspace / "made").exists()
