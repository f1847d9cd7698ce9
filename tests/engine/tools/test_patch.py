"""Tests of apply_patch as clients and the model see it; texts and order are upstream's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.items import untimed
from tests.harness.scripted import client_of, playing
from tests.harness.threads import ANSWER, EPILOGUE, PROLOGUE, Client, outline, params_of
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.script import Response, calls, custom_call, says
from treadle.protocol.base import JsonValue

OUTSIDE = "patch rejected: writing outside of the project; rejected by user approval settings"
UNFIT = "apply_patch verification failed"
# The tests' own folders are in /tmp, which may be written as well otherwise.
CONFIG = """\
sandbox_mode = "workspace-write"
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""
ASK = "item/fileChange/requestApproval"
HELLO = "diff --git a/a.txt b/a.txt\nindex ce013625030ba8dba906f756967f9e9ca394464a.."


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


GREETING = patch(
    *("*** Update File: a.txt", "@@", "-hello", "+goodbye"),
    *("*** Add File: new.txt", "+one", "+two"),
)


class Scene:
    """A thread in a folder with one file, whose model sends patches."""

    def __init__(self, client: Client, model: ScriptedModel, folder: Path) -> None:
        self.client = client
        self.model = model
        self.folder = folder
        self.thread_id = ""

    async def run(self) -> list[JsonValue]:
        """Run a turn to its end."""
        return await self.client.run(self.thread_id)

    async def ask(self) -> tuple[str, JsonValue, list[JsonValue]]:
        """Run a turn to its server request: its id, the request, and the messages before it."""
        turn_id = await self.client.start_turn(self.thread_id)
        messages = await self.client.until(ASK)
        return turn_id, messages[-1], messages

    async def answer(self, question: JsonValue, **answer: JsonValue) -> None:
        await self.client.peer.send({"id": question["id"], **answer})

    def outputs(self) -> list[str]:
        """The outputs that the model received for its calls, without durations."""
        messages = [item for item in self.model.requests[-1].input if "output" in item]
        return [_timeless(str(item["output"])) for item in messages]

    def files(self) -> dict[str, str]:
        """The files in the folder."""
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_text("utf-8") for path in found}


def _timeless(output: str) -> str:
    return "\n".join("Wall time" if "Wall time" in line else line for line in output.split("\n"))


def done(*lines: str) -> str:
    listed = "".join(f"{line}\n" for line in lines)
    return f"Exit code: 0\nWall time\nOutput:\nSuccess. Updated the following files:\n{listed}"


@asynccontextmanager
async def scene(
    home: Path,
    patches: Sequence[str | Response],
    *,
    policy: str = "never",
) -> AsyncIterator[Scene]:
    (home / "config.toml").write_text(CONFIG, "utf-8")
    folder = home.parent / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n", "utf-8")
    sent: list[Response] = []
    for number, given in enumerate(patches, 1):
        if isinstance(given, str):
            sent.append(custom_call("apply_patch", given, call_id=f"call-{number}"))
        else:
            sent.append(given)
    model = ScriptedModel([*sent, *([says("ok")] * 3)])
    async with playing(home, model) as server, client_of(server) as client:
        made = Scene(client, model, folder)
        made.thread_id = await client.start(cwd=str(folder), approvalPolicy=policy, model="gpt-5.5")
        yield made


def item(scene: Scene, status: str, *changes: JsonValue) -> JsonValue:
    """A fileChange item of the first call."""
    return {"type": "fileChange", "id": "call-1", "changes": list(changes), "status": status}


def greeting(folder: Path) -> list[JsonValue]:
    return [
        {
            "path": f"{folder}/a.txt",
            "kind": {"type": "update", "move_path": None},
            "diff": "@@ -1 +1 @@\n-hello\n+goodbye\n",
        },
        {"path": f"{folder}/new.txt", "kind": {"type": "add"}, "diff": "one\ntwo\n"},
    ]


GREETING_DIFF = (
    f"{HELLO}dd7e1c6f0fefe118f0b63d9f10908c460aa317a6\n"
    "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+goodbye\n"
    "diff --git a/new.txt b/new.txt\nnew file mode 100644\n"
    f"index {'0' * 40}..814f4a422927b82f5f8a43f8fab6d3839e3983f2\n"
    "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
)


MOVED_DIFF = (
    "diff --git a/a.txt b/d/b.txt\n"
    "index ce013625030ba8dba906f756967f9e9ca394464a..549477274da81523feadb7071d7af1b0f0bd1683\n"
    "--- a/a.txt\n+++ b/d/b.txt\n@@ -1 +1 @@\n-hello\n+moved\n"
)


async def test_a_patch_is_shown_applied_and_reported_as_a_diff(home: Path) -> None:
    async with scene(home, [GREETING]) as s:
        messages = await s.run()

        assert outline(messages) == [
            *PROLOGUE,
            "item/started fileChange",
            "item/completed fileChange",
            "turn/diff/updated",
            *ANSWER[:2],
            *EPILOGUE,
        ]
        changes = greeting(s.folder)
        [_, started, _] = params_of(messages, "item/started")
        [_, completed, _] = params_of(messages, "item/completed")
        assert untimed(started["item"]) == item(s, "inProgress", *changes)
        assert untimed(completed["item"]) == item(s, "completed", *changes)
        [diff] = params_of(messages, "turn/diff/updated")
        assert diff["diff"] == GREETING_DIFF
        assert s.outputs() == [done("A new.txt", "M a.txt")]
        assert s.files() == {"a.txt": "goodbye\n", "new.txt": "one\ntwo\n"}


async def test_a_move_and_a_deletion_are_reported_with_the_lost_content(home: Path) -> None:
    second = patch(
        *("*** Update File: a.txt", "*** Move to: d/b.txt", "-goodbye", "+moved"),
        "*** Delete File: new.txt",
    )
    async with scene(home, [GREETING, second]) as s:
        messages = await s.run()

        changes = [
            {
                "path": f"{s.folder}/a.txt",
                "kind": {"type": "update", "move_path": f"{s.folder}/d/b.txt"},
                "diff": f"@@ -1 +1 @@\n-goodbye\n+moved\n\n\nMoved to: {s.folder}/d/b.txt",
            },
            {"path": f"{s.folder}/new.txt", "kind": {"type": "delete"}, "diff": "one\ntwo\n"},
        ]
        completed = params_of(messages, "item/completed")[2]
        assert untimed(completed["item"]) == {**item(s, "completed", *changes), "id": "call-2"}
        assert [params["diff"] for params in params_of(messages, "turn/diff/updated")] == [
            GREETING_DIFF,
            MOVED_DIFF,
        ]
        assert s.outputs()[1] == done("M d/b.txt", "D new.txt")


async def test_the_function_form_is_accepted_under_the_same_name(home: Path) -> None:
    call = calls("apply_patch", {"input": patch("*** Delete File: a.txt")})
    async with scene(home, [call, calls("apply_patch", {"patch": "x"})]) as s:
        await s.run()

        fault = "failed to parse function arguments: Object missing required field `input`"
        assert s.outputs() == [done("D a.txt"), fault]
        assert s.files() == {}


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (
            "garbage",
            f"{UNFIT}: invalid patch: The first line of the patch must be '*** Begin Patch'",
        ),
        (patch(), "patch rejected: empty patch"),
        (
            patch("*** Update File: a.txt", "-nosuchline", "+x"),
            f"{UNFIT}: Failed to find expected lines in {{}}/a.txt:\nnosuchline",
        ),
        (
            patch("*** Add File: n.txt", "+x", "*** Delete File: no.txt"),
            f"{UNFIT}: Failed to read {{}}/no.txt: No such file or directory (os error 2)",
        ),
        (
            patch("*** Add File: ../outside.txt", "+x"),
            "patch rejected: writing outside of the project; rejected by user approval settings",
        ),
        (
            patch("*** Update File: a.txt", "*** Move to: ../outside.txt", "-hello"),
            "patch rejected: writing outside of the project; rejected by user approval settings",
        ),
        (
            patch("*** Add File: out/x", "+x"),
            "patch rejected: writing outside of the project; rejected by user approval settings",
        ),
        (
            patch("*** Add File: .git/hooks/x", "+x"),
            "patch rejected: writing outside of the project; rejected by user approval settings",
        ),
    ],
)
async def test_an_impossible_patch_is_reported_to_the_model_only(
    home: Path, text: str, output: str
) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    async with scene(home, [text]) as s:
        (s.folder / "out").symlink_to(outside)
        events = await s.run()

        assert s.outputs() == [output.format(s.folder)]
        assert s.files() == {"a.txt": "hello\n"}
        assert list(outside.iterdir()) == []
        assert not (home.parent / "outside.txt").exists()
        shown = [params["item"]["type"] for params in params_of(events, "item/started")]
        assert shown == ["userMessage", "agentMessage"]
        assert params_of(events, "turn/diff/updated") == []


async def test_a_failed_edit_changes_nothing_and_is_shown_as_failed(home: Path) -> None:
    text = patch("*** Add File: n.txt", "+x", "*** Add File: a.txt/under", "+x")
    async with scene(home, [text]) as s:
        messages = await s.run()

        [_, completed, _] = params_of(messages, "item/completed")
        assert completed["item"]["status"] == "failed"
        failure = f"Failed to write file {s.folder}/a.txt/under"
        assert s.outputs() == [f"Exit code: 1\nWall time\nOutput:\n{failure}\n"]
        assert s.files() == {"a.txt": "hello\n"}
        assert params_of(messages, "turn/diff/updated") == []


@pytest.mark.parametrize(
    ("answer", "status", "output"),
    [
        ({"result": {"decision": "accept"}}, "completed", done("A new.txt", "M a.txt")),
        ({"result": {"decision": "decline"}}, "declined", "patch rejected by user"),
        ({"error": {"code": -1, "message": "no"}}, "declined", "approval request failed"),
        ({"result": {"decision": "perhaps"}}, "declined", "approval request failed"),
    ],
)
async def test_the_answer_of_the_user_decides(
    home: Path, answer: JsonValue, status: str, output: str
) -> None:
    async with scene(home, [GREETING], policy="untrusted") as s:
        turn_id, question, before = await s.ask()
        unchanged = s.files()
        await s.answer(question, **answer)
        messages = await s.client.end_of(turn_id)

        assert unchanged == {"a.txt": "hello\n"}
        [_, started] = params_of(before, "item/started")
        assert untimed(started["item"]) == item(s, "inProgress", *greeting(s.folder))
        asked = question["params"]
        assert (asked["itemId"], asked["threadId"]) == ("call-1", s.thread_id)
        completed = params_of(messages, "item/completed")[0]
        assert untimed(completed["item"]) == item(s, status, *greeting(s.folder))
        assert s.outputs() == [output]
        assert (s.files() == unchanged) is (status != "completed")


async def test_cancelling_ends_the_turn_and_declines_the_edits(home: Path) -> None:
    async with scene(home, [GREETING], policy="untrusted") as s:
        turn_id, question, _ = await s.ask()
        await s.answer(question, result={"decision": "cancel"})
        messages = await s.client.end_of(turn_id)

        [completed] = params_of(messages, "item/completed")
        assert completed["item"]["status"] == "declined"
        assert outline(messages)[-1] == "turn/completed interrupted"
        assert s.files() == {"a.txt": "hello\n"}


async def test_interrupting_during_an_approval_declines_the_edits(home: Path) -> None:
    async with scene(home, [GREETING], policy="untrusted") as s:
        turn_id, _, _ = await s.ask()
        await s.client.request("turn/interrupt", {"threadId": s.thread_id, "turnId": turn_id})
        messages = await s.client.end_of(turn_id)

        [completed] = params_of(messages, "item/completed")
        assert completed["item"]["status"] == "declined"
        assert s.files() == {"a.txt": "hello\n"}


async def test_a_file_approved_for_the_session_needs_no_further_approval(home: Path) -> None:
    again = patch("*** Update File: new.txt", "-one", "+ONE")
    async with scene(home, [GREETING, again], policy="untrusted") as s:
        turn_id, question, _ = await s.ask()
        await s.answer(question, result={"decision": "acceptForSession"})
        messages = await s.client.end_of(turn_id)

        assert params_of(messages, ASK) == []
        assert s.files() == {"a.txt": "goodbye\n", "new.txt": "ONE\ntwo\n"}


async def test_a_path_outside_may_be_written_with_approval(home: Path) -> None:
    text = patch("*** Add File: out/x", "+x", "*** Add File: ../beside.txt", "+y")
    outside = home.parent / "outside"
    outside.mkdir()
    async with scene(home, [text], policy="on-request") as s:
        (s.folder / "out").symlink_to(outside)
        turn_id, question, _ = await s.ask()
        await s.answer(question, result={"decision": "accept"})
        await s.client.end_of(turn_id)

        assert s.outputs() == [done("A out/x", "A ../beside.txt")]
        assert (outside / "x").read_text("utf-8") == "x\n"
        assert (home.parent / "beside.txt").read_text("utf-8") == "y\n"


async def test_an_approved_patch_applies_to_the_current_file(home: Path) -> None:
    async with scene(home, [GREETING], policy="untrusted") as s:
        turn_id, question, _ = await s.ask()
        (s.folder / "a.txt").write_text("first\nhello\n", "utf-8")
        await s.answer(question, result={"decision": "accept"})
        await s.client.end_of(turn_id)

        assert s.files() == {"a.txt": "first\ngoodbye\n", "new.txt": "one\ntwo\n"}


async def test_an_approved_patch_that_no_longer_matches_fails(home: Path) -> None:
    async with scene(home, [GREETING], policy="untrusted") as s:
        turn_id, question, _ = await s.ask()
        (s.folder / "a.txt").write_text("other\n", "utf-8")
        await s.answer(question, result={"decision": "accept"})
        messages = await s.client.end_of(turn_id)

        assert params_of(messages, "item/completed")[0]["item"]["status"] == "failed"
        failure = f"Failed to find expected lines in {s.folder}/a.txt:\nhello"
        assert s.outputs() == [f"Exit code: 1\nWall time\nOutput:\n{failure}\n"]
        assert s.files() == {"a.txt": "other\n"}


async def test_an_approved_patch_does_not_follow_a_new_link(home: Path) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    async with scene(home, [patch("*** Add File: d/x", "+x")], policy="untrusted") as s:
        turn_id, question, _ = await s.ask()
        (s.folder / "d").symlink_to(outside)
        await s.answer(question, result={"decision": "accept"})
        messages = await s.client.end_of(turn_id)

        assert params_of(messages, "item/completed")[0]["item"]["status"] == "failed"
        assert list(outside.iterdir()) == []


async def test_two_patches_in_one_answer_are_applied_one_after_the_other(home: Path) -> None:
    first = custom_call("apply_patch", patch("*** Update File: a.txt", "-hello", "+hi"))
    second = custom_call("apply_patch", patch("*** Update File: a.txt", "-hi", "+bye"))
    async with scene(home, [[first, second]]) as s:
        messages = await s.run()

        assert s.outputs() == [done("M a.txt"), done("M a.txt")]
        assert s.files() == {"a.txt": "bye\n"}
        assert len(params_of(messages, "turn/diff/updated")) == 2


@pytest.mark.parametrize(
    ("model", "kind"),
    [("gpt-5.5", "custom"), ("claude-opus-4-8", "function"), ("mock-model", "function")],
)
async def test_each_model_is_offered_the_form_that_it_supports(
    home: Path, model: str, kind: str
) -> None:
    async with scene(home, ["garbage"]) as s:
        await s.client.run(s.thread_id, model=model)

        offered = s.model.requests[-1].tools
        assert [tool["type"] for tool in offered if tool.get("name") == "apply_patch"] == [kind]
