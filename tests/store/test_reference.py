"""Exchange with the reference's own binaries: its threads are read here, ours are resumed there.

Releases 0.163.0 and 0.118.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.harness.releases import NEWEST, OLDER, program
from tests.store.builders import Clock, Writer, context, message, meta
from tests.store.reference import Json, Model, Reference, running, says
from treadle.protocol.item import (
    AddPatchChangeKind,
    CommandExecutionThreadItem,
    DeletePatchChangeKind,
    FileChangeThreadItem,
    FileUpdateChange,
    ImageViewThreadItem,
    McpToolCallThreadItem,
    ReadCommandAction,
    ReasoningThreadItem,
    ThreadItem,
    UnknownCommandAction,
    UpdatePatchChangeKind,
)
from treadle.protocol.mcp import McpToolCallResult
from treadle.store.journal import Journal, ThreadLocked
from treadle.store.records import Compacted, HistoryItem, RolledBack
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread, ThreadQuery

pytestmark = pytest.mark.usefixtures("reference")


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


@pytest.fixture(params=[NEWEST, OLDER])
def binary(request: pytest.FixtureRequest) -> Path:
    return Path(program(request.param))


def outline(stored: StoredThread) -> list[tuple[str, list[str]]]:
    """Return the status of each turn and the kinds of its items."""
    return [
        (turn.status, [item.__struct_config__.tag for item in turn.items])  # type: ignore[misc]  # all are tagged by a word
        for turn in stored.turns
    ]


def texts(stored: StoredThread) -> list[str]:
    """Return what the model would see, without the environment context."""
    found = []
    for item in stored.history:
        if item["type"] == "message" and item["role"] != "developer":
            found += [part["text"] for part in item["content"]]
        elif item["type"].endswith("_output"):
            found.append(item["output"])
    return [text for text in found if not text.startswith("<environment_context>")]


def start(reference: Reference) -> str:
    thread: Json = reference.call("thread/start", {})["thread"]
    return str(thread["id"])


def test_a_thread_written_here_is_listed_read_and_resumed_there(
    store: Store, model: Model, binary: Path
) -> None:
    clock = Clock()
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    thought = ReasoningThreadItem(id="r", summary=["**one**", "two"])
    first = writer.turn("first question", "first answer", items=[thought])
    call = {"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": "c"}
    output = {"type": "function_call_output", "call_id": "c", "output": "tool output"}
    journal.append([HistoryItem(call), HistoryItem(output)])
    dropped = writer.turn("dropped question", "dropped answer")
    journal.append([RolledBack(before_turn_id=dropped.id)])
    last = writer.turn("last question", "last answer")
    journal.close()

    with running(binary, store.home, model) as reference:
        listed = reference.call("thread/list", {})["data"]
        read = reference.call("thread/read", {"threadId": journal.thread_id, "includeTurns": True})[
            "thread"
        ]
        reference.call("thread/resume", {"threadId": journal.thread_id})
        assert reference.turn(journal.thread_id, "next question")["status"] == "completed"

    assert [(each["id"], each["preview"]) for each in listed] == [
        (journal.thread_id, "first question")
    ]
    assert [turn["id"] for turn in read["turns"]] == [first.id, last.id]
    assert [item["type"] for item in read["turns"][0]["items"]] == [
        "userMessage",
        "reasoning",
        "agentMessage",
    ]
    assert model.seen() == [
        "first question",
        "first answer",
        "tool output",
        "last question",
        "last answer",
        "next question",
    ]

    # And what it appended is read here, after our own lines.
    stored = store.read(journal.thread_id)
    assert stored.turns[:2] == [first, last]
    assert outline(stored)[2:] == [("completed", ["userMessage", "agentMessage"])]
    assert texts(stored)[-2:] == ["next question", "done"]


COMMAND = CommandExecutionThreadItem(
    id="call-1",
    command="/bin/bash -lc 'cat notes.md'",
    command_actions=[
        ReadCommandAction(command="cat notes.md", name="notes.md", path="/workspace/notes.md")
    ],
    cwd="/workspace",
    status="completed",
    aggregated_output="notes\n",
    exit_code=0,
    duration_ms=1234,
    process_id="4711",
    source="unifiedExecStartup",
)
DECLINED = CommandExecutionThreadItem(
    id="call-2",
    command="/bin/bash -lc 'touch a'",
    command_actions=[UnknownCommandAction(command="touch a")],
    cwd="/workspace",
    status="declined",
)
EDIT = FileChangeThreadItem(
    id="call-3",
    status="completed",
    changes=[
        FileUpdateChange(path="/workspace/a", kind=AddPatchChangeKind(), diff="new\n"),
        FileUpdateChange(
            path="/workspace/b",
            kind=UpdatePatchChangeKind(move_path="/workspace/c"),
            diff="@@ -1 +1 @@\n-old\n+new\n\n\nMoved to: /workspace/c",
        ),
        FileUpdateChange(path="/workspace/d", kind=DeletePatchChangeKind(), diff="old\n"),
    ],
)
CALL = McpToolCallThreadItem(
    id="call-4",
    server="tools",
    tool="echo",
    arguments={"text": "hi"},
    status="completed",
    result=McpToolCallResult(content=[{"type": "text", "text": "hi"}]),
    duration_ms=5,
)
PICTURE = ImageViewThreadItem(id="call-5", path="/workspace/a.png")


def test_what_tools_did_here_is_shown_there(store: Store, model: Model, binary: Path) -> None:
    clock = Clock()
    journal = store.create(meta(clock))
    tools: list[ThreadItem] = [COMMAND, DECLINED, EDIT, CALL, PICTURE]
    Writer(journal, clock).turn("question", "answer", items=tools)
    journal.close()

    with running(binary, store.home, model) as reference:
        asked = {"threadId": journal.thread_id, "includeTurns": True}
        (turn,) = reference.call("thread/read", asked)["thread"]["turns"]
        reference.call("thread/resume", {"threadId": journal.thread_id})
        assert reference.turn(journal.thread_id, "next question")["status"] == "completed"

    # The newer release omits commands and images from files in the older format.
    if OLDER not in binary.parts:
        tools = [EDIT, CALL]
    shown = [item for item in turn["items"] if item["type"] not in ("userMessage", "agentMessage")]
    assert [_known(item) for item in shown] == [_known(msgspec.to_builtins(item)) for item in tools]


def _known(item: Json) -> Json:
    """Return an item with the fields that both programs know."""
    kept = ["type", "id", "status", "command", "commandActions", "cwd", "path", "source"]
    kept += ["processId", "server", "tool", "arguments"]
    if item.get("status") == "completed":
        kept += ["aggregatedOutput", "exitCode", "durationMs", "changes"]
    return {key: item[key] for key in kept if key in item}


def test_a_compacted_thread_is_resumed_there_with_its_short_view(
    store: Store, model: Model, binary: Path
) -> None:
    clock = Clock()
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    writer.turn("long story", "long answer")
    journal.append([Compacted("short", [message("user", "in short")])])
    writer.turn("go on", "yes")
    journal.close()

    with running(binary, store.home, model) as reference:
        reference.call("thread/resume", {"threadId": journal.thread_id})
        reference.turn(journal.thread_id, "next")

    assert model.seen() == ["in short", "go on", "yes", "next"]


def test_a_thread_of_the_reference_is_read_and_goes_on_both_here_and_there(
    store: Store, model: Model, binary: Path
) -> None:
    arguments = '{"cmd": "echo hi"}'
    thought = {
        "type": "reasoning",
        "id": "rs-1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "e==",
    }
    call = {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": "c"}
    model.script += [[thought, says("hello", 1)], [call], [says("ran it", 2)]]
    with running(binary, store.home, model) as reference:
        thread_id = start(reference)
        turns = [reference.turn(thread_id, text) for text in ("say hello", "run it")]
        reference.call("thread/name/set", {"threadId": thread_id, "name": "their name"})

    (listed,) = store.list(ThreadQuery()).data
    assert (listed.id, listed.preview, listed.name) == (thread_id, "say hello", "their name")
    journal, stored = store.open(thread_id)
    assert [turn.id for turn in stored.turns] == [turn["id"] for turn in turns]
    assert outline(stored)[0] == ("completed", ["userMessage", "reasoning", "agentMessage"])
    assert outline(stored)[1][1][0::2] in (["userMessage"], ["userMessage", "agentMessage"])
    assert [item["type"] for item in stored.history if item["type"] != "message"] == [
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    ours = Writer(journal, Clock()).turn("said here", "answered here")
    journal.close()

    with running(binary, store.home, model) as reference:
        resumed = reference.call("thread/resume", {"threadId": thread_id})["thread"]
        reference.turn(thread_id, "back there")

    assert [turn["id"] for turn in resumed["turns"]][-1] == ours.id
    assert [item["type"] for item in resumed["turns"][-1]["items"]] == [
        "userMessage",
        "agentMessage",
    ]
    assert model.seen()[-3:] == ["said here", "answered here", "back there"]
    assert store.read(thread_id).turns[2] == ours
    assert texts(store.read(thread_id))[-2:] == ["back there", "done"]


def test_a_compaction_and_a_fork_of_the_reference_are_followed(
    store: Store, model: Model, binary: Path
) -> None:
    with running(binary, store.home, model) as reference:
        thread_id = start(reference)
        reference.turn(thread_id, "one")
        reference.turn(thread_id, "two")
        fork_id = reference.call("thread/fork", {"threadId": thread_id})["thread"]["id"]
        reference.turn(fork_id, "in the fork")
        fork_seen = model.seen()
        model.script.append([says("SUMMARY", 9)])
        reference.call("thread/compact/start", {"threadId": thread_id})
        reference.turn_end()
        reference.turn(thread_id, "after")
        seen = model.seen()

    source, fork = store.read(thread_id), store.read(fork_id)
    assert {each.id: each.preview for each in store.list(ThreadQuery()).data} == {
        thread_id: "one",
        fork_id: "one",
    }
    plain = ("completed", ["userMessage", "agentMessage"])
    assert outline(source) == [plain, plain, ("completed", ["contextCompaction"]), plain]
    assert outline(fork) == [plain, plain, plain]
    assert (texts(source), texts(fork)) == ([*seen, "done"], [*fork_seen, "done"])


def test_a_revert_of_the_reference_is_followed(store: Store, model: Model) -> None:
    """0.163.0 continues in another file, which begins in the first."""
    with running(Path(program(NEWEST)), store.home, model) as reference:
        thread_id = start(reference)
        turns = [reference.turn(thread_id, text) for text in ("one", "two", "three")]
        for _ in range(2):
            cut = {"threadId": thread_id, "beforeTurnId": turns[1]["id"]}
            reference.call("thread/revert", cut)
            turns[1:] = [reference.turn(thread_id, "another two")]
        seen = model.seen()

    stored = store.read(thread_id)
    assert [turn.id for turn in stored.turns] == [turn["id"] for turn in turns]
    assert texts(stored) == [*seen, "done"]
    assert [each.preview for each in store.list(ThreadQuery()).data] == ["one"]


def test_a_thread_that_the_reference_writes_is_locked_here_and_the_other_way_round(
    store: Store, model: Model
) -> None:
    with running(Path(program(NEWEST)), store.home, model) as reference:
        thread_id = start(reference)
        reference.turn(thread_id, "hello")
        with pytest.raises(ThreadLocked) as refused:
            store.open(thread_id)
        assert refused.value.pid is None

    journal, _ = store.open(thread_id)
    with running(Path(program(NEWEST)), store.home, model) as reference:
        answer = reference.call("thread/resume", {"threadId": thread_id})
        assert "error" in answer
        _close(journal)
        assert "thread" in reference.call("thread/resume", {"threadId": thread_id})


def _close(journal: Journal) -> None:
    journal.append([context("t")])
    journal.close()
