"""Threads that other programs wrote, from small samples; `test_reference` uses real ones."""

from __future__ import annotations

import json

import pytest

from tests.harness.items import of_unknown_times
from tests.store import samples
from tests.store.builders import Clock, Writer, message
from tests.store.samples import (
    COMMAND,
    FIRST,
    FORK,
    OLD,
    SECOND,
    THREAD,
    Json,
    event,
    line,
    message_line,
    seconds_at,
    session,
    token_count,
)
from treadle.protocol.base import ByteRange, GitInfo, JsonValue
from treadle.protocol.collaboration import CollaborationMode, Settings
from treadle.protocol.error import TurnError
from treadle.protocol.input import ImageUserInput, LocalImageUserInput, TextElement, TextUserInput
from treadle.protocol.item import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ContextCompactionThreadItem,
    FileChangeThreadItem,
    FileUpdateChange,
    McpToolCallThreadItem,
    PlanThreadItem,
    ReadCommandAction,
    ReasoningThreadItem,
    UpdatePatchChangeKind,
    UserMessageThreadItem,
    WebSearchThreadItem,
    with_times,
)
from treadle.protocol.mcp import McpToolCallResult
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.protocol.source import SessionSourceDetail
from treadle.protocol.turn import Turn
from treadle.protocol.usage import ThreadTokenUsage, TokenUsageBreakdown
from treadle.protocol.web_search import OpenPageWebSearchAction
from treadle.store.records import TurnContext
from treadle.store.store import Store
from treadle.store.stored_thread import ThreadMeta, ThreadQuery

COMMAND_ITEM = CommandExecutionThreadItem(
    id="call-1",
    command="/bin/bash -lc 'cat a.txt'",
    command_actions=[ReadCommandAction("cat a.txt", "a.txt", "a.txt")],
    cwd="/ws",
    status="completed",
    aggregated_output="hi\n",
    duration_ms=1006,
    exit_code=0,
    process_id="80747",
    source="unifiedExecStartup",
)
CHANGE_ITEM = FileChangeThreadItem(
    id="call-2",
    status="completed",
    changes=[FileUpdateChange("@@", UpdatePatchChangeKind(), "/ws/b")],
)


def user(text: str, id_: str) -> UserMessageThreadItem:
    return UserMessageThreadItem(content=[TextUserInput(text)], id=id_)


def usage(number: int) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(2, number, 0, 0, number)


def test_a_thread_of_the_old_reference_is_read_completely(store: Store) -> None:
    path = samples.write(store.home, THREAD, OLD)
    stored = store.read(THREAD)

    assert stored.turns == of_unknown_times(
        [
            Turn(
                id=FIRST,
                root_turn_id=FIRST,
                status="completed",
                started_at=seconds_at(1),
                completed_at=seconds_at(4),
                items=[
                    UserMessageThreadItem(
                        id="item-1",
                        content=[
                            TextUserInput("look at it", [TextElement(ByteRange(4, 0), "LOOK")]),
                            ImageUserInput(url="data:image/png;base64,AA=="),
                            LocalImageUserInput("/pictures/a.png"),
                        ],
                    ),
                    ReasoningThreadItem(id="item-2", summary=["**one**", "two"]),
                    COMMAND_ITEM,
                    CHANGE_ITEM,
                    McpToolCallThreadItem(
                        arguments={"a": 1},
                        id="call-3",
                        server="s",
                        status="completed",
                        tool="t",
                        duration_ms=1006,
                        result=McpToolCallResult([{"type": "text", "text": "x"}]),
                    ),
                    WebSearchThreadItem(
                        id="ws", query="q", action=OpenPageWebSearchAction(url="u")
                    ),
                    PlanThreadItem(id="plan", text="1. look"),
                    AgentMessageThreadItem(id="item-3", text="seen"),
                ],
            ),
            Turn(
                id=SECOND,
                root_turn_id=SECOND,
                status="interrupted",
                started_at=seconds_at(5),
                completed_at=seconds_at(6),
                items=[user("stop", "item-4")],
            ),
        ]
    )
    assert stored.meta == ThreadMeta(
        id=THREAD,
        session_id=THREAD,
        created_at=seconds_at(0),
        updated_at=seconds_at(6),
        recency_at=seconds_at(5),
        cwd="/ws/inner",
        model="gpt-test",
        model_provider="mock_provider",
        reasoning_effort="high",
        source="vscode",
        originator="probe",
        cli_version="0.118.0",
        git_info=GitInfo(sha="abc", branch="main"),
        preview="look at it",
        path=str(path),
        base_instructions="be a coding agent",
    )
    assert stored.usage == ThreadTokenUsage(usage(15), usage(15), 258400)
    assert [item["type"] for item in stored.history] == [
        "message",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
        "message",
        "message",
    ]


def test_its_settings_are_understood(store: Store) -> None:
    samples.write(store.home, THREAD, OLD)

    assert store.read(THREAD).settings == TurnContext(
        turn_id=FIRST,
        cwd="/ws/inner",
        model="gpt-test",
        provider="mock_provider",
        approval_policy="on-request",
        sandbox_policy=WorkspaceWriteSandboxPolicy(
            exclude_slash_tmp=True, network_access=True, writable_roots=["/more"]
        ),
        effort="high",
        summary="auto",
        personality="pragmatic",
        collaboration_mode=CollaborationMode("default", Settings("gpt-test")),
    )


def test_its_summary_matches_the_whole_thread(store: Store) -> None:
    samples.write(store.home, THREAD, OLD)
    whole, (listed,) = store.read(THREAD).meta, store.list(ThreadQuery()).data

    assert (listed.preview, listed.updated_at, listed.recency_at) == (
        whole.preview,
        whole.updated_at,
        whole.recency_at,
    )
    assert (listed.cwd, listed.model, listed.reasoning_effort, listed.git_info) == (
        whole.cwd,
        whole.model,
        whole.reasoning_effort,
        whole.git_info,
    )


def test_it_is_continued_in_its_own_format(store: Store) -> None:
    path = samples.write(store.home, THREAD, OLD)
    journal, stored = store.open(THREAD)
    turn = Writer(journal, Clock()).turn("go on", "gladly")
    journal.close()

    assert store.read(THREAD).turns == [*stored.turns, turn]
    assert b'"ordinal"' not in path.read_bytes()


def test_a_rollback_and_a_compaction_of_the_old_reference(store: Store) -> None:
    rolled = [*OLD, event(7, "thread_rolled_back", num_turns=1)]
    short = message("user", "short")
    compacted = line(8, "compacted", {"message": "s", "replacement_history": [short]})
    samples.write(store.home, THREAD, [*rolled, compacted, message_line(9, "user", "more")])

    stored = store.read(THREAD)
    assert [turn.id for turn in stored.turns] == [FIRST]
    assert stored.history == [short, message("user", "more")]


def test_turns_without_a_start_begin_with_the_users_message(store: Store) -> None:
    """As in files of the first versions."""
    lines = [session(), message_line(1, "user", "one"), event(1, "user_message", message="one")]
    lines += [event(2, "agent_message", message="1"), message_line(2, "assistant", "1")]
    samples.write(store.home, THREAD, lines)

    (turn,) = store.read(THREAD).turns
    assert [item.id for item in turn.items] == ["item-1", "item-2"]


def numbered(lines: list[Json], start: int = 0) -> list[Json]:
    return [{**each, "ordinal": start + number} for number, each in enumerate(lines)]


def completed(second: int, turn_id: str, item: Json) -> Json:
    return event(second, "item_completed", thread_id=THREAD, turn_id=turn_id, item=item)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ({"started_at_ms": 1_700_000_001_000, "completed_at_ms": 1_700_000_002_000}, None),
        ({"started_at_ms": None}, (None, None)),
        ({"started_at_ms": "soon", "completed_at_ms": [1]}, (None, None)),
        ({"started_at_ms": True, "completed_at_ms": 1.5}, (None, None)),
        ({"started_at_ms": 1 << 70, "completed_at_ms": 7}, (None, 7)),
        ({}, (None, None)),
    ],
)
def test_the_times_of_an_item_are_those_of_its_line(
    store: Store, stored: Json, read: tuple[int | None, int | None] | None
) -> None:
    """Upstream: releases 0.163.0 and 0.169.0 write them; earlier ones have none."""
    line = completed(2, FIRST, {"type": "Plan", "id": "p", "text": "1. look"})
    line["payload"] |= stored
    samples.write(store.home, THREAD, [session(), event(1, "task_started", turn_id=FIRST), line])

    (item,) = store.read(THREAD).turns[0].items
    expected = read or (1_700_000_001_000, 1_700_000_002_000)
    assert item == with_times(PlanThreadItem(id="p", text="1. look"), *expected)


def text_input(text: str) -> list[Json]:
    return [{"type": "text", "text": text, "text_elements": []}]


NEW: list[Json] = numbered(
    [
        session(history_mode="paginated", session_id=THREAD, cli_version="0.163.0"),
        event(1, "task_started", turn_id=FIRST, root_turn_id=FIRST, started_at=seconds_at(1)),
        message_line(
            1, "user", "one", internal_chat_message_metadata_passthrough={"turn_id": FIRST}, id="m"
        ),
        completed(1, FIRST, {"type": "UserMessage", "id": "u1", "content": text_input("one")}),
        completed(
            2, FIRST, {"type": "Reasoning", "id": "r", "summary_text": ["a"], "raw_content": ["b"]}
        ),
        completed(
            2, FIRST, {"type": "CommandExecution", "id": "call-1", **COMMAND, "cwd": "file:///ws"}
        ),
        completed(
            2,
            FIRST,
            {
                "type": "FileChange",
                "id": "call-2",
                "status": "completed",
                "changes": {"/ws/b": {"type": "update", "unified_diff": "@@", "move_path": None}},
            },
        ),
        completed(
            2,
            FIRST,
            {"type": "AgentMessage", "id": "a1", "content": [{"type": "Text", "text": "1"}]},
        ),
        message_line(2, "assistant", "1"),
        line(2, "token_usage_record", {"response_id": "resp-1", "turn_id": FIRST}),
        token_count(2, 15, 15),
        event(
            2,
            "task_complete",
            turn_id=FIRST,
            started_at=seconds_at(1),
            completed_at=seconds_at(2),
            duration_ms=88,
        ),
        event(3, "task_started", turn_id=SECOND, root_turn_id=FIRST, started_at=seconds_at(3)),
        message_line(3, "user", "two"),
        completed(3, SECOND, {"type": "UserMessage", "id": "u2", "content": text_input("two")}),
        completed(3, SECOND, {"type": "ContextCompaction", "id": "x"}),
        completed(3, SECOND, {"type": "Hologram", "id": "h"}),
        event(
            3,
            "task_complete",
            turn_id=SECOND,
            error={"message": "bad", "codex_error_info": "context_window_exceeded"},
            started_at=seconds_at(3),
            completed_at=seconds_at(3),
            duration_ms=1,
        ),
    ]
)

NEW_TURNS = of_unknown_times(
    [
        Turn(
            id=FIRST,
            root_turn_id=FIRST,
            status="completed",
            started_at=seconds_at(1),
            completed_at=seconds_at(2),
            duration_ms=88,
            items=[
                user("one", "u1"),
                ReasoningThreadItem(id="r", summary=["a"], content=["b"]),
                COMMAND_ITEM,
                CHANGE_ITEM,
                AgentMessageThreadItem(id="a1", text="1"),
            ],
        ),
        Turn(
            id=SECOND,
            root_turn_id=FIRST,
            status="failed",
            error=TurnError("bad", codex_error_info="contextWindowExceeded"),
            started_at=seconds_at(3),
            completed_at=seconds_at(3),
            duration_ms=1,
            items=[user("two", "u2"), ContextCompactionThreadItem(id="x")],
        ),
    ]
)


def test_a_thread_of_the_new_reference_is_read_completely(store: Store) -> None:
    samples.write(store.home, THREAD, NEW)
    stored = store.read(THREAD)

    assert stored.turns == NEW_TURNS
    assert stored.history == [
        {**message("user", "one"), "id": "m"},
        message("assistant", "1"),
        message("user", "two"),
    ]
    assert (stored.response_ids, stored.meta.history_mode) == ({"resp-1"}, "paginated")


def test_it_is_continued_with_ordinals(store: Store) -> None:
    """Without them the reference refuses to resume the thread."""
    path = samples.write(store.home, THREAD, NEW)
    journal, _ = store.open(THREAD)
    turn = Writer(journal, Clock()).turn("three", "3")
    journal.close()

    ordinals = [json.loads(each)["ordinal"] for each in path.read_bytes().splitlines()]
    assert ordinals == list(range(len(ordinals)))
    assert store.read(THREAD).turns == [*NEW_TURNS, turn]


def fork_of(path_size: int, ordinal: int, base: str = THREAD, **changes: JsonValue) -> Json:
    base_of = {
        "thread_id": base,
        "end_ordinal_exclusive": ordinal,
        "end_byte_offset": path_size,
    }
    return session(history_mode="paginated", history_base=base_of, **({"id": FORK} | changes))


def test_a_fork_begins_in_the_file_of_its_source(store: Store) -> None:
    source = samples.write(store.home, THREAD, NEW)
    cut = len(b"\n".join(source.read_bytes().split(b"\n")[:12])) + 1
    begun = fork_of(cut, 12, forked_from_id=THREAD)
    more = event(9, "task_started", turn_id="t9", started_at=seconds_at(9))
    samples.write(store.home, FORK, numbered([begun, more, message_line(9, "user", "forked")], 12))

    stored = store.read(FORK)
    assert stored.turns[:1] == NEW_TURNS[:1]
    assert [turn.id for turn in stored.turns] == [FIRST, "t9"]
    assert [item["content"][0]["text"] for item in stored.history] == ["one", "1", "forked"]
    previews = {each.id: each.preview for each in store.list(ThreadQuery()).data}
    assert previews == {THREAD: "one", FORK: "one"}


def test_a_fork_without_its_source_is_read_as_far_as_possible(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    lines = numbered([fork_of(100, 12), message_line(9, "user", "forked")], 12)
    samples.write(store.home, FORK, lines)

    assert store.read(FORK).history == [message("user", "forked")]
    assert [record.message for record in caplog.records] == ["start of thread is missing"]


def test_a_revert_continues_in_a_second_file(store: Store) -> None:
    first = samples.write(store.home, THREAD, NEW)
    cut = len(b"\n".join(first.read_bytes().split(b"\n")[:12])) + 1
    second = samples.write(
        store.home,
        THREAD,
        numbered([fork_of(cut, 12, id=THREAD), message_line(9, "user", "instead")], 12),
        suffix="_0199c3a0-2222-7000-8000-000000000001",
    )

    stored = store.read(THREAD)
    assert (stored.turns, stored.meta.path) == (NEW_TURNS[:1], str(second))
    assert stored.history[-1] == message("user", "instead")
    store.archive(THREAD)
    assert store.read(THREAD).turns == NEW_TURNS[:1]
    store.delete(THREAD)
    assert list(store.home.rglob("rollout-*")) == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("mcp", "appServer"),
        ("cli", "cli"),
        ({"custom": "x"}, SessionSourceDetail(custom="x")),
        ({"subagent": "review"}, SessionSourceDetail(sub_agent="review")),
        ("from the future", "unknown"),
        (None, "vscode"),
    ],
)
def test_sources_are_translated(store: Store, written: JsonValue, read: JsonValue) -> None:
    samples.write(store.home, THREAD, [session(source=written)])

    assert store.read(THREAD).meta.source == read
