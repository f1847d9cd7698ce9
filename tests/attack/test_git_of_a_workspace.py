"""Programs that Treadle itself runs in a workspace execute nothing that a command prepared."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS, run_in
from tests.harness.commands import bench
from tests.harness.processes import TREADLE, environment
from tests.harness.repositories import git, repository
from tests.harness.sandbox import SANDBOX
from tests.sandbox.commands import names
from treadle.engine.project.confined_git import ConfinedGit, GitUnavailable
from treadle.engine.review.target import resolve
from treadle.protocol.base import JsonValue
from treadle.protocol.review import BaseBranchReviewTarget, CommitReviewTarget
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.protection import Protection
from treadle.unattended import Session, SessionOptions

SECONDS = 50
MISSING = "1" * 40
GIT = "git -c user.name=someone -c user.email=someone@example.com"
SETTINGS = f'sandbox_mode = "workspace-write"\napproval_policy = "never"\n{NO_TEMPORARY_FOLDERS}'

# Each script leaves a repository in which `git status` runs a filter: a file whose date differs
# from the index has to be read again.
IN_THE_FOLDER = """
git init -q --bare made && mv made/* . && rmdir made
git config -f config core.bare false && git config -f config core.worktree "$PWD"
echo '* filter=x' > .gitattributes; echo hi > f
export GIT_DIR="$PWD" GIT_WORK_TREE="$PWD"
git add -f f .gitattributes && touch -d 2001-01-01 f
git config -f config filter.x.clean "touch {trap}; cat"
"""
BEHIND_A_GITLINK = f"""
mkdir -p sub && cd sub && git init -q . && echo '* filter=x' > .gitattributes; echo hi > f
git add . && {GIT} commit -q -m x && touch -d 2001-01-01 f
git config filter.x.clean "touch {{trap}}; cat"
"""
ON_THE_PATH = """
mkdir -p tools && printf '#!/bin/sh\\ntouch {trap}\\n' > tools/git && chmod +x tools/git
"""
PLANTS = {
    "repository in the folder itself": IN_THE_FOLDER,
    "repository behind a gitlink": BEHIND_A_GITLINK,
    "program on the path": ON_THE_PATH,
}
PARTIAL_CLONE = f"""
mkdir sub && cd sub && git init -q . && {GIT} commit -q --allow-empty -m x
git config core.repositoryFormatVersion 1 && git config extensions.partialClone o
git config remote.o.promisor true && git config remote.o.url "$PWD"
git config remote.o.uploadpack "touch {{trap}}; false"
echo {MISSING} > .git/refs/heads/base
"""


def script(command: str) -> str:
    """Return the model's script: run a command, then end."""
    arguments = {"cmd": command, "login": False}
    call = {"type": "calls", "tool": "exec_command", "arguments": arguments, "call_id": "c"}
    return json.dumps([[call], ["done"]])


def variables(home: Path, command: str) -> dict[str, str]:
    """Return the environment of a server whose model runs one command in the sandbox."""
    (home / "config.toml").write_text(SETTINGS)
    return environment(home, TREADLE_SCRIPT=script(command))


def spring(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run git without confinement."""
    command = ["git", *arguments]
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)


def run_shell(folder: Path, command: str) -> None:
    subprocess.run(["sh", "-c", command], cwd=folder, check=True)


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_report_of_a_turn_runs_no_program_of_the_workspace_outside(
    home: Path, outside: Path, workspace: Path, plant: str
) -> None:
    if plant == BEHIND_A_GITLINK:
        repository(workspace)
        git(workspace, "update-index", "--add", "--cacheinfo", f"160000,{MISSING},sub")
    env = variables(home, plant.format(trap=outside / "sprung") + f"\ntouch {workspace}/planted")
    env["PATH"] = f"{workspace}/tools:{env['PATH']}"
    done = subprocess.run(
        [TREADLE, "run", "--unattended", "--sandbox", "workspace-write", "go"],
        env=env,
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (workspace / "planted").exists()
    assert names(outside) == []
    # Without confinement, the trap works.
    spring(workspace, "status", env=env)
    assert names(outside) == ["sprung"]


async def test_report_of_a_confined_turn_names_commits_and_changes(
    home: Path, workspace: Path
) -> None:
    repository(workspace)
    options = SessionOptions(
        cwd=workspace,
        server=[TREADLE, "app-server"],
        env=variables(home, "printf x > made.txt"),
        sandbox="workspace-write",
    )
    async with Session(options) as session:
        report = await session.run("go")
    head = git(workspace, "rev-parse", "HEAD")
    evidence = report.evidence
    assert (evidence.before.head, evidence.before.changes) == (head, "")
    assert (evidence.after.head, evidence.after.changes) == (head, "?? made.txt")


TARGETS: dict[str, JsonValue] = {
    "branch": {"type": "baseBranch", "branch": "base"},
    "commit": {"type": "commit", "sha": MISSING},
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
async def test_review_of_a_partial_clone_runs_no_program_of_it_outside(
    home: Path, outside: Path, target: JsonValue
) -> None:
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        workspace = bench_.stage.workspace
        await run_in(bench_, workspace, PARTIAL_CLONE.format(trap=outside / "sprung"))
        clone = workspace / "sub"
        thread_id = await bench_.client.start(cwd=str(clone), sandbox="read-only")
        params: JsonValue = {"threadId": thread_id, "target": target}
        refused = await bench_.client.refusal("review/start", params)
        assert "base" in refused.message or MISSING in refused.message
    assert names(outside) == []
    # The trap works where git fetches missing objects.
    spring(clone, "rev-parse", "--verify", f"{MISSING}^{{commit}}")
    assert names(outside) == ["sprung"]


async def test_git_that_cannot_be_confined_does_not_run(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_none() -> Backend:
        raise SandboxUnavailable("none works here", fix="")

    monkeypatch.setattr(SANDBOX, "find_backend", find_none)
    run_shell(workspace, PARTIAL_CLONE.format(trap=outside / "sprung"))
    confined = ConfinedGit(SANDBOX, Boundary(Protection()), str(workspace / "sub"))
    with pytest.raises(GitUnavailable):
        await confined.ask("rev-parse", "HEAD")
    branch = await resolve(BaseBranchReviewTarget("base; id"), confined)
    assert "`git merge-base HEAD 'base; id'`" in branch.prompt
    one = await resolve(CommitReviewTarget(MISSING), confined)
    assert f"`git show {MISSING}`" in one.prompt
    assert names(outside) == []
