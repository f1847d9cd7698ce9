"""Code reviews in real git repositories, and what is left of one whose server was killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.harness.processes import spawn_server
from tests.harness.repositories import commit, git, repository
from tests.harness.scripted import SECONDS, client_of, over, playing, write_script
from tests.harness.threads import EPILOGUE, Client, outline, params_of
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, calls
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue

UNCOMMITTED: JsonValue = {"type": "uncommittedChanges"}
NO_FINDINGS = json.dumps({"findings": [], "overall_explanation": "Fine."})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return repository(tmp_path / "ws")


def change_everything(folder: Path) -> None:
    """Change something in each way that git knows."""
    commit(folder, "b.txt", "b\n")
    (folder / "staged.txt").write_text("is staged\n")
    git(folder, "add", "staged.txt")
    (folder / "a.txt").write_text("is unstaged\n")
    (folder / "new.txt").write_text("is untracked\n")


def reviewer(*commands: str) -> ScriptedModel:
    """A model whose reviewer runs these commands."""
    left = [calls("exec_command", {"cmd": command, "login": False}) for command in commands]

    def play(request: ModelRequest) -> Response:
        return left.pop(0) if request.subagent == "review" and left else NO_FINDINGS

    return ScriptedModel(play)


async def review(client: Client, thread_id: str, target: JsonValue) -> list[JsonValue]:
    params = {"threadId": thread_id, "target": target}
    turn_id = (await client.request("review/start", params))["turn"]["id"]
    return await client.end_of(turn_id)


def printed(messages: list[JsonValue]) -> str:
    items = (params["item"] for params in params_of(messages, "item/completed"))
    outputs = [item["aggregatedOutput"] for item in items if item["type"] == "commandExecution"]
    return "\n".join(outputs)


async def test_a_reviewer_in_the_sandbox_sees_staged_unstaged_and_untracked_changes(
    home: Path, workspace: Path
) -> None:
    change_everything(workspace)
    model = reviewer("git status --short", "git diff HEAD", "cat new.txt", "echo x > made")
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(workspace), sandbox="read-only")
        messages = await review(client, thread_id, UNCOMMITTED)

    seen = printed(messages)
    assert {" M a.txt", "A  staged.txt", "?? new.txt"} <= set(seen.splitlines())
    assert {"+is unstaged", "+is staged", "is untracked"} <= set(seen.splitlines())
    assert outline(messages)[-2:] == EPILOGUE
    assert not (workspace / "made").exists()


async def test_the_merge_base_and_commit_in_the_reviewers_task_show_the_change(
    home: Path, workspace: Path
) -> None:
    git(workspace, "checkout", "--quiet", "-b", "work")
    sha = commit(workspace, "mine.txt", "is mine\n")
    git(workspace, "checkout", "--quiet", "main")
    commit(workspace, "theirs.txt", "is theirs\n")
    git(workspace, "checkout", "--quiet", "work")
    for target in ({"type": "baseBranch", "branch": "main"}, {"type": "commit", "sha": sha}):
        model = ScriptedModel(_run_named_command)
        async with playing(home, model) as server, client_of(server) as client:
            messages = await review(client, await client.start(cwd=str(workspace)), target)
        assert "+is mine" in printed(messages).splitlines()
        assert "theirs" not in printed(messages)


def _run_named_command(request: ModelRequest) -> Response:
    """Run the command that the reviewer's task quotes as code."""
    if any("output" in item for item in request.input):
        return NO_FINDINGS
    task = request.input[-1]["content"][0]["text"]
    return calls("exec_command", {"cmd": task.split("`")[1], "login": False})


async def test_an_unknown_branch_is_rejected(home: Path, workspace: Path) -> None:
    async with playing(home, reviewer()) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(workspace))
        target = {"type": "baseBranch", "branch": "nowhere"}
        refused = await client.refusal("review/start", {"threadId": thread_id, "target": target})
        messages = await client.run(thread_id, "go on")

    assert refused.message == f"no branch 'nowhere' in {workspace}"
    assert refused.data == {"kind": "invalidParams", "path": "target.branch"}
    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize("delivery", ["inline", "detached"])
async def test_a_review_whose_server_was_killed_is_reported_as_ended(
    home: Path, workspace: Path, delivery: str
) -> None:
    endless = [[{"type": "waits", "seconds": 600}]]
    script = write_script(home.parent / "script.json", endless)
    killed = spawn_server(home, TREADLE_SCRIPT=str(script))
    async with asyncio.timeout(SECONDS), over(killed) as client:
        thread_id = await client.start(cwd=str(workspace))
        params = {"threadId": thread_id, "target": UNCOMMITTED, "delivery": delivery}
        begun = await client.request("review/start", params)
        await client.until("item/completed", lambda params: params["item"]["type"] == "userMessage")
        os.kill(killed.pid, signal.SIGKILL)
    async with playing(home, ["go on"]) as server, client_of(server) as client:
        resumed = await client.request("thread/resume", {"threadId": begun["reviewThreadId"]})
        turn = resumed["thread"]["turns"][-1]
        read = (await client.read(begun["reviewThreadId"]))["turns"][-1]
        messages = await client.run(begun["reviewThreadId"], "hello")

    assert (turn["id"], turn["status"]) == (begun["turn"]["id"], "interrupted")
    kinds = ["enteredReviewMode", "userMessage", "exitedReviewMode"]
    assert [[item["type"] for item in each["items"]] for each in (turn, read)] == [kinds, kinds]
    text = "The review was lost: the server ended before the reviewer had finished."
    assert turn["items"][-1]["review"] == text
    assert outline(messages)[-2:] == EPILOGUE
