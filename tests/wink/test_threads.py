"""Servers that stay warm, threads that are reused, and callers of every kind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from weakincentives.adapters import PromptEvaluationError
from weakincentives.runtime import PromptExecuted, Session

from tests.harness.model_server import Reply, calls, created, says
from tests.harness.threads import UNKNOWN_THREAD
from tests.wink.ground import MODEL, Ground, Log, prompt, tool
from treadle import CommandApproval
from treadle.client.approvals import ApprovalPolicy
from treadle.client.events import AgentMessageDelta, TurnCompleted
from treadle.protocol.base import JsonValue
from treadle.testing.fake import FakeAppServer, FakeConnection, Play, message
from treadle.testing.process import TreadleProcess
from treadle.wink import (
    CodexAppServerAdapter,
    CodexAppServerClientConfig,
    CodexAppServerSessionState,
    RunningTurn,
)

# -- warm servers


async def test_one_server_serves_all_evaluations_even_concurrently(ground: Ground) -> None:
    ground.model.plays(*[says(f"{number}") for number in range(3)])
    command, starts = ground.recorded()
    adapter = ground.adapter(codex_bin=command)

    first = await adapter.evaluate_async(prompt(), session=Session())
    async with asyncio.TaskGroup() as group:
        others = [
            group.create_task(adapter.evaluate_async(prompt(), session=Session())) for _ in "ab"
        ]

    assert {first.text, *(each.result().text for each in others)} == {"0", "1", "2"}
    assert len(starts()) == 1


async def test_a_server_that_died_between_evaluations_is_replaced(own_ground: Ground) -> None:
    own_ground.model.plays(says("One."), says("Two."))
    command, starts = own_ground.recorded()
    adapter = own_ground.adapter(codex_bin=command)

    await adapter.evaluate_async(prompt(), session=Session())
    os.kill(starts()[0], signal.SIGKILL)
    response = await adapter.evaluate_async(prompt(), session=Session())

    assert (response.text, len(starts())) == ("Two.", 2)


async def test_a_server_that_is_not_kept_warm_ends_with_its_evaluation(own_ground: Ground) -> None:
    command, starts = own_ground.recorded()
    adapter = own_ground.adapter(codex_bin=command, keep_warm=False)

    for _ in range(2):
        await adapter.evaluate_async(prompt(), session=Session())

    assert len(starts()) == 2


# -- threads


async def test_a_thread_continues_in_the_same_server_and_in_the_next(ground: Ground) -> None:
    ground.model.plays(says("One.", "m-1"), says("Two.", "m-2"), says("Three.", "m-3"))
    adapter, log = ground.adapter(reuse_thread=True), Log()

    for text in ("First", "Second"):
        await adapter.evaluate_async(prompt(text), session=log.session)
    await asyncio.to_thread(adapter.close)
    await adapter.evaluate_async(prompt("Third"), session=log.session)

    conversation = [role for role, _ in ground.model.requests[-1].conversation()]
    assert conversation == ["user", "assistant", "user", "assistant", "user"]
    assert len({each.thread_id for each in log.session[CodexAppServerSessionState].all()}) == 1
    assert [event.usage.input_tokens for event in log.events if hasattr(event, "usage")] == [10] * 3


async def test_other_tools_need_another_thread(own_ground: Ground) -> None:
    adapter, session = own_ground.adapter(reuse_thread=True), Session()

    await adapter.evaluate_async(prompt("One."), session=session)
    first = session[CodexAppServerSessionState].latest()
    await adapter.evaluate_async(prompt("Two.", tool()), session=session)
    second = session[CodexAppServerSessionState].latest()

    assert first is not None
    assert second is not None
    assert first.thread_id != second.thread_id
    assert replace(second, thread_id="", tools_fingerprint="") == replace(
        first, thread_id="", tools_fingerprint=""
    )


async def test_an_unknown_thread_is_replaced(ground: Ground) -> None:
    ground.model.plays(says("One.", "m-1"), says("Two.", "m-2"))
    adapter, session = ground.adapter(reuse_thread=True), Session()
    await adapter.evaluate_async(prompt(), session=session)
    state = session[CodexAppServerSessionState].latest()
    assert state is not None
    session[CodexAppServerSessionState].seed(replace(state, thread_id=UNKNOWN_THREAD))

    response = await adapter.evaluate_async(prompt(), session=session)

    now = session[CodexAppServerSessionState].latest()
    assert now is not None
    assert (response.text, now.thread_id not in (UNKNOWN_THREAD, state.thread_id)) == ("Two.", True)


async def test_an_ephemeral_thread_leaves_no_file(ground: Ground) -> None:
    for is_ephemeral in (True, False):
        adapter = ground.adapter(ephemeral=is_ephemeral)
        await adapter.evaluate_async(prompt(), session=Session())
        await asyncio.to_thread(adapter.close)
        is_there = bool(list((ground.home / "sessions").rglob("*.jsonl")))
        assert is_there is not is_ephemeral


# -- callers


def test_evaluate_works_inside_a_running_loop_and_in_entered_resources(tmp_path: Path) -> None:
    """The usual example, in a notebook."""
    with TreadleProcess(["Hello.", "Again."], home=tmp_path / "h") as process:
        config = CodexAppServerClientConfig(codex_bin=process.command, cwd=str(tmp_path))

        async def notebook() -> list[str | None]:
            with CodexAppServerAdapter(client_config=config) as adapter:
                entered = prompt()
                with entered.resources:
                    first = adapter.evaluate(entered, session=Session())
                return [first.text, adapter.evaluate(prompt(), session=Session()).text]

        assert asyncio.run(notebook()) == ["Hello.", "Again."]


async def test_events_stream_while_the_turn_runs(ground: Ground) -> None:
    ground.model.plays(says("One two.", deltas=("One ", "two.")))
    events: list[JsonValue] = []

    await ground.adapter(on_event=events.append).evaluate_async(prompt(), session=Session())

    words = [event.delta for event in events if isinstance(event, AgentMessageDelta)]
    assert (words, type(events[-1])) == (["One ", "two."], TurnCompleted)


async def test_a_callback_that_raises_changes_nothing(
    own_ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_event: object) -> None:
        raise RuntimeError("no")

    own_ground.model.plays(says("Hello."))

    response = await own_ground.adapter(on_event=broken).evaluate_async(prompt(), session=Session())

    assert response.text == "Hello."
    assert "handler failed" in caplog.messages


async def test_a_running_turn_is_steered_and_interrupted(ground: Ground) -> None:
    gate, turns = asyncio.Event(), list[RunningTurn]()
    ground.model.plays(says("One.", "m-1", ("One",), gate), Reply([created(), asyncio.Event()]))
    loop = asyncio.get_running_loop()

    def steer(event: object) -> None:
        if isinstance(event, AgentMessageDelta):
            turns[0].steer("And say two.")
            loop.call_soon_threadsafe(gate.set)

    adapter = ground.adapter(on_turn=turns.append, on_event=steer)
    evaluation = asyncio.ensure_future(adapter.evaluate_async(prompt(), session=Session()))  # noqa: TID251 - it is to be stopped from outside
    await ground.model.wait_for_request(2)
    await asyncio.to_thread(turns[0].interrupt)

    with pytest.raises(PromptEvaluationError, match="interrupted"):
        await evaluation
    assert ground.model.requests[1].conversation()[-1] == ("user", "And say two.")


async def test_cancelling_an_evaluation_interrupts_its_turn(own_ground: Ground) -> None:
    events: list[JsonValue] = []
    own_ground.model.plays(Reply([created(), asyncio.Event()]), says("Next."))
    adapter = own_ground.adapter(on_event=events.append, reuse_thread=True)
    session = Session()

    evaluation = asyncio.ensure_future(adapter.evaluate_async(prompt(), session=session))  # noqa: TID251 - it is to be cancelled
    await own_ground.model.wait_for_request(1)
    evaluation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await evaluation
    response = await adapter.evaluate_async(prompt("Next."), session=session)

    assert response.text == "Next."


# -- approvals


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_handler_decides_what_the_agent_may_do(ground: Ground, is_allowed: bool) -> None:
    commands: list[str] = []

    def decide(ask: CommandApproval) -> bool:
        commands.append(ask.command or "")
        return is_allowed

    ground.model.plays(calls("exec_command", {"cmd": "mkdir made"}), says("Done."))
    adapter = ground.adapter(
        approval_policy="untrusted",
        sandbox_mode="workspace-write",
        approvals=ApprovalPolicy(command=decide),
    )

    await adapter.evaluate_async(prompt(), session=Session())

    assert len(commands) == 1
    assert "mkdir made" in commands[0]
    assert (ground.cwd / "made").exists() is is_allowed


@pytest.mark.parametrize(("policy", "is_done"), [("untrusted", True), ("on-request", False)])
async def test_without_a_handler_the_policy_implies_the_answer(
    own_ground: Ground, policy: str, is_done: bool
) -> None:
    arguments = {
        "cmd": "mkdir made",
        "sandbox_permissions": "require_escalated",
        "justification": "why not",
    }
    own_ground.model.plays(calls("exec_command", arguments), says("Done."))

    await own_ground.adapter(approval_policy=policy, sandbox_mode="read-only").evaluate_async(
        prompt(), session=Session()
    )

    assert (own_ground.cwd / "made").exists() is is_done


async def test_a_policy_that_newer_servers_lack_is_replaced_by_the_nearest(ground: Ground) -> None:
    ground.model.plays(says("Hello."))

    response = await ground.adapter(approval_policy="on-failure").evaluate_async(
        prompt(), session=Session()
    )

    assert response.text == "Hello."


async def test_each_turn_can_have_its_own_sandbox(ground: Ground) -> None:
    ground.model.plays(calls("exec_command", {"cmd": "mkdir made"}), says("Done."))
    policy = {"type": "workspaceWrite", "networkAccess": True, "writableRoots": [str(ground.cwd)]}

    await ground.adapter(sandbox_mode="read-only", sandbox_policy=policy).evaluate_async(
        prompt(), session=Session()
    )

    assert (ground.cwd / "made").exists()


# -- the transcript


async def test_the_transcript_has_messages_and_actions_in_order(
    own_ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "weakincentives.runtime.transcript")
    own_ground.model.plays(
        calls("upper", {"text": "a"}), calls("exec_command", {"cmd": "true"}), says("Done.")
    )

    await own_ground.adapter().evaluate_async(prompt("Go.", tool()), session=Session())

    assert _transcript(caplog) == [
        "user_message",
        "system_event",
        "tool_use",
        "tool_result",
        "tool_use",
        "tool_result",
        "assistant_message",
    ]


async def test_a_call_that_arrives_with_the_response_follows_the_start_of_its_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A fast server sends all three before the client has seen the response."""
    caplog.set_level(logging.DEBUG, "weakincentives.runtime.transcript")
    fake = FakeAppServer().on("turn/start", _calls_at_once)

    async with fake.unix() as path:
        adapter = CodexAppServerAdapter(
            model_config=MODEL,
            client_config=CodexAppServerClientConfig(f"unix://{path}", str(tmp_path)),
        )
        try:
            await adapter.evaluate_async(prompt("Go.", tool()), session=Session())
        finally:
            await asyncio.to_thread(adapter.close)

    assert _transcript(caplog) == [
        "user_message",
        "system_event",
        "tool_use",
        "tool_result",
        "assistant_message",
    ]


async def test_a_report_of_tokens_that_arrives_with_the_response_counts(tmp_path: Path) -> None:
    """A fast server sends the whole turn before the client has seen the response."""
    fake = FakeAppServer().on("turn/start", _answers_at_once(1), _answers_at_once(2))
    log = Log()

    async with fake.unix() as path:
        adapter = CodexAppServerAdapter(
            model_config=MODEL,
            client_config=CodexAppServerClientConfig(
                f"unix://{path}", str(tmp_path), reuse_thread=True
            ),
        )
        try:
            for _ in "ab":
                await adapter.evaluate_async(prompt("Go."), session=log.session)
        finally:
            await asyncio.to_thread(adapter.close)

    used = [each.usage for each in log.of(PromptExecuted)]
    assert [each and each.input_tokens for each in used] == [10, 10]


def _answers_at_once(number: int) -> Play:
    """Send a whole turn in one write; each turn adds ten tokens to the thread's total."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        ids = {"threadId": request["params"]["threadId"], "turnId": f"turn-{number}"}
        turn = {"id": ids["turnId"], "items": [], "status": "inProgress"}
        item = {**message("Done."), "phase": None}
        usage = {"last": _tokens(10), "total": _tokens(10 * number)}
        ended = {**turn, "status": "completed"}
        await connection.send(
            {"id": request["id"], "result": {"turn": turn}},
            {"method": "turn/started", "params": {**ids, "turn": turn}},
            {"method": "item/completed", "params": {**ids, "item": item, "completedAtMs": 2}},
            {"method": "thread/tokenUsage/updated", "params": {**ids, "tokenUsage": usage}},
            {"method": "turn/completed", "params": {**ids, "turn": ended}},
        )

    return play


def _tokens(count: int) -> JsonValue:
    return {
        "inputTokens": count,
        "cachedInputTokens": 0,
        "outputTokens": 0,
        "reasoningOutputTokens": 0,
        "totalTokens": count,
    }


async def _calls_at_once(connection: FakeConnection, request: JsonValue) -> None:
    ids = {"threadId": request["params"]["threadId"], "turnId": "turn-1"}
    turn = {"id": "turn-1", "items": [], "status": "inProgress"}
    call = {**ids, "callId": "call-1", "tool": "upper", "arguments": {"text": "a"}}
    first = [
        {"id": request["id"], "result": {"turn": turn}},
        {"method": "turn/started", "params": {**ids, "turn": turn}},
    ]
    await connection.ask("item/tool/call", call, after=first)
    item = {**message("Done."), "phase": None}
    await connection.send(
        {"method": "item/completed", "params": {**ids, "item": item, "completedAtMs": 2}},
        {
            "method": "turn/completed",
            "params": {**ids, "turn": {**turn, "status": "completed"}},
        },
    )


def _transcript(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the kinds of the transcript's entries, without those about tokens."""
    kinds: list[str] = [
        vars(record)["context"]["entry_type"]
        for record in caplog.records
        if vars(record).get("event") == "transcript.entry"
    ]
    return [each for each in kinds if each != "token_usage"]
