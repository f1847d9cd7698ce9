"""Settings of a repository that a workspace contains start no program outside the sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS, program, rule
from tests.harness.commands import Bench, bench, commands
from tests.harness.questions import answer, question
from tests.harness.repositories import repository
from tests.sandbox.commands import names
from treadle.protocol.base import JsonValue

APPROVAL = "item/commandExecution/requestApproval"
WRITES: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "workspace-write"}
FREE: dict[str, JsonValue] = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}
FOLDERS = {"a bare repository": "vendor", "a repository": "vendor/.git"}


def planting(folder: str, outside: Path) -> str:
    """Return a script that creates a repository whose settings start a program."""
    settings = "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n"
    settings += f'\\tfsmonitor = "touch {outside}/planted; false"\\n'
    if not folder.endswith(".git"):
        settings = settings.replace("bare = false", "bare = false\\n\\tworktree = .")
    return (
        f"mkdir -p {folder}/objects {folder}/refs; echo 'ref: refs/heads/main' > {folder}/HEAD; "
        f"printf '{settings}' > {folder}/config"
    )


def git(folder: Path, *words: str) -> str:
    """Run git outside of any sandbox, as its user would."""
    run = subprocess.run(["git", *words], cwd=folder, check=False, capture_output=True, text=True)
    return run.stdout


def plant(bench_: Bench, folder: str, outside: Path) -> Path:
    """Let the workspace contain such a repository; return its folder."""
    ws = bench_.stage.workspace
    subprocess.run(["/bin/sh", "-c", planting(folder, outside)], cwd=ws, check=True)
    return ws / "vendor"


async def approve(bench_: Bench, script: str, workdir: Path) -> str:
    """Have the user approve a command outside the sandbox; return its output."""
    arguments: JsonValue = {
        "cmd": script,
        "workdir": str(workdir),
        "sandbox_permissions": "require_escalated",
        "justification": "why",
    }
    turn_id = await bench_.start_call("exec_command", arguments)
    await answer(bench_.client, await question(bench_.client, APPROVAL), {"decision": "accept"})
    (ended,) = commands(await bench_.client.end_of(turn_id))
    assert ended["status"] in ("completed", "failed")
    return bench_.output()


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
async def test_reading_git_needs_approval_where_no_sandbox_confines_it(
    home: Path, outside: Path, folder: str
) -> None:
    async with bench(home, **FREE) as bench_:
        workdir = str(plant(bench_, folder, outside))
        arguments: JsonValue = {"cmd": "git status", "workdir": workdir}
        turn_id = await bench_.start_call("exec_command", arguments)
        asked = await question(bench_.client, APPROVAL)
        await answer(bench_.client, asked, {"decision": "decline"})
        await bench_.client.end_of(turn_id)
    assert names(outside) == []


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
async def test_approved_reading_git_starts_no_planted_program_outside(
    home: Path, outside: Path, folder: str
) -> None:
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        await bench_.call("exec_command", {"cmd": planting(folder, outside)})
        vendor = bench_.stage.workspace / "vendor"
        assert (vendor / "HEAD").exists() or (vendor / ".git" / "HEAD").exists()
        await approve(bench_, "git status", vendor)
        assert names(outside) == []
        git(vendor, "status")
    assert names(outside) == ["planted"], "the trap does not work"


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
@pytest.mark.parametrize("script", ["git status", "cd . && git status", "git -C . status"])
async def test_rule_for_git_starts_no_planted_program_outside(
    home: Path, outside: Path, folder: str, script: str
) -> None:
    rule(home, "git")
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        vendor = plant(bench_, folder, outside)
        await bench_.call("exec_command", {"cmd": script, "workdir": str(vendor)})
    assert names(outside) == []


async def use(bench_: Bench, home: Path, folder: Path, *, is_ruled: bool) -> None:
    """Run git outside the sandbox, as the user would allow it."""
    if is_ruled:
        rule(home, "git")
        await bench_.call("exec_command", {"cmd": "git status", "workdir": str(folder)})
    else:
        await approve(bench_, "git status", folder)


def trap(file: str, outside: Path) -> str:
    """Return a script that writes a hook, which git runs when it refreshes its index."""
    hook = f"#!/bin/sh\\ntouch {outside}/planted\\n"
    return f"printf '{hook}' > {file}; chmod +x {file}; touch -ct 200101010000 a.txt mine/a.txt"


def monitor(outside: Path) -> str:
    """Return the options of `git config` for a setting that starts a program."""
    return f"core.fsmonitor 'touch {outside}/planted; false'"


def elsewhere(place: str, parent: Path, ws: Path) -> Path:
    """Make a repository of the user that commands of the workspace can write; return its folder."""
    folder = parent / "mine"
    if place == "nested":
        return repository(ws / "mine")
    if place == "worktree":
        git(repository(ws / "mine"), "worktree", "add", "-q", str(folder))
    else:
        folder.mkdir()
        git(folder, "init", "-q", "--separate-git-dir", str(ws / "apart"))
    return folder


@pytest.mark.parametrize("is_ruled", [False, True])
@pytest.mark.parametrize("place", ["nested", "worktree", "separate"])
async def test_repository_that_another_thread_could_write_starts_nothing_outside(
    home: Path, outside: Path, place: str, is_ruled: bool
) -> None:
    """Its folder is open to the earlier thread, which works above it, and closed to the later."""
    scripts = {
        "nested": trap("mine/.git/hooks/post-index-change", outside),
        "worktree": f"git -C mine config {monitor(outside)}",
        "separate": f"git config -f apart/config {monitor(outside)}",
    }
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        folder = elsewhere(place, home.parent, bench_.stage.workspace)
        await bench_.call("exec_command", {"cmd": scripts[place]})
        bench_.thread_id = await bench_.client.start(cwd=str(folder), **WRITES)
        await use(bench_, home, folder, is_ruled=is_ruled)
        assert "On branch" in bench_.output()
        assert names(outside) == []
        git(folder, "status")
    assert names(outside) == ["planted"], "the trap does not work"


@pytest.mark.parametrize("is_ruled", [False, True])
@pytest.mark.parametrize("way", ["hooks", "include", "submodule"])
async def test_settings_of_the_user_that_lead_into_the_workspace_start_nothing_outside(
    home: Path, outside: Path, way: str, is_ruled: bool
) -> None:
    """Hooks in the workspace are usual, and each submodule is a repository with settings."""
    scripts = {
        "hooks": trap("hooks/post-index-change", outside),
        "include": f"git config -f shared {monitor(outside)}",
        "submodule": f"cd sub && git init -q && git config {monitor(outside)} && "
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
    }
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        ws = repository(bench_.stage.workspace)
        if way == "submodule":
            link = f"160000,{git(ws, 'rev-parse', 'HEAD').strip()},sub"
            git(ws, "update-index", "--add", "--cacheinfo", link)
        (ws / "hooks").mkdir()
        (ws / "sub").mkdir()
        git(ws, "config", *{"hooks": ("core.hooksPath", "hooks")}.get(way, ("a.b", "c")))
        git(ws, "config", *{"include": ("include.path", "../shared")}.get(way, ("a.b", "c")))
        await bench_.call("exec_command", {"cmd": scripts[way]})
        await use(bench_, home, ws, is_ruled=is_ruled)
        assert "On branch" in bench_.output()
        assert names(outside) == []
        git(ws, "status")
    assert names(outside) == ["planted"], "the trap does not work"


async def test_other_approved_git_refuses_a_bare_repository(home: Path, outside: Path) -> None:
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        vendor = plant(bench_, "vendor", outside)
        output = await approve(bench_, "git add --all --dry-run", vendor)
        assert "bare repository" in output
    assert names(outside) == []


@pytest.mark.parametrize("is_ruled", [False, True])
async def test_git_works_outside_in_the_repository_of_the_workspace(
    home: Path, is_ruled: bool
) -> None:
    """It commits there, which no command in the sandbox can, and also in a subfolder."""
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        ws = bench_.stage.workspace
        if is_ruled:
            rule(home, "git")
        (ws / "src").mkdir()
        git(ws, "init", "-q")
        commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
        for folder in (ws, ws / "src"):
            for command in (commit, "git status"):
                if is_ruled:
                    await bench_.call("exec_command", {"cmd": command, "workdir": str(folder)})
                else:
                    await approve(bench_, command, folder)
            assert "On branch" in bench_.output()
        assert len(git(ws, "log", "--oneline").splitlines()) == 2


@pytest.mark.parametrize("sandbox", ["danger-full-access", "read-only"])
@pytest.mark.parametrize("entry", ["./node_modules/.bin", "", "{ws}/node_modules/.bin"])
async def test_reading_command_without_approval_runs_no_program_of_the_workspace(
    home: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str, entry: str
) -> None:
    params: dict[str, JsonValue] = {"approvalPolicy": "untrusted", "sandbox": sandbox}
    async with bench(home, **params) as bench_:
        ws = bench_.stage.workspace
        monkeypatch.setenv("PATH", f"{entry.format(ws=ws)}:{os.environ['PATH']}")
        for folder in (ws, ws / "node_modules" / ".bin"):
            program(folder, "ls", f"echo planted; echo x > {outside}/planted")
        calls: list[tuple[str, JsonValue]] = [
            ("exec_command", {"cmd": "ls", "login": False}),
            ("exec_command", {"cmd": "ls"}),
            ("shell", {"command": ["ls"]}),
        ]
        for tool, arguments in calls:
            _, output = await bench_.call(tool, arguments)
            assert "node_modules" in output
    assert names(outside) == []


@pytest.mark.parametrize("place", ["vendor/.git", "vendor/.git/commondir"])
async def test_a_pipe_in_place_of_settings_blocks_nothing(home: Path, place: str) -> None:
    """Opening it would stop the event loop until another program opens the other end."""
    rule(home, "git")
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        pipe = bench_.stage.workspace / place
        pipe.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
        arguments = {"cmd": "git --version", "workdir": str(bench_.stage.workspace / "vendor")}
        messages, _ = await bench_.call("exec_command", arguments)
        (ended,) = commands(messages)
    assert ended["status"] == "completed"
