"""Thirteen known defects of similar drivers; each has a test that ours does not have it.

The fourth is among the tests with real servers: whether they accept what a session sends.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.client.fake import THREAD, TURN, ServerLog
from tests.unattended.fake import (
    END,
    QUICK,
    Stage,
    failed,
    is_alive,
    reached,
    staged,
    turn_prompt,
    usage,
)
from treadle.client._runtime.reconnect import Backoff
from treadle.protocol.base import JsonValue
from treadle.protocol.server_requests import SERVER_REQUESTS
from treadle.testing import VirtualClock
from treadle.unattended import (
    NoProgress,
    RateLimit,
    RunPlan,
    SessionError,
    SessionEvent,
    SessionOptions,
    SessionTurnFailed,
    Stalled,
    run_unattended,
)
from treadle.unattended.usage import Window

Staged = Callable[..., AbstractAsyncContextManager[Stage]]

SECONDS = 30
COMMAND = "item/commandExecution/requestApproval"


@pytest.fixture
def in_memory(short_folder: Path) -> Staged:
    return partial(staged, "memory", short_folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


async def test_1_a_completed_turn_that_failed_is_not_a_success(
    workspace: Path, tmp_path: Path
) -> None:
    """And so it is not followed by twenty more."""
    log_path = tmp_path / "heard"
    async with asyncio.timeout(SECONDS), reached("memory", "steps", log_path) as where:
        options = SessionOptions(cwd=workspace, server=where)
        with pytest.raises(SessionTurnFailed) as caught:
            await run_unattended(
                turn_prompt(failed("unauthorized")), options, RunPlan(max_turns=20)
            )
    assert caught.value.codex_error_info == "unauthorized"
    assert len(ServerLog(log_path).calls("turn/start")) == 1


async def test_2_every_server_request_is_answered_known_or_not(in_memory: Staged) -> None:
    params: dict[str, JsonValue] = {
        "item/tool/call": {"callId": "c", "tool": "x", "arguments": {}},
        "item/tool/requestUserInput": {"questions": [], "isBlocking": True},
        "item/permissions/requestApproval": {"cwd": "/", "permissions": {}},
        "execCommandApproval": {"conversationId": THREAD, "callId": "c", "command": [], "cwd": "/"},
        "applyPatchApproval": {"conversationId": THREAD, "callId": "c", "fileChanges": {}},
        "mcpServer/elicitation/request": {"serverName": "s", "mode": "hologram"},
    }
    methods = [*SERVER_REQUESTS, "brand/new", COMMAND]
    requests = [["ask", number, name, params.get(name, {})] for number, name in enumerate(methods)]
    async with in_memory() as play, play.session as session:
        await session.run(turn_prompt(*requests, END))
    answers = play.log.answers()
    assert list(answers) == list(range(len(methods)))
    assert answers[methods.index("brand/new")] == {
        "code": -32601,
        "message": "method not found: brand/new",
    }
    assert "request_refused brand/new" in play.event_names()


async def test_3_nothing_is_dropped_while_an_answer_is_awaited(in_memory: Staged) -> None:
    async with in_memory("talks first") as play, play.session:
        pass
    assert [*play.log.answers()] == ["early"]
    assert play.event_names()[:2] == [
        "notification thread/started",
        "request_answered currentTime/read",
    ]


@pytest.mark.parametrize(
    "limit",
    [
        {
            "limitId": "codex",
            "limitName": "Codex",
            "primary": {"usedPercent": 40, "windowDurationMins": 300, "resetsAt": 1_700_000_000},
            "secondary": None,
            "credits": {"hasCredits": True},
        },
        {
            "limit_id": "codex",
            "limit_name": "Codex",
            "primary": {"used_percent": 40.0, "window_minutes": 300, "resets_at": 1_700_000_000},
            "credits": {"hasCredits": True},
        },
    ],
)
async def test_5_rate_limits_are_read_in_both_spellings(
    in_memory: Staged, limit: JsonValue
) -> None:
    update = ["send", {"method": "account/rateLimits/updated", "params": {"rateLimits": limit}}]
    async with in_memory() as play, play.session as session:
        await session.run(turn_prompt(update, END))
        assert session.rate_limits == {
            "codex": RateLimit(
                limit_id="codex",
                limit_name="Codex",
                primary=Window(40.0, 300, 1_700_000_000),
                credits={"hasCredits": True},
            )
        }


async def test_6_the_server_and_its_children_are_gone_when_the_session_stops(
    short_folder: Path,
) -> None:
    """This server ignores the end of its input and SIGTERM."""
    async with staged("subprocess", short_folder, "leaves a child") as play:
        async with play.session as session:
            await session.run(turn_prompt(END))
            child = int((short_folder / "child").read_text())
            assert session.pid is not None
            assert is_alive(session.pid)
            assert is_alive(child)
            assert os.getpgid(child) == session.pid
        assert not is_alive(session.pid)
        assert not is_alive(child)


async def test_7_a_host_that_accepts_connections_and_never_answers_times_out(
    workspace: Path,
) -> None:
    """And counts as a failure, so that retries are limited."""
    lines: list[asyncio.StreamWriter] = []

    async def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)

    async with asyncio.timeout(SECONDS):
        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        options = SessionOptions(cwd=workspace, server=f"ws://127.0.0.1:{port}", read_seconds=0.2)
        with pytest.raises(SessionError) as caught:
            await run_unattended("x", options, RunPlan(retry=QUICK))
        for line in lines:
            line.close()
        server.close()
    assert caught.value.kind == "response_timeout"
    assert len(lines) == 1 + QUICK.attempts


async def test_8_a_check_that_blocks_does_not_stop_the_monitoring_of_other_sessions(
    workspace: Path, short_folder: Path
) -> None:
    release, is_asked = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def check(_report: object) -> bool:
        loop.call_soon_threadsafe(is_asked.set)
        return release.wait(SECONDS)

    async with (
        asyncio.timeout(SECONDS),
        reached("memory", "steps", short_folder / "other") as where,
        staged("memory", short_folder, stall_seconds=0.1) as play,
        asyncio.TaskGroup() as tasks,
    ):
        options = SessionOptions(cwd=workspace, server=where)
        plan = RunPlan(is_done=check)
        run = tasks.create_task(run_unattended(turn_prompt(END), options, plan))
        await is_asked.wait()
        async with play.session as session:
            with pytest.raises(Stalled):
                await session.run(turn_prompt())
        assert not run.done()
        release.set()
    assert run.result().ending == "done"


async def test_9_failures_have_a_budget(workspace: Path, tmp_path: Path) -> None:
    log_path, events = tmp_path / "heard", list[SessionEvent]()
    async with asyncio.timeout(SECONDS), reached("memory", "steps", log_path) as where:
        options = SessionOptions(cwd=workspace, server=where, on_event=events.append)
        prompt = turn_prompt(failed("serverOverloaded"))
        plan = RunPlan(retry=QUICK, continuation=prompt)
        with pytest.raises(SessionTurnFailed) as caught:
            await run_unattended(prompt, options, plan)
    assert len(ServerLog(log_path).calls("turn/start")) == 1 + QUICK.attempts
    assert caught.value.__notes__ == ["the run gave up after 3 failures"]
    retries = [each.payload for each in events if each.event == "retrying"]
    assert [(each["kind"], each["failure"]) for each in retries] == [
        ("turn_failed", 1),
        ("turn_failed", 2),
    ]


async def test_10_a_restart_continues_with_the_thread_the_counts_and_the_budget(
    workspace: Path, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """And does not send the prompt again: the thread already has it."""
    log_path, state = tmp_path / "heard", tmp_path / "state.json"
    prompt, more = turn_prompt(usage(10, 10), ["exit", 1]), turn_prompt(usage(15, 5), END)
    once = RunPlan(retry=Backoff(attempts=0), continuation=more, state=state)
    async with asyncio.timeout(SECONDS), reached("memory", "steps", log_path) as where:
        options = SessionOptions(cwd=workspace, server=where, stall_seconds=10.0)
        with virtual_clock, pytest.raises(SessionError):
            await run_unattended(prompt, options, once)
        report = await run_unattended(prompt, options, once)
        again = await run_unattended(prompt, options, once)
    assert [each["threadId"] for each in ServerLog(log_path).calls("thread/resume")][-1] == THREAD
    assert len(ServerLog(log_path).calls("thread/start")) == 1
    sent = [each["input"][0]["text"] for each in ServerLog(log_path).calls("turn/start")]
    assert sent == [prompt, more]
    assert (report.thread_id, report.failures, report.usage.total_tokens) == (THREAD, 1, 15)
    assert (again.ending, again.turns) == ("done", ())


async def test_11_a_slow_tool_does_not_delay_approvals(in_memory: Staged) -> None:
    is_approved = asyncio.Event()

    async def slow() -> str:
        """Wait until another request was answered."""
        await is_approved.wait()
        return "at last"

    def listen(event: SessionEvent) -> None:
        if event.event == "approval_auto_approved":
            is_approved.set()

    called = {"threadId": THREAD, "turnId": TURN, "callId": "c", "tool": "slow", "arguments": {}}
    call = ["send", {"id": 1, "method": "item/tool/call", "params": called}]
    approval = ["ask", 2, COMMAND, {"command": "ls"}]
    second = ["ask", 3, "item/tool/call", {**called}]
    async with in_memory(tools=[slow], on_event=listen) as play, play.session as session:
        await session.run(turn_prompt(call, approval, second, END))
    assert next(iter(play.log.answers())) == 2
    assert {*play.log.answers()} == {1, 2, 3}


async def test_12_turns_that_complete_and_change_nothing_are_not_progress(
    workspace: Path, tmp_path: Path
) -> None:
    log_path = tmp_path / "heard"
    async with asyncio.timeout(SECONDS), reached("memory", "steps", log_path) as where:
        options = SessionOptions(cwd=workspace, server=where)
        plan = RunPlan(
            is_done=lambda _report: False, max_idle_turns=3, continuation=turn_prompt(END)
        )
        with pytest.raises(NoProgress):
            await run_unattended(turn_prompt(END), options, plan)
    assert len(ServerLog(log_path).calls("turn/start")) == 3


async def test_13_steps_of_the_wall_clock_neither_stall_a_turn_nor_hide_a_stall(
    in_memory: Staged, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    hours = count(0, 3600)
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    monkeypatch.setattr(time, "time_ns", lambda: -next(hours) * 10**9)
    talk = [["notify", "item/agentMessage/delta", {"itemId": "i", "delta": "x"}]] * 20
    async with in_memory(stall_seconds=10.0) as play, play.session as session:
        await session.run(turn_prompt(*talk, END))
        with virtual_clock, pytest.raises(Stalled):
            await session.run(turn_prompt())
    assert virtual_clock.elapsed == 10
