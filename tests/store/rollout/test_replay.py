"""A thread that was written is read back whole: ids, items, settings, the model context."""

from __future__ import annotations

import msgspec
import pytest

from tests.store.builders import Clock, Writer, breakdown, context, message, meta, user_item
from treadle.protocol import notifications as n
from treadle.protocol.base import GitInfo
from treadle.protocol.error import CodexErrorInfoDetail, HttpStatus, TurnError
from treadle.protocol.goal import ThreadGoal
from treadle.protocol.input import (
    ImageUserInput,
    LocalImageUserInput,
    MentionUserInput,
    SkillUserInput,
    TextUserInput,
)
from treadle.protocol.item import (
    AddPatchChangeKind,
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ContextCompactionThreadItem,
    DynamicToolCallThreadItem,
    EnteredReviewModeThreadItem,
    FileChangeThreadItem,
    FileUpdateChange,
    ImageViewThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    McpToolCallThreadItem,
    PlanThreadItem,
    ReasoningThreadItem,
    ThreadItem,
    UnknownCommandAction,
    UpdatePatchChangeKind,
    UserMessageThreadItem,
    WebSearchThreadItem,
    with_times,
)
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.protocol.tool import FunctionDynamicToolSpec
from treadle.protocol.usage import ThreadTokenUsage
from treadle.protocol.web_search import SearchWebSearchAction
from treadle.store.records import (
    ClientMessage,
    Compacted,
    GoalChanged,
    HistoryItem,
    MetadataChanged,
    Named,
    RequestAnswered,
    RequestOpened,
    RolledBack,
    UsageRecord,
)
from treadle.store.store import Store

ITEMS: list[ThreadItem] = [
    UserMessageThreadItem(
        id="u",
        client_id="client-1",
        content=[
            TextUserInput("look"),
            ImageUserInput(url="data:image/png;base64,AA=="),
            LocalImageUserInput("/pictures/a.png"),
            SkillUserInput("skill", "/skills/SKILL.md"),
            MentionUserInput("app", "app://x"),
        ],
    ),
    ReasoningThreadItem(id="r", summary=["**one**", "two"], content=["raw"]),
    ReasoningThreadItem(id="r2"),
    CommandExecutionThreadItem(
        id="c",
        command="/bin/bash -lc 'echo hi'",
        command_actions=[UnknownCommandAction("echo hi")],
        cwd="/workspace",
        status="completed",
        aggregated_output="hi\n",
        exit_code=0,
        duration_ms=12,
    ),
    FileChangeThreadItem(
        id="f",
        status="completed",
        changes=[
            FileUpdateChange("hi\n", AddPatchChangeKind(), "/workspace/a"),
            FileUpdateChange("@@ -1 +1 @@", UpdatePatchChangeKind("/workspace/c"), "/workspace/b"),
        ],
    ),
    McpToolCallThreadItem(arguments={"a": 1}, id="m", server="s", status="completed", tool="t"),
    DynamicToolCallThreadItem(arguments=None, id="d", status="failed", tool="t", success=False),
    WebSearchThreadItem(id="w", query="weather", action=SearchWebSearchAction(query="weather")),
    ImageViewThreadItem(id="i", path="/pictures/a.png"),
    PlanThreadItem(id="p", text="1. do it"),
    EnteredReviewModeThreadItem(id="e", review="changes"),
    ContextCompactionThreadItem(id="x"),
]


def test_every_kind_of_item_keeps_its_id_and_content(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    turns = [writer.turn("hello", "hi", items=ITEMS)]
    clock.tick()
    turns.append(writer.turn("again", "sure"))
    journal.close()

    stored = store.read(journal.thread_id)
    assert (stored.turns, stored.running_turn) == (turns, None)
    assert stored.last_seq == writer.events[-1].seq


def test_items_stored_without_times_have_those_of_their_events(store: Store, clock: Clock) -> None:
    """Ours: earlier versions of this server stored the times beside the items."""
    journal = store.create(meta(clock))
    writer, item = Writer(journal, clock), AgentMessageThreadItem(id="a", text="hi")
    journal.append(list(writer.begin("t1")))
    begun = ItemStartedNotification(item, clock.now, journal.thread_id, "t1")
    done = ItemCompletedNotification(clock.now + 7, item, journal.thread_id, "t1")
    journal.append([writer.event(n.ITEM_STARTED.method, begun)])
    journal.append([writer.event(n.ITEM_COMPLETED.method, done)])
    journal.close()

    (turn,) = store.read(journal.thread_id).turns
    assert turn.items == [with_times(item, clock.now, clock.now + 7)]


def test_the_start_options_of_a_thread_are_restored(store: Store, clock: Clock) -> None:
    tools = [FunctionDynamicToolSpec(description="d", input_schema={}, name="look_up")]
    begun = meta(
        clock,
        developer_instructions="say please",
        dynamic_tools=tools,
        extra={"tag": "x"},
        git_info=GitInfo("main", "url", "sha"),
        forked_from_id="other",
        parent_thread_id="parent",
        thread_source="test",
        source="appServer",
    )
    journal = store.create(begun)
    Writer(journal, clock).turn("hello", "hi")
    journal.close()

    assert store.read(journal.thread_id).meta == msgspec.structs.replace(
        begun,
        session_id=begun.id,
        path=journal.path,
        preview="hello",
        model="mock-model",
        recency_at=begun.created_at,
    )


def test_the_model_sees_its_own_items_unchanged(store: Store, clock: Clock) -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "e==", "unheard_of": {"a": 1}}
    journal = store.create(meta(clock))
    journal.append([HistoryItem(message("user", "hello")), HistoryItem(item)])
    journal.close()

    assert store.read(journal.thread_id).history == [message("user", "hello"), item]


def test_settings_usage_and_message_ids_survive(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    settings = context(
        "t1",
        sandbox_policy=WorkspaceWriteSandboxPolicy(writable_roots=["/more"], network_access=True),
        effort="high",
        summary="concise",
        service_tier="fast",
        developer_instructions="be brief",
    )
    said = ClientMessage("message-1", "digest", "t1", "turn")
    first = UsageRecord("t1", "r1", breakdown(10), breakdown(10), 1000)
    second = UsageRecord("t1", "r2", breakdown(5), breakdown(15), 1000)
    journal.append([settings, said, first, second])
    journal.close()

    stored = store.read(journal.thread_id)
    assert (stored.settings, stored.client_messages) == (settings, {"message-1": said})
    assert stored.usage == ThreadTokenUsage(breakdown(5), breakdown(15), 1000)
    assert (stored.response_ids, stored.context_window) == ({"r1", "r2"}, 1000)


def test_an_open_server_request_survives_and_an_answered_one_does_not(
    store: Store, clock: Clock
) -> None:
    journal = store.create(meta(clock))
    opened = [RequestOpened(str(n), "approval", "item/x", {"n": n}, turn_id="t") for n in range(3)]
    journal.append([*opened, RequestAnswered("1", "client", clock.now, {"decision": "accept"})])
    journal.close()

    assert store.read(journal.thread_id).open_requests == {"0": opened[0], "2": opened[2]}


def test_goal_name_and_git_facts_are_the_latest(store: Store, clock: Clock) -> None:
    goal = ThreadGoal(1, "win", "active", "t", 0, 0, 1)
    journal = store.create(meta(clock))
    journal.append([Named("first"), GoalChanged(goal), MetadataChanged(GitInfo(branch="a"))])
    journal.append([Named("second"), MetadataChanged(GitInfo(branch="b"))])
    journal.close()

    stored = store.read(journal.thread_id)
    assert (stored.name, stored.goal) == ("second", goal)
    assert stored.meta.git_info == GitInfo(branch="b")


def test_compaction_replaces_the_model_context_and_no_turn(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    turns = [writer.turn("one", "1")]
    journal.append([Compacted("summary", [message("user", "summary of one")])])
    turns.append(writer.turn("two", "2"))
    journal.close()

    stored = store.read(journal.thread_id)
    assert stored.turns == turns
    assert stored.history == [
        message("user", "summary of one"),
        message("user", "two"),
        message("assistant", "2"),
    ]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_rollback_removes_turns_and_their_part_of_the_context(
    store: Store, clock: Clock, by_name: bool
) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    kept = writer.turn("one", "1")
    dropped = writer.turn("two", "2")
    journal.append([Compacted("s", [message("user", "short")])])
    writer.turn("three", "3")
    journal.append([RolledBack(before_turn_id=dropped.id) if by_name else RolledBack(num_turns=2)])
    last = writer.turn("four", "4")
    journal.close()

    stored = store.read(journal.thread_id)
    assert stored.turns == [kept, last]
    assert stored.history == [
        message("user", "one"),
        message("assistant", "1"),
        message("user", "four"),
        message("assistant", "4"),
    ]


def test_a_failed_turn_keeps_its_cause(store: Store, clock: Clock) -> None:
    error = TurnError(
        "gone", codex_error_info=CodexErrorInfoDetail(http_connection_failed=HttpStatus(502))
    )
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    journal.append([*writer.begin("t1"), writer.end("t1", "failed", error=error)])
    journal.close()

    (turn,) = store.read(journal.thread_id).turns
    assert (turn.status, turn.error) == ("failed", error)


def test_an_unfinished_turn_is_in_progress_and_shows_its_open_items(
    store: Store, clock: Clock
) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    writer.turn("one", "1")
    started, _ = writer.item("t2", AgentMessageThreadItem(id="open", text=""))
    said = list(writer.item("t2", user_item("two", "said")))
    journal.append([*writer.begin("t2"), *said, started])
    journal.close()

    stored = store.read(journal.thread_id)
    assert (stored.running_turn, stored.turns[-1].status) == ("t2", "inProgress")
    now = clock.now
    assert stored.turns[-1].items == [with_times(user_item("two", "said"), now, now)]
    assert [started.item for started in stored.open_items] == [
        with_times(AgentMessageThreadItem(id="open", text=""), now, None)
    ]


def test_an_unfinished_turn_before_another_one_is_interrupted(store: Store, clock: Clock) -> None:
    journal = store.create(meta(clock))
    writer = Writer(journal, clock)
    journal.append(list(writer.begin("t1")))
    writer.turn("two", "2")
    journal.close()

    stored = store.read(journal.thread_id)
    assert [turn.status for turn in stored.turns] == ["interrupted", "completed"]
    assert stored.running_turn is None
