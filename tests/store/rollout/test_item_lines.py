"""Items in the formats of other programs."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from treadle.protocol.item import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ItemCompletedNotification,
    McpToolCallThreadItem,
    with_times,
)
from treadle.protocol.mcp import McpToolCallAppContext, McpToolCallResult
from treadle.shell.scripts import display
from treadle.store.rollout.foreign.items import read_item, read_legacy
from treadle.store.rollout.item_lines import legacy_item, paginated_item


def words(command: str) -> list[str]:
    """Return the words of a command, as other programs read them."""
    item = CommandExecutionThreadItem(
        id="c", command=command, command_actions=[], cwd="/", status="completed"
    )
    (event,) = legacy_item(ItemCompletedNotification(0, item, "thread", "turn"))
    parsed_words: list[str] = event["command"]
    return parsed_words


@given(st.lists(st.text(st.sampled_from("ab '\"\n\\$`^!é")), min_size=1))
def test_the_words_of_a_command_are_found_however_it_is_quoted(argv: list[str]) -> None:
    assert words(display(argv)) == argv
    assert words(shlex.join(argv)) == argv


@pytest.mark.parametrize("command", ["echo 'half", 'echo "half', "a  b", "back\\slash"])
def test_a_command_that_is_quoted_otherwise_is_one_word(command: str) -> None:
    assert words(command) == [command]


def test_a_command_may_be_very_long() -> None:
    """The standard library takes minutes to split it."""
    script = "echo " + "x" * 3_000_000
    assert words(display(["/bin/bash", "-c", script])) == ["/bin/bash", "-c", script]


@pytest.mark.parametrize(
    "command",
    [
        'a "' + '\\"' * 500_000,
        '"' + '\\"' * 500_000 + "\\",
        "a 'b' \"" + '\\"' * 500_000 + "'",
        "'a" * 500_001,
    ],
    ids=["quotes", "backslash", "mixed", "single"],
)
def test_an_unclosed_quote_is_searched_for_once(command: str) -> None:
    """Searching again from each inner quote would take an hour."""
    assert words(command) == [command]


def test_an_item_has_its_times_and_tokens_for_other_programs() -> None:
    """Upstream: these fields of `item_completed` in release 0.169.0; without tokens, no field."""
    item = with_times(AgentMessageThreadItem(id="a", text="x"), 5, 9)
    done = ItemCompletedNotification(9, item, "thread", "turn")

    (event,) = paginated_item(done)
    (counted,) = paginated_item(msgspec.structs.replace(done, content_token_count=3))

    assert (event["started_at_ms"], event["completed_at_ms"]) == (5, 9)
    assert counted == {**event, "content_token_count": 3}
    assert "content_token_count" not in event


APP_CALL = McpToolCallThreadItem(
    arguments={"text": "x"},
    id="call-1",
    server="codex_apps",
    status="completed",
    tool="create",
    app_context=McpToolCallAppContext(
        connector_id="calendar",
        action_name="create",
        app_name="Google Calendar",
        link_id="link-1",
        resource_uri="ui://widget/event.html",
    ),
    duration_ms=1,
    mcp_app_resource_uri="ui://widget/event.html",
    read_only_hint=False,
    result=McpToolCallResult(content=[{"type": "text", "text": "x"}]),
)


def test_the_app_of_a_call_is_written_for_other_programs_and_read_again() -> None:
    """Upstream: fields of the event, without an object of their own."""
    (event,) = legacy_item(ItemCompletedNotification(0, APP_CALL, "thread", "turn"))
    about = ("connector_id", "link_id", "app_name", "action_name", "mcp_app_resource_uri")

    assert [event[name] for name in about] == [
        "calendar",
        "link-1",
        "Google Calendar",
        "create",
        "ui://widget/event.html",
    ]
    assert read_legacy(event, str) == replace(APP_CALL, read_only_hint=None)


def test_the_app_of_a_call_is_read_from_a_rollout_of_the_reference() -> None:
    """Upstream: a line of 0.163.0."""
    stored = {
        "type": "McpToolCall",
        "id": "call-1",
        "server": "codex_apps",
        "tool": "create",
        "arguments": {"text": "x"},
        "connectorId": "calendar",
        "mcpAppResourceUri": "ui://widget/event.html",
        "linkId": "link-1",
        "appName": "Google Calendar",
        "actionName": "create",
        "readOnlyHint": False,
        "status": "completed",
        "result": {"content": [{"type": "text", "text": "x"}]},
        "duration": {"secs": 0, "nanos": 1_267_770},
    }

    assert read_item(stored) == APP_CALL
