"""The cases of seed 000, over every transport: framing, life cycle, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.client.fake import (
    SCENARIOS,
    SECONDS,
    THREAD,
    TRANSPORTS,
    TURN,
    Fake,
    message_item,
    turn,
)
from tests.unattended.fake import END, Stage, is_alive, staged, turn_prompt, usage
from treadle.protocol.base import JsonValue
from treadle.testing import VirtualClock
from treadle.unattended import (
    InvalidThreadPayload,
    InvalidTurnPayload,
    PortExit,
    ResponseError,
    ResponseTimeout,
    ServerNotFound,
    Session,
    SessionBudgetExceeded,
    SessionError,
    SessionOptions,
    SessionTurnCancelled,
    SessionTurnFailed,
    SessionTurnTimeout,
    Stalled,
    Usage,
)

Staged = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture(params=TRANSPORTS)
def stage(request: pytest.FixtureRequest, short_folder: Path) -> Staged:
    """Return a factory of sessions with a server, over each transport in turn."""
    return partial(staged, request.param, short_folder)


@pytest.fixture
def in_memory(short_folder: Path) -> Staged:
    """Return the same in this process only, for tests that do not depend on the transport."""
    return partial(staged, "memory", short_folder)


@pytest.fixture
def process(short_folder: Path) -> Staged:
    """Return the same with a process, for what only processes do."""
    return partial(staged, "subprocess", short_folder)


# -- life cycle


async def test_a_session_initializes_starts_one_thread_and_runs_a_turn(stage: Staged) -> None:
    """Seed 000, 3 and 5."""
    message = ["notify", "item/completed", {"item": message_item("Hello"), "completedAtMs": 1}]
    async with stage(model="m", title="MT-1: do it") as play:
        async with play.session as session:
            report = await session.run(turn_prompt(message, usage(7, 7), END))
            await session.run(turn_prompt(usage(9, 2), END))
        assert play.log.calls("thread/start") == [
            {
                "approvalPolicy": "never",
                "cwd": play.workspace,
                "model": "m",
                "sandbox": "workspace-write",
            }
        ]
        order = [each["method"] for each in play.log.all() if "method" in each]
        names = ["initialize", "initialized", "thread/start", "thread/name/set"]
        assert order == [*names, "turn/start", "turn/start"]
        assert {each["threadId"] for each in play.log.calls("turn/start")} == {THREAD}
        assert (report.session_id, report.number) == (f"{THREAD}-{TURN}", 1)
        assert (report.agent_message, report.usage) == ("Hello", Usage(7, 0, 0, 0, 7))
        assert session.used == Usage(9, 0, 0, 0, 9)
        assert session.turn_count == 2
    assert play.event_names()[-1] == "session_ended"


async def test_every_event_is_reported_in_order_with_its_session(stage: Staged) -> None:
    delta = ["notify", "item/agentMessage/delta", {"itemId": "i", "delta": "x"}]
    new = ["notify", "brand/new", {"thing": 1}]
    async with stage() as play, play.session as session:
        await session.run(turn_prompt(delta, new, END))
    assert play.event_names() == [
        "session_started",
        "notification turn/started",
        "notification item/agentMessage/delta",
        "notification brand/new",
        "notification turn/completed",
        "turn_completed",
        "session_ended",
    ]
    assert {each.session_id for each in play.events} == {f"{THREAD}-{TURN}"}
    assert play.events[3].payload == {"threadId": THREAD, "turnId": TURN, "thing": 1}


async def test_a_callback_that_fails_or_blocks_does_no_harm(in_memory: Staged) -> None:
    heard: list[str] = []

    async def listen(event: JsonValue) -> None:
        await asyncio.sleep(0)
        heard.append(event.event)
        raise RuntimeError("the log is full")

    async with in_memory(on_event=listen) as play, play.session as session:
        await session.run(turn_prompt(END))
    assert heard == [
        "session_started",
        "notification",
        "notification",
        "turn_completed",
        "session_ended",
    ]


# -- how turns end


@pytest.mark.parametrize(
    ("ending", "error", "words"),
    [
        (["turn/failed", {"message": "no quota"}], SessionTurnFailed, "no quota"),
        (
            ["turn/cancelled", {"reason": "by hand"}],
            SessionTurnCancelled,
            "the turn was interrupted",
        ),
        (
            ["turn/completed", {"turn": turn("failed", error={"message": "broken"})}],
            SessionTurnFailed,
            "broken",
        ),
        (
            ["turn/completed", {"turn": turn("interrupted")}],
            SessionTurnCancelled,
            "the turn was interrupted",
        ),
    ],
)
async def test_a_turn_that_fails_is_an_error_in_every_format(
    stage: Staged, ending: list[JsonValue], error: type[SessionError], words: str
) -> None:
    """Seed 000, 4 and 6; and the newer format, in which a failure is a completed turn."""
    async with stage() as play, play.session as session:
        with pytest.raises(error) as caught:
            await session.run(turn_prompt(["notify", *ending]))
        assert str(caught.value) == words
        assert not session.is_closed
        await session.run(turn_prompt(END))


async def test_a_bare_turn_completed_is_a_success(stage: Staged) -> None:
    """Seed 000, 2: the oldest servers send no params at all."""
    async with stage() as play, play.session as session:
        report = await session.run(
            json.dumps([["begin", TURN], ["send", {"method": "turn/completed"}]])
        )
    assert report.result.turn.status == "completed"


async def test_an_idle_turn_ends_with_the_session(stage: Staged) -> None:
    async with stage(stall_seconds=0.2) as play, play.session as session:
        with pytest.raises(Stalled):
            await session.run(turn_prompt())
        assert session.is_closed
        assert play.log.calls("turn/interrupt") == [{"threadId": THREAD, "turnId": TURN}]


async def test_a_slow_client_tool_does_not_count_as_idle(
    in_memory: Staged, virtual_clock: VirtualClock
) -> None:
    async def think() -> str:
        """Take longer than the server may."""
        await asyncio.sleep(20)
        return "thought"

    called = {"callId": "c", "tool": "think", "arguments": {}}
    steps = [["ask", 1, "item/tool/call", called], END]
    async with in_memory(tools=[think], stall_seconds=5.0) as play, play.session as session:
        with virtual_clock:
            report = await session.run(turn_prompt(*steps))
    assert report.result.turn.status == "completed"
    assert virtual_clock.elapsed >= 20


async def test_a_missed_end_is_looked_up_before_a_turn_counts_as_stalled(
    stage: Staged,
) -> None:
    async with stage("ends unheard", stall_seconds=0.2) as play, play.session as session:
        report = await session.run(turn_prompt())
    assert report.result.turn.status == "completed"


async def test_a_turn_may_have_a_total_timeout(stage: Staged) -> None:
    """Seed 000, 6: turn_timeout."""
    async with stage(turn_seconds=0.2) as play, play.session as session:
        with pytest.raises(SessionTurnTimeout):
            await session.run(turn_prompt())


async def test_a_server_that_dies_ends_the_turn_with_its_exit_code(process: Staged) -> None:
    """Seed 000, 6: port_exit."""
    async with process() as play, play.session as session:
        with pytest.raises(PortExit) as caught:
            await session.run(turn_prompt(["exit", 7]))
    assert (caught.value.status, caught.value.stderr) == (7, "last words")


# -- sessions that do not start


@pytest.mark.parametrize(
    ("scenario", "error", "method"),
    [
        ("no handshake", ResponseTimeout, "initialize"),
        ("thread refused", ResponseError, "thread/start"),
        ("thread without an id", InvalidThreadPayload, "thread/start"),
    ],
)
async def test_a_session_that_cannot_start_reports_the_reason(
    stage: Staged, scenario: str, error: type[ResponseError], method: str
) -> None:
    """Seed 000, 6: response_timeout, response_error, and an answer of the wrong shape."""
    seconds = 0.3 if scenario == "no handshake" else 20.0
    async with stage(scenario, read_seconds=seconds) as play:
        with pytest.raises(error) as caught:
            await play.session.start()
        assert caught.value.method == method
        assert play.session.is_closed
    assert play.event_names() == ["startup_failed", "session_ended"]


async def test_a_thread_that_never_starts_times_out(
    in_memory: Staged, virtual_clock: VirtualClock
) -> None:
    async with in_memory("no thread", read_seconds=10.0) as play:
        with virtual_clock, pytest.raises(ResponseTimeout) as caught:
            await play.session.start()
    assert caught.value.method == "thread/start"


@pytest.mark.parametrize("scenario", ["exits at once", "exits at thread/start"])
async def test_a_server_that_exits_during_the_handshake_is_noticed_at_once(
    process: Staged, scenario: str
) -> None:
    async with process(scenario) as play:
        with pytest.raises(PortExit) as caught:
            await play.session.start()
    assert caught.value.status == 3


async def test_a_missing_program_is_reported(in_memory: Staged) -> None:
    async with in_memory(server=["/no/such/program"]) as play:
        with pytest.raises(ServerNotFound) as caught:
            await play.session.start()
    assert not caught.value.is_retryable


async def test_a_turn_without_an_id_is_refused(stage: Staged) -> None:
    async with stage() as play, play.session as session:
        with pytest.raises(InvalidTurnPayload):
            await session.run(json.dumps([["answer", {"turn": {}}]]))


async def test_a_refused_turn_is_an_error_with_its_code(stage: Staged) -> None:
    async with stage() as play, play.session as session:
        with pytest.raises(ResponseError) as caught:
            await session.run(json.dumps([["refuse", -32600, "no"]]))
    assert caught.value.code == -32600


# -- noise


async def test_invalid_lines_are_reported_and_skipped(stage: Staged) -> None:
    """Seed 000, 4 and 6."""
    noise = [["raw", '{"half": '], ["raw", "WARN starting up"], ["raw", "[1, 2]"]]
    stray = [["send", {"id": "unsolicited", "result": {}}], ["send", {"jsonrpc": "2.0"}]]
    async with stage() as play, play.session as session:
        await session.run(turn_prompt(*noise, *stray, END))
    kept = [e for e in play.event_names() if e in ("malformed", "other_message")]
    assert kept == ["malformed", "malformed", "other_message", "other_message", "other_message"]


async def test_a_long_line_in_pieces_is_complete(process: Staged) -> None:
    """Seed 000, 1: lines are buffered until they end, whatever their length."""
    words = "x" * 3_000_000
    message = ["notify", "item/completed", {"item": message_item(words), "completedAtMs": 1}]
    async with process(read_seconds=20.0) as play, play.session as session:
        report = await session.run(turn_prompt(message, END))
    assert report.agent_message == words


async def test_a_lone_surrogate_does_not_lose_the_message(stage: Staged) -> None:
    raw = (
        '{"method":"item/completed","params":{"threadId":"thr-1","turnId":"turn-1",'
        '"item":{"type":"agentMessage","id":"i","text":"half \\ud83d"},"completedAtMs":1}}'
    )
    async with stage() as play, play.session as session:
        report = await session.run(turn_prompt(["raw", raw], END))
    assert report.agent_message == "half \ufffd"


async def test_stderr_can_be_merged_into_the_stream(process: Staged) -> None:
    """Seed 000, 6: drivers of this kind merge both; ours does on request."""
    async with process(merge_stderr=True) as play, play.session as session:
        with pytest.raises(PortExit):
            await session.run(turn_prompt(["exit", 1]))
    assert [e.payload for e in play.events if e.event == "malformed"] == ["last words"]


# -- budgets


async def test_a_session_that_exceeds_its_token_budget_is_stopped(stage: Staged) -> None:
    async with stage(max_tokens=100) as play, play.session as session:
        with pytest.raises(SessionBudgetExceeded) as caught:
            await session.run(turn_prompt(usage(60, 60), usage(120, 60)))
    assert (caught.value.used, caught.value.limit) == (120, 100)


async def test_a_session_runs_one_turn_at_a_time(in_memory: Staged) -> None:
    async with in_memory() as play, play.session as session, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(session.run(turn_prompt()))
        await play.until_started()
        with pytest.raises(RuntimeError, match="a turn is already running"):
            await session.run(turn_prompt(END))
        first.cancel()


async def test_cancelling_the_waiting_task_interrupts_the_turn(stage: Staged) -> None:
    async with stage() as play, play.session as session, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(session.run(turn_prompt()))
        await play.until_started()
        running.cancel()
    assert play.log.calls("turn/interrupt") == [{"threadId": THREAD, "turnId": TURN}]


@pytest.mark.parametrize("scenario", ["broken", "broken, counting"])
async def test_a_connection_that_breaks_in_a_turn_is_restored_and_the_turn_continues(
    short_folder: Path, scenario: str
) -> None:
    fake = Fake(SCENARIOS[scenario], short_folder / "heard")
    async with (
        asyncio.timeout(SECONDS),
        fake.websocket() as url,
        Session(SessionOptions(cwd=short_folder, server=url)) as session,
    ):
        report = await session.run("go")
    assert report.agent_message == "two"


async def test_a_session_that_is_cancelled_while_it_closes_still_ends_its_server(
    process: Staged,
) -> None:
    async with process() as play, asyncio.TaskGroup() as tasks:
        await play.session.start()
        pid = play.session.pid
        first = tasks.create_task(play.session.close())
        await asyncio.sleep(0)
        first.cancel()
        await play.session.close()
        assert pid is not None
        assert not is_alive(pid)
