"""Settings of a repository that a workspace contains start no program outside the sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS, program, rule
from tests.harness.commands import Bench, bench, commands
from tests.harness.questions import answer, question
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
