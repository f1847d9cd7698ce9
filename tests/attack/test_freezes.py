"""No request and no tool call delays others: slow work runs off the event loop, or is refused.

A test here either blocks one step of the work and checks that another client is answered
meanwhile, or checks that excessive work is refused before it begins. No test measures time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from tests.harness.model_server import calls, patches, says
from tests.harness.stalls import stalled
from tests.harness.threads import EPILOGUE, Client, Stage, outline, params_of
from treadle.config.edit.writer import MAX_EDITS
from treadle.config.file import MAX_DEPTH
from treadle.engine.commands import rule_writing
from treadle.engine.conversation import input as engine_input
from treadle.engine.conversation import model_context as view
from treadle.engine.conversation import repair
from treadle.engine.patch import work
from treadle.engine.patch.effort import (
    MAX_OPERATIONS,
    MAX_STEPS,
    MAX_TOTAL_BYTES,
    MAX_UPDATE_BYTES,
)
from treadle.engine.patch.files import MAX_FOLDERS
from treadle.engine.project import skills
from treadle.protocol.base import JsonValue
from treadle.server.files import service as server_files
from treadle.server.handlers import thread as thread_handlers
from treadle.server.query_limits import MAX_TERM_CHARACTERS
from treadle.server.session import MAX_FILE_REQUESTS
from treadle.server.sources import skills as server_skills
from treadle.support.text.json_text import MAX_CONTAINERS

MEBIBYTE = 1024 * 1024
REFUSED = "apply_patch verification failed: "


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


GREETING = patch("*** Update File: a.txt", "@@", "-hello", "+goodbye", "*** Add File: b.txt", "+b")


async def writer(stage: Stage) -> tuple[Client, str]:
    """Start a thread that may write to a folder with one file."""
    stage.workspace.joinpath("a.txt").write_text("hello\n")
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), sandbox="workspace-write", approvalPolicy="never"
    )
    return client, thread_id


async def output(stage: Stage, text: str) -> str:
    """Let the model send a patch and return its output; the turn must complete."""
    client, thread_id = await writer(stage)
    stage.model.plays(patches(text), says("ok"))
    messages = await client.run(thread_id)
    assert outline(messages)[-2:] == EPILOGUE
    result: str = stage.model.requests[-1].outputs()["call-1"]
    return result


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


async def answers_others(stage: Stage) -> bool:
    """Return whether another client completes a whole turn while something blocks."""
    other = await stage.client()
    thread_id = await other.start(cwd=str(stage.workspace))
    stage.model.plays(says("here"))
    return outline(await other.run(thread_id))[-2:] == EPILOGUE


# -- patches run off the loop


@pytest.mark.parametrize("step", ["read_file", "carry_out"])
async def test_other_clients_are_served_while_a_patch_is_applied(stage: Stage, step: str) -> None:
    client, thread_id = await writer(stage)
    stage.model.plays(patches(GREETING))
    with stalled(work, step) as stall:
        turn_id = await client.start_turn(thread_id)
        await stall.reached()
        assert await answers_others(stage)
        stage.model.plays(says("ok"))
        stall.release()
        messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE
    assert contents(stage.workspace) == {"a.txt": "goodbye\n", "b.txt": "b\n"}


@pytest.mark.parametrize("step", ["read_file", "carry_out"])
async def test_interrupt_ends_a_turn_whose_patch_hangs_and_no_file_changes(
    stage: Stage, step: str
) -> None:
    client, thread_id = await writer(stage)
    stage.model.plays(patches(GREETING))
    with stalled(work, step) as stall:
        turn_id = await client.start_turn(thread_id)
        await stall.reached()
        await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        messages = await client.end_of(turn_id)
        stall.release()
        stage.model.plays(says("ok"))
        await client.run(thread_id)

    assert params_of(messages, "turn/completed")[-1]["turn"]["status"] == "interrupted"
    assert contents(stage.workspace) == {"a.txt": "hello\n"}


async def test_interrupt_while_files_are_renamed_waits_for_all_of_them(stage: Stage) -> None:
    client, thread_id = await writer(stage)
    stage.model.plays(patches(GREETING))
    with stalled(os, "replace") as stall:
        turn_id = await client.start_turn(thread_id)
        await stall.reached()
        for _ in range(2):
            await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        stall.release()
        messages = await client.end_of(turn_id)

    assert outline(messages)[-4:] == [
        "item/completed fileChange",
        "turn/diff/updated",
        "thread/status/changed idle",
        "turn/completed interrupted",
    ]
    (item,) = [
        params["item"]
        for params in params_of(messages, "item/completed")
        if params["item"]["type"] == "fileChange"
    ]
    assert item["status"] == "completed"
    assert contents(stage.workspace) == {"a.txt": "goodbye\n", "b.txt": "b\n"}


async def test_patches_of_two_threads_to_one_file_both_take_effect(stage: Stage) -> None:
    """The second one was planned before the first one was applied."""
    client, first = await writer(stage)
    second = await client.start(
        cwd=str(stage.workspace), sandbox="workspace-write", approvalPolicy="never"
    )
    path = stage.workspace / "a.txt"
    path.write_text("one\ntwo\n")
    turns = []
    with stalled(work, "carry_out") as stall:
        for thread_id, line in ((first, "one"), (second, "two")):
            stage.model.plays(patches(patch("*** Update File: a.txt", f"-{line}", f"+{line}!")))
            turns.append(await client.start_turn(thread_id))
            await client.until(
                "item/started", lambda params: params["item"]["type"] == "fileChange"
            )
        await stall.reached()
        stage.model.plays(says("ok"), says("ok", number=2))
        stall.release()
        ended: set[str] = set()
        while ended != set(turns):
            messages = await client.until("turn/completed")
            ended.add(messages[-1]["params"]["turn"]["id"])

    assert path.read_text() == "one!\ntwo!\n"


# -- patches are bounded


async def test_many_links_to_one_large_file_are_refused_before_it_is_read(stage: Stage) -> None:
    large = stage.workspace / "large"
    large.touch()
    os.truncate(large, 58 * MEBIBYTE)
    for number in range(8):
        (stage.workspace / f"link{number}").symlink_to("large")
    lines = [f"*** Update File: link{number}\n@@\n-a\n+b" for number in range(8)]
    with stalled(work, "read_file") as stall:
        answer = await output(stage, patch(*lines))

    assert answer == f"{REFUSED}invalid patch: multiple operations target {large}"
    assert stall.calls == 0


async def test_a_file_too_large_to_update_is_refused_with_the_limit(stage: Stage) -> None:
    large = stage.workspace / "large"
    large.touch()
    os.truncate(large, MAX_UPDATE_BYTES + 1)

    answer = await output(stage, patch("*** Update File: large", "@@", "-a", "+b"))

    assert answer == (
        f"{REFUSED}Failed to read file to update {large}: "
        f"path `{large}` is larger than {MAX_UPDATE_BYTES} bytes"
    )


async def test_files_that_are_too_large_together_are_refused(stage: Stage) -> None:
    for number in range(8):
        path = stage.workspace / f"f{number}"
        path.touch()
        os.truncate(path, MAX_TOTAL_BYTES // 8 + 1)

    answer = await output(stage, patch(*(f"*** Delete File: f{number}" for number in range(8))))

    assert answer == (
        f"{REFUSED}the files of this patch have more than {MAX_TOTAL_BYTES} bytes in total; "
        "split it into several patches"
    )
    assert len(list(stage.workspace.iterdir())) == 9


def _too_many() -> tuple[str, str]:
    lines = [f"*** Add File: x{number}\n+x" for number in range(MAX_OPERATIONS + 1)]
    return patch(*lines), f"the patch changes more than {MAX_OPERATIONS} files"


def _too_deep() -> tuple[str, str]:
    path = "/".join(["d"] * (MAX_FOLDERS + 1))
    return patch(f"*** Add File: {path}/x", "+x"), f"at most {MAX_FOLDERS} folders"


@pytest.mark.parametrize("make", [_too_many, _too_deep])
async def test_an_excessive_patch_is_refused(
    stage: Stage, make: Callable[[], tuple[str, str]]
) -> None:
    text, reason = make()

    assert reason in await output(stage, text)
    assert contents(stage.workspace) == {"a.txt": "hello\n"}


async def test_hunks_that_nearly_fit_everywhere_are_refused_after_a_bounded_search(
    stage: Stage,
) -> None:
    (stage.workspace / "same").write_text("x\n" * 400_000)
    hunks = [line for _ in range(60) for line in ("@@", " x", " x", "-x ", "+y")]

    answer = await output(stage, patch("*** Update File: same", *hunks, "@@", *[" x"] * 999, "-y"))

    assert answer.startswith((f"{REFUSED}Failed to find expected lines", f"{REFUSED}finding the"))
    assert str(MAX_STEPS) in answer or "expected lines" in answer


async def test_large_diffs_are_not_sent(stage: Stage) -> None:
    (stage.workspace / "wide").write_text("x" * (3 * MEBIBYTE) + "\nend\n")
    client, thread_id = await writer(stage)
    stage.model.plays(patches(patch("*** Update File: wide", "@@", "-end", "+END")), says("ok"))

    messages = await client.run(thread_id)

    assert sum(len(str(message)) for message in messages) < MEBIBYTE
    assert "not shown" in _changes(messages)[0]["diff"]
    assert "Binary files" in params_of(messages, "turn/diff/updated")[-1]["diff"]


def _changes(messages: list[JsonValue]) -> list[JsonValue]:
    items = [params["item"] for params in params_of(messages, "item/completed")]
    (changes,) = [item["changes"] for item in items if item["type"] == "fileChange"]
    result: list[JsonValue] = changes
    return result


# -- files that clients name


@pytest.mark.parametrize(
    ("step", "method", "names"),
    [
        ("read", "fs/readFile", {"path": "a.txt"}),
        ("write", "fs/writeFile", {"path": "b.txt"}),
        ("children", "fs/readDirectory", {"path": "."}),
        ("remove", "fs/remove", {"path": "a.txt"}),
        ("copy", "fs/copy", {"sourcePath": "a.txt", "destinationPath": "b.txt"}),
    ],
)
async def test_requests_about_files_that_hang_delay_only_their_own_client(
    stage: Stage, step: str, method: str, names: dict[str, str]
) -> None:
    """Even when they occupy all the threads of that client."""
    stage.workspace.joinpath("a.txt").write_text("hello\n")
    slow, other = await stage.client(), await stage.client()
    params: JsonValue = {key: str(stage.workspace / name) for key, name in names.items()}
    if step == "write":
        params["dataBase64"] = "eA=="
    with stalled(server_files, step) as stall:
        for number in range(MAX_FILE_REQUESTS + 1):
            await slow.peer.send({"id": f"slow-{number}", "method": method, "params": params})
        await stall.reached()
        answer = await other.request("fs/getMetadata", {"path": str(stage.workspace)})
        assert await answers_others(stage)

    assert answer["isDirectory"]
    assert stall.calls <= MAX_FILE_REQUESTS


async def test_a_folder_that_does_not_fit_into_an_answer_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_files, "MAX_ENTRIES", 10)
    for number in range(11):
        stage.workspace.joinpath(str(number)).touch()
    client = await stage.client()

    refusal = await client.refusal("fs/readDirectory", {"path": str(stage.workspace)})

    assert (refusal.kind, refusal.data["limit"]) == ("directoryTooLarge", 10)


@pytest.mark.parametrize("part", ["localImage", "skill"])
async def test_other_clients_are_served_while_an_input_file_is_read(
    stage: Stage, part: str
) -> None:
    path = stage.workspace / ".agents" / "skills" / "x" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: x\ndescription: x\n---\n")
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    input_item: JsonValue = {"type": part, "path": str(path)} | (
        {"name": "x"} if part == "skill" else {}
    )
    with stalled(engine_input, "read_for_model") as stall:
        params = {"threadId": thread_id, "input": [input_item]}
        await client.peer.send({"id": "slow", "method": "turn/start", "params": params})
        await stall.reached()
        assert await answers_others(stage)
        stage.model.plays(says("ok"))
        stall.release()
        messages = await client.until("turn/completed")

    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_other_clients_are_served_while_a_rule_waits_for_a_locked_folder(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="untrusted", sandbox="workspace-write"
    )
    stage.model.plays(calls("exec_command", {"cmd": "touch x"}), says("ok"))
    with stalled(rule_writing, "locked") as stall:
        turn_id = await client.start_turn(thread_id)
        approval = (await client.until("item/commandExecution/requestApproval"))[-1]
        amendment = {"execpolicy_amendment": ["touch"]}
        decision = {"acceptWithExecpolicyAmendment": amendment}
        await client.peer.send({"id": approval["id"], "result": {"decision": decision}})
        await stall.reached()
        other = await stage.client()
        assert await other.request("thread/loaded/list", {})
        stall.release()
        await client.end_of(turn_id)

    assert "touch" in (stage.home / "rules" / "default.rules").read_text()


# -- instructions and skills of a folder


@pytest.mark.parametrize(
    ("module", "step"), [(view, "read_project_docs"), (server_skills, "find_skills")]
)
async def test_other_clients_are_served_while_skills_and_documents_are_read(
    stage: Stage, module: ModuleType, step: str
) -> None:
    skill = stage.workspace / ".agents" / "skills" / "x" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: x\ndescription: x\n---\n")
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("ok"))
    with stalled(module, step) as stall:
        turn_id = await client.start_turn(thread_id)
        await stall.reached()
        assert await other.request("thread/loaded/list", {})
        stall.release()
        messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("thread/start", "read_git_info"),
        ("thread/fork", "read_git_info"),
        ("thread/start", "read_project_docs"),
        ("thread/fork", "read_project_docs"),
        ("thread/resume", "read_project_docs"),
    ],
)
async def test_other_clients_are_served_while_a_folder_is_examined_for_a_thread(
    stage: Stage, method: str, step: str
) -> None:
    """A repository may have many packed branches, and a document in each of many folders."""
    client, other = await stage.client(), await stage.client()
    stage.model.plays(says("ok"))
    thread_id = await client.start(cwd=str(stage.workspace))
    await client.run(thread_id)
    params = {"cwd": str(stage.workspace)} if method == "thread/start" else {"threadId": thread_id}
    async with asyncio.TaskGroup() as tasks:
        with stalled(thread_handlers, step) as stall:
            answer = tasks.create_task(client.request(method, params))
            await stall.reached()
            assert await other.request("thread/loaded/list", {})
    assert answer.result()["thread"]["cwd"] == str(stage.workspace)


def test_a_folder_of_skills_is_scanned_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills, "MAX_ENTRIES", 50)
    for number in range(10):
        for below in range(10):
            (tmp_path / "root" / f"{number}" / f"{below}").mkdir(parents=True)

    assert 50 <= len(list(skills.skill_folders(tmp_path / "root"))) <= 61


async def test_other_clients_are_served_while_an_answer_is_checked_against_its_schema(
    stage: Stage,
) -> None:
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says('"' + "a" * 2000 + '!"'), says('"b"', number=2))
    with stalled(repair, "validate") as stall:
        turn_id = await client.start_turn(thread_id, outputSchema={"pattern": "^(a+)+$"})
        await stall.reached()
        assert await other.request("thread/loaded/list", {})
        stall.release()
        messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE
    assert len(stage.model.requests) == 2


async def test_settings_are_written_while_answers_are_checked_against_their_schemas(
    stage: Stage,
) -> None:
    """Checks have their own threads: they cannot occupy those of other kinds of work."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says('"a"'))
    edit = {"keyPath": "model", "value": "x", "mergeStrategy": "replace"}
    with stalled(repair, "validate") as stall:
        turn_id = await client.start_turn(thread_id, outputSchema={"type": "string"})
        await stall.reached()
        assert (await other.request("config/value/write", edit))["status"] == "ok"
        stall.release()
        messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        (
            "turn/start",
            {"input": [{"type": "text", "text": "x"}] * 1001},
            "input must have at most",
        ),
        ("thread/inject_items", {"items": [{"type": "x"}] * 2001}, "items must have at most 2000"),
        ("command/exec", {"command": ["x"] * 32_769}, "command must have at most 32768 entries"),
        ("thread/start", {"config": {f"a{n}": {"b": 1} for n in range(2000)}}, "at most 2000"),
        ("model/list", {"x": [[]] * MAX_CONTAINERS}, f"more than {MAX_CONTAINERS} arrays"),
    ],
    ids=["input", "items", "command", "settings", "message"],
)
async def test_request_with_too_many_parts_is_refused(
    stage: Stage, method: str, params: dict[str, JsonValue], reason: str
) -> None:
    client, thread_id = await writer(stage)
    named = {"threadId": thread_id} if method in ("turn/start", "thread/inject_items") else {}
    refusal = await client.refusal(method, {**named, **params})
    assert reason in str(refusal)
    await client.request("model/list", {})


@pytest.mark.parametrize("field", ["name", "gitInfo.sha", "gitInfo.branch", "gitInfo.originUrl"])
async def test_what_every_list_of_threads_repeats_is_short(stage: Stage, field: str) -> None:
    """Two names of 40 MB made `thread/list` too long for a message, for every client."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    group, _, key = field.partition(".")
    method = "thread/metadata/update" if key else "thread/name/set"

    def params(text: str) -> JsonValue:
        return {"threadId": thread_id, group: {key: text} if key else text}

    refused = await client.refusal(method, params("x" * (MAX_TERM_CHARACTERS + 1)))
    await client.request(method, params("x" * MAX_TERM_CHARACTERS))

    limit = MAX_TERM_CHARACTERS
    assert refused.message == f"{field} must have at most {limit} characters, not {limit + 1}"


async def test_settings_nested_too_deep_or_too_many_are_refused(stage: Stage) -> None:
    client = await stage.client()
    deep = ".".join(["a"] * 2000)
    edit: JsonValue = {"keyPath": deep, "value": 1, "mergeStrategy": "replace"}
    edits = [{**edit, "keyPath": f"a.b{number}"} for number in range(MAX_EDITS + 1)]
    refusals = [
        await client.refusal("thread/start", {"config": {deep: 1}}),
        await client.refusal("config/value/write", edit),
        await client.refusal("config/batchWrite", {"edits": edits}),
    ]
    texts = [str(refusal) for refusal in refusals]

    assert f"has 2000 parts: expected at most {MAX_DEPTH}" in texts[0]
    assert f"keyPath has 2000 segments: expected at most {MAX_DEPTH}" in texts[1]
    assert f"edits has {MAX_EDITS + 1} entries: expected at most {MAX_EDITS}" in texts[2]
