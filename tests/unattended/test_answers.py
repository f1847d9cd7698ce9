"""The handling matrix of seed 000: the answers to server requests and tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.client.fake import THREAD, TRANSPORTS
from tests.unattended.fake import END, Stage, staged, turn_prompt
from treadle.client.approvals import ApprovalPolicy, CannotDecide, CommandApproval, fail_on_ask
from treadle.protocol.base import JsonValue
from treadle.testing import VirtualClock
from treadle.unattended import EventKind, SessionApprovalRequired, TurnInputRequired

Staged = Callable[..., AbstractAsyncContextManager[Stage]]

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
INPUT = "item/tool/requestUserInput"
UNAVAILABLE = "This is a non-interactive session. Operator input is unavailable."
OLD_COMMAND = {
    "conversationId": THREAD,
    "callId": "c",
    "command": ["ls"],
    "cwd": "/",
    "parsedCmd": [],
}
OLD_PATCH = {"conversationId": THREAD, "callId": "c", "fileChanges": {}}


@pytest.fixture(params=TRANSPORTS)
def stage(request: pytest.FixtureRequest, short_folder: Path) -> Staged:
    """Return a factory of sessions with a server, over each transport in turn."""
    return partial(staged, request.param, short_folder)


@pytest.fixture
def in_memory(short_folder: Path) -> Staged:
    """Return the same in this process only, for tests that do not depend on the transport."""
    return partial(staged, "memory", short_folder)


def ask(id_: JsonValue, method: str, **params: JsonValue) -> list[JsonValue]:
    """Return a step in which the server sends a request."""
    return ["ask", id_, method, params]


async def test_approvals_are_granted_for_the_session_when_the_policy_is_never(
    stage: Staged,
) -> None:
    """Seed 000, 4 and 9: in the newer and the older format, with ids of either type."""
    async with stage() as play, play.session as session:
        await session.run(
            turn_prompt(
                ask(99, COMMAND, command="rm x"),
                ask("a-b", FILES),
                ask(101, "execCommandApproval", **OLD_COMMAND),
                ask(102, "applyPatchApproval", **OLD_PATCH),
                END,
            )
        )
    assert play.log.answers() == {
        99: {"decision": "acceptForSession"},
        "a-b": {"decision": "acceptForSession"},
        101: {"decision": "approved_for_session"},
        102: {"decision": "approved_for_session"},
    }
    assert [e.event for e in play.events].count(EventKind.APPROVAL_AUTO_APPROVED) == 4


@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        (COMMAND, {"command": "ls"}, {"decision": "cancel"}),
        (FILES, {}, {"decision": "cancel"}),
        ("execCommandApproval", OLD_COMMAND, {"decision": "abort"}),
        ("applyPatchApproval", OLD_PATCH, {"decision": "abort"}),
    ],
)
async def test_with_another_policy_an_approval_ends_the_turn(
    stage: Staged, method: str, params: JsonValue, answer: JsonValue
) -> None:
    """Seed 000, 6: approval_required; the server gets an answer, and does not wait for ever."""
    async with stage(approval_policy="on-request") as play, play.session as session:
        with pytest.raises(SessionApprovalRequired) as caught:
            await session.run(turn_prompt(ask(5, method, **params), END))
        assert session.is_closed
    assert play.log.answers() == {5: answer}
    assert set(params) <= set(caught.value.payload)


async def test_a_policy_of_the_caller_decides_before_the_default(in_memory: Staged) -> None:
    def only_ls(ask: CommandApproval) -> bool:
        return ask.command == "ls"

    async with (
        in_memory(approvals=ApprovalPolicy(command=only_ls)) as play,
        play.session as session,
    ):
        await session.run(
            turn_prompt(
                ask(1, COMMAND, command="ls"), ask(2, COMMAND, command="rm"), ask(3, FILES), END
            )
        )
    assert [each["decision"] for each in play.log.answers().values()] == [
        "accept",
        "decline",
        "acceptForSession",
    ]


async def test_a_policy_that_cannot_decide_ends_the_turn(in_memory: Staged) -> None:
    async with in_memory(approvals=fail_on_ask) as play, play.session as session:
        with pytest.raises(TurnInputRequired):
            await session.run(turn_prompt(question("q", []), END))


def question(id_: str, labels: list[str], ask_id: JsonValue = 110) -> list[JsonValue]:
    """Return a step in which the model asks the user one question."""
    options = [{"label": label, "description": ""} for label in labels]
    fields = {"id": id_, "header": "h", "question": "?", "options": options or None}
    return ask(ask_id, INPUT, questions=[fields], isBlocking=True)


TOOL = "mcp_tool_call_approval_call-717"


@pytest.mark.parametrize(
    ("id_", "labels", "policy", "answer"),
    [
        (TOOL, ["Approve Once", "Approve this Session", "Deny"], "never", "Approve this Session"),
        (TOOL, ["Deny", "Approve Once"], "never", "Approve Once"),
        (TOOL, ["Deny", "Allow it"], "never", "Allow it"),
        (TOOL, ["Deny", "Approve Once"], "on-request", UNAVAILABLE),
        (TOOL, ["Deny"], "never", UNAVAILABLE),
        ("freeform-718", [], "never", UNAVAILABLE),
        ("choice", ["Approve this Session"], "never", UNAVAILABLE),
    ],
)
async def test_questions_to_the_user_get_the_canned_answers(
    in_memory: Staged, id_: str, labels: list[str], policy: str, answer: str
) -> None:
    """Seed 000, 4."""
    async with in_memory(approval_policy=policy) as play, play.session as session:
        await session.run(turn_prompt(question(id_, labels), END))
    assert play.log.answers() == {110: {"answers": {id_: {"answers": [answer]}}}}
    is_approval = answer != UNAVAILABLE
    kind = "approval_auto_approved" if is_approval else "tool_input_auto_answered"
    assert f"{kind} {INPUT}" in play.event_names()


async def test_questions_may_end_the_turn_instead(stage: Staged) -> None:
    async with stage(questions="block") as play, play.session as session:
        with pytest.raises(TurnInputRequired) as caught:
            await session.run(turn_prompt(question("why", []), END))
    assert caught.value.payload["questions"][0]["id"] == "why"
    assert play.log.answers() == {110: {"answers": {}}}


async def test_questions_may_be_answered_by_a_callback(in_memory: Staged) -> None:
    def reply(ask: JsonValue) -> dict[str, str]:
        return {each.id: "forty-two" for each in ask.questions}

    async with in_memory(questions="ask", on_question=reply) as play, play.session as session:
        await session.run(turn_prompt(question("why", []), END))
    assert play.log.answers() == {110: {"answers": {"why": {"answers": ["forty-two"]}}}}


ELICITATION = "mcpServer/elicitation/request"
FORM = {"serverName": "s", "mode": "form", "message": "?", "requestedSchema": {"type": "object"}}


@pytest.mark.parametrize(
    ("meta", "answer", "event"),
    [
        (
            {"codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"]},
            {"action": "accept", "_meta": {"persist": "session"}, "content": {}},
            "approval_auto_approved",
        ),
        (None, {"action": "decline", "_meta": None, "content": None}, "approval_declined"),
    ],
)
async def test_elicitations_of_mcp_servers_are_approved_or_declined(
    in_memory: Staged, meta: JsonValue, answer: JsonValue, event: str
) -> None:
    form = {**FORM, "_meta": meta, "requestedSchema": {"type": "object", "properties": {}}}
    async with in_memory() as play, play.session as session:
        await session.run(turn_prompt(ask(1, ELICITATION, **form), END))
    assert play.log.answers() == {1: answer}
    assert f"{event} {ELICITATION}" in play.event_names()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn/input_required", {}),
        ("turn/waiting", {"requiresInput": True}),
        ("turn/waiting", {"type": "needs_input"}),
    ],
)
async def test_a_turn_that_reports_that_it_needs_input_is_ended(
    in_memory: Staged, method: str, params: JsonValue
) -> None:
    """Seed 000, 6: "input-required variants", which are notifications without an answer."""
    async with in_memory() as play, play.session as session:
        with pytest.raises(TurnInputRequired):
            await session.run(turn_prompt(["notify", method, params]))


# -- tools


def lookup(query: str) -> str:
    """Find something."""
    if query == "bad":
        raise ValueError("no such thing")
    return f"found {query}"


def call(id_: JsonValue, tool: str, **arguments: JsonValue) -> list[JsonValue]:
    """Return a step in which the model calls a tool."""
    return ask(id_, "item/tool/call", callId="c", tool=tool, arguments=arguments)


def text(words: str, *, success: bool) -> JsonValue:
    """Return the result of a tool call."""
    return {"success": success, "contentItems": [{"type": "inputText", "text": words}]}


async def test_tools_are_served_and_unknown_ones_refused(stage: Staged) -> None:
    """Seed 000, 4."""
    old = ask(104, "item/tool/call", callId="c", name="lookup", arguments={"query": "y"})
    async with stage(tools=[lookup]) as play, play.session as session:
        steps = [
            call(101, "other"),
            call(102, "lookup", query="x"),
            call(103, "lookup", query="bad"),
        ]
        await session.run(turn_prompt(*steps, old, END))
        assert [each["name"] for each in play.log.calls("thread/start")[0]["dynamicTools"]] == [
            "lookup"
        ]
    assert play.log.answers() == {
        101: text("Unsupported dynamic tool 'other'.", success=False),
        102: text("found x", success=True),
        103: text("ValueError: no such thing", success=False),
        104: text("found y", success=True),
    }
    assert [each for each in play.event_names() if "tool/call" in each] == [
        "unsupported_tool_call item/tool/call",
        "tool_call_completed item/tool/call",
        "tool_call_failed item/tool/call",
        "tool_call_completed item/tool/call",
    ]


async def test_a_tool_that_takes_too_long_fails_and_the_turn_continues(
    in_memory: Staged, virtual_clock: VirtualClock
) -> None:
    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async with in_memory(tools=[wait], tool_seconds=10.0) as play, play.session as session:
        with virtual_clock:
            await session.run(turn_prompt(call(1, "wait"), END))
    words = "the tool 'wait' did not answer within 10 s"
    assert play.log.answers() == {1: text(words, success=False)}


def refuse_to_say(_ask: object) -> str:
    """Give no answer."""
    raise CannotDecide


async def test_a_callback_may_refuse_to_answer(in_memory: Staged) -> None:
    asking = in_memory(questions="ask", on_question=refuse_to_say)
    async with asking as play, play.session as session:
        with pytest.raises(TurnInputRequired):
            await session.run(turn_prompt(question("why", []), END))
