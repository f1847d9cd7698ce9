"""`getConversationSummary` and `gitDiffToRemote`, which clients of the first protocol send."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.threads import staged
from tests.server.serving import configuration, refusal, result, serving
from treadle.engine.project import remote_diff

TRACKED = """\
diff --git a/a b/a
index {old}..{new} 100644
--- a/a
+++ b/a
@@ -1 +1,3 @@
 one
+two
+three
"""
UNTRACKED = """\
diff --git a/dir/new b/dir/new
new file mode 100644
index 0000000000000000000000000000000000000000..3e757656cf36eca53338e520d134963a44f793f8
--- /dev/null
+++ b/dir/new
@@ -0,0 +1 @@
+new
"""


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    command = ["git", *settings, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a clone with a local commit, an edit that is not committed and an untracked file."""
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    git(tmp_path, "init", "--quiet", str(clone))
    git(clone, "remote", "add", "origin", str(remote))
    (clone / "a").write_text("one\n")
    git(clone, "add", "a")
    git(clone, "commit", "--quiet", "-m", "one")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    (clone / "a").write_text("one\ntwo\n")
    git(clone, "commit", "--quiet", "-am", "two")
    (clone / "a").write_text("one\ntwo\nthree\n")
    (clone / "dir").mkdir()
    (clone / "dir" / "new").write_text("new\n")
    (clone / ".git" / "info" / "exclude").write_text("ignored\n")
    (clone / "ignored").write_text("x")
    return clone


async def test_commits_edits_and_untracked_files_differ_from_the_remote(
    home: Path, repository: Path
) -> None:
    pushed = git(repository, "rev-parse", "HEAD~")
    old = git(repository, "rev-parse", "--short", "HEAD~:a")
    new = git(repository, "hash-object", "a")[: len(old)]
    async with serving(configuration(home)) as peer:
        for folder in (repository, repository / "dir"):
            assert await result(peer, "gitDiffToRemote", {"cwd": str(folder)}) == {
                "sha": pushed,
                "diff": TRACKED.format(old=old, new=new) + UNTRACKED,
            }


async def test_a_pushed_commit_without_edits_has_no_difference(
    home: Path, repository: Path
) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "all")
    git(repository, "push", "--quiet", "origin", "HEAD:refs/heads/other")
    async with serving(configuration(home)) as peer:
        assert await result(peer, "gitDiffToRemote", {"cwd": str(repository)}) == {
            "sha": git(repository, "rev-parse", "HEAD"),
            "diff": "",
        }


async def test_binary_files_and_links_are_shown_as_git_does(home: Path, repository: Path) -> None:
    (repository / "dir" / "new").unlink()
    (repository / "link").symlink_to("/etc/hostname")
    (repository / "zero").write_bytes(b"\0\xff")
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "gitDiffToRemote", {"cwd": str(repository)})
    assert "new file mode 120000\n" in answer["diff"]
    assert "+/etc/hostname\n" in answer["diff"]
    assert answer["diff"].endswith("Binary files /dev/null and b/zero differ\n")


async def test_folders_without_a_remote_are_refused(
    home: Path, tmp_path: Path, repository: Path
) -> None:
    git(repository, "update-ref", "-d", "refs/remotes/origin/main")
    async with serving(configuration(home)) as peer:
        for folder in (tmp_path, tmp_path / "missing", repository):
            error = await refusal(peer, "gitDiffToRemote", {"cwd": str(folder)})
            text = f'failed to compute git diff to remote for cwd: "{folder}"'
            assert error["code"] == -32600
            assert error["message"].startswith(text)


async def test_a_difference_beyond_the_limits_is_refused(
    home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(configuration(home)) as peer:
        monkeypatch.setattr(remote_diff, "MAX_UNTRACKED", 0)
        error = await refusal(peer, "gitDiffToRemote", {"cwd": str(repository)})
        assert error["message"].endswith("there are more than 0 untracked files")
        monkeypatch.setattr(remote_diff, "MAX_DIFF", 10)
        error = await refusal(peer, "gitDiffToRemote", {"cwd": str(repository)})
        assert error["message"].endswith("the difference has more than 10 bytes")


async def test_a_program_of_the_repository_does_not_run_outside_the_sandbox(
    home: Path, repository: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    script = repository / "filter"
    script.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    script.chmod(0o755)
    for key in ("diff.external", "core.fsmonitor", "filter.x.clean"):
        git(repository, "config", key, str(script))
    (repository / ".gitattributes").write_text("* filter=x\n")
    async with serving(configuration(home)) as peer:
        await result(peer, "gitDiffToRemote", {"cwd": str(repository)})
    assert not trap.exists()
    git(repository, "status")
    assert trap.exists(), "the trap works outside the sandbox"


async def test_a_thread_is_summarized_by_its_id_and_by_its_file(home: Path) -> None:
    async with staged(home) as stage:
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await client.run(thread_id, "what the thread is about")
        read = await client.request("thread/read", {"threadId": thread_id})
        path = read["thread"]["path"]
        relative = str(Path(path).relative_to(stage.home))
        for params in (
            {"conversationId": thread_id},
            {"rolloutPath": path},
            {"rolloutPath": relative},
        ):
            summary = (await client.request("getConversationSummary", params))["summary"]
            assert summary["timestamp"].endswith("Z")
            assert summary["updatedAt"] >= summary["timestamp"]
            assert {
                name: summary[name] for name in ("conversationId", "path", "preview", "cwd")
            } == {
                "conversationId": thread_id,
                "path": path,
                "preview": "what the thread is about",
                "cwd": str(stage.workspace),
            }
            assert (summary["source"], summary["modelProvider"]) == (
                read["thread"]["source"],
                read["thread"]["modelProvider"],
            )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"conversationId": "0199a213-81c0-7800-8aa1-bbab2a035a53"},
            "no rollout found for conversation id 0199a213-81c0-7800-8aa1-bbab2a035a53",
        ),
        ({"conversationId": "x"}, "invalid thread id: 'x' is not a UUID"),
        ({"rolloutPath": "/missing"}, "no rollout found at /missing"),
    ],
)
async def test_a_missing_thread_is_refused(home: Path, params: object, message: str) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "getConversationSummary", params)
    assert (error["code"], error["message"]) == (-32600, message)
