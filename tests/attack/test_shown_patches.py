"""A patch writes what was shown for its approval, where the approval said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS
from tests.harness.commands import Bench, bench
from tests.harness.model_server import calls, says
from tests.harness.questions import answer, question
from tests.sandbox.commands import names
from treadle.protocol.base import JsonValue

APPROVAL = "item/fileChange/requestApproval"
WRITES: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "workspace-write"}
VERDICT = {"risk_level": "low", "risk_score": 1, "user_authorization": "high", "rationale": "-"}


def patch_of(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def moving(target: Path) -> str:
    return patch_of(f"*** Update File: a.txt\n*** Move to: {target}\n@@\n-# one\n+# One")


async def approved(bench_: Bench, patch: str, meanwhile: Callable[[], object]) -> JsonValue:
    """Let the user accept a patch after something else has happened; return the request."""
    turn_id = await bench_.start_call("apply_patch", {"input": patch})
    asked = await question(bench_.client, APPROVAL)
    meanwhile()
    await answer(bench_.client, asked, {"decision": "accept"})
    await bench_.client.end_of(turn_id)
    return asked["params"]


async def test_content_that_changes_during_the_approval_is_not_written_outside(
    home: Path, outside: Path
) -> None:
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        source = bench_.stage.workspace / "a.txt"
        source.write_text("# one\ntwo\n")
        target = outside / "profile"
        await approved(bench_, moving(target), lambda: source.write_text("# one\ntwo\n\n\nevil\n"))
        assert "changed since the patch was shown" in bench_.output()
        assert names(outside) == []
        assert source.read_text() == "# one\ntwo\n\n\nevil\n"
        await approved(bench_, moving(target), lambda: None)
        assert target.read_text() == "# One\ntwo\n\n\nevil\n"


async def test_other_lines_than_the_shown_ones_are_not_replaced(home: Path, outside: Path) -> None:
    """The patch still matches, because blanks at the end of a line do not count."""
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        target = outside / "a"
        target.write_text("one\n")
        patch = patch_of(f"*** Update File: {target}\n@@\n-one\n+1")
        await approved(bench_, patch, lambda: target.write_text("one  \n"))
        assert "changed since the patch was shown" in bench_.output()
        assert target.read_text() == "one  \n"


@pytest.mark.parametrize("is_folder", [False, True])
async def test_request_names_the_file_that_a_link_leads_to(
    home: Path, outside: Path, is_folder: bool
) -> None:
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        target, ws = outside / "secret", bench_.stage.workspace
        target.write_text("old\n")
        name = "deep/secret" if is_folder else "notes.txt"
        made = f"ln -s {outside} deep" if is_folder else f"ln -s {target} {name}"
        await bench_.call("exec_command", {"cmd": made})
        patch = patch_of(f"*** Update File: {name}\n@@\n-old\n+new")
        asked = await approved(bench_, patch, lambda: None)
        assert asked["reason"] == f"{ws}/{name} leads through a link to {target}"


async def reviewed(bench_: Bench, patch: str) -> JsonValue:
    """Let the automatic reviewer allow a patch; return the action that it saw, if it was asked."""
    model = bench_.stage.model
    before = len(model.requests)
    verdict = says(json.dumps({**VERDICT, "outcome": "allow"}))
    model.plays(calls("apply_patch", {"input": patch}, "p"), verdict)
    await bench_.client.run(bench_.thread_id)
    model.replies.clear()
    for request in model.requests[before:]:
        if "decide on the user" in str(request.body.get("instructions")):
            text = request.body["input"][0]["content"][0]["text"]
            return json.loads(text.rpartition("<action>")[2].partition("</action>")[0])
    return None


async def test_reviewer_sees_the_whole_content_that_a_move_writes_outside(
    home: Path, outside: Path
) -> None:
    async with bench(
        home, NO_TEMPORARY_FOLDERS, **WRITES, approvalsReviewer="auto_review"
    ) as bench_:
        content = "# one\n\n\n\nevil\n"
        (bench_.stage.workspace / "a.txt").write_text(content)
        action = await reviewed(bench_, moving(outside / "profile"))
        shown = content.replace("one", "One")
        assert action["movedContents"] == {f"{outside}/profile": shown}
        assert (outside / "profile").read_text() == shown


@pytest.mark.parametrize("content", [b"line\n" * 600_000, b"\xff\x00"])
async def test_deletion_that_the_reviewer_cannot_see_is_denied(
    home: Path, outside: Path, content: bytes
) -> None:
    async with bench(
        home, NO_TEMPORARY_FOLDERS, **WRITES, approvalsReviewer="auto_review"
    ) as bench_:
        (outside / "big").write_bytes(content)
        assert await reviewed(bench_, patch_of(f"*** Delete File: {outside}/big")) is None
        assert (outside / "big").read_bytes() == content


async def test_a_patch_reveals_no_line_of_a_file_that_commands_cannot_read(
    home: Path, outside: Path
) -> None:
    async with bench(home, NO_TEMPORARY_FOLDERS, approvalPolicy="never") as bench_:
        ws, secret = bench_.stage.workspace, outside / "secret"
        secret.write_text("one\n")
        (ws / "link").symlink_to(secret)
        access = {"type": "restricted", "readableRoots": [str(ws)]}
        temporary = {"excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
        policy = {"type": "workspaceWrite", "readOnlyAccess": access, **temporary}
        changes = [
            f"*** Update File: {secret}\n@@\n-one\n+1",
            f"*** Update File: {secret}\n@@\n-two\n+2",
            f"*** Delete File: {secret}\n*** Add File: new\n+x",
            "*** Update File: link\n*** Move to: copy\n@@\n-two\n+2",
        ]
        script = [
            calls("apply_patch", {"input": patch_of(change)}, str(number))
            for number, change in enumerate(changes)
        ]
        bench_.stage.model.plays(*script, says("done"))
        await bench_.client.run(bench_.thread_id, sandboxPolicy=policy)
        outputs = bench_.stage.model.requests[-1].outputs()
        refused = "apply_patch verification failed: the sandbox does not allow reading"
        assert [outputs[str(number)] for number in range(4)] == [
            *[f"{refused} {secret}"] * 3,
            f"{refused} {ws / 'link'}",
        ]
        assert names(ws) == ["link"]
