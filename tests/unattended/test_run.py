"""Whole runs: continuation, evidence, retries, resuming."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.fake import THREAD, TURN, ServerLog, turn
from tests.harness.repositories import commit, repository
from tests.unattended.fake import END, QUICK, failed, reached, turn_prompt, usage
from treadle.client._runtime.reconnect import Backoff
from treadle.protocol.base import JsonValue
from treadle.testing import FakeAppServer, FakeConnection, fake
from treadle.unattended import (
    Evidence,
    RunPlan,
    Session,
    SessionBudgetExceeded,
    SessionOptions,
    SessionTurnFailed,
    Snapshot,
    TurnReport,
    run_unattended,
)
from treadle.unattended import git as unattended_git

SECONDS = 30


@asynccontextmanager
async def work(
    folder: Path, scenario: str = "steps", **options: JsonValue
) -> AsyncIterator[tuple[SessionOptions, ServerLog]]:
    """Return options for a server in this process, and the messages that it receives."""
    log, workspace = folder / "heard", folder / "workspace"
    workspace.mkdir(exist_ok=True)
    async with asyncio.timeout(SECONDS), reached("memory", scenario, log) as where:
        yield SessionOptions(**{"cwd": workspace, "server": where, **options}), ServerLog(log)


def inputs(log: ServerLog) -> list[str]:
    """Return the inputs of the turns."""
    return [each["input"][0]["text"] for each in log.calls("turn/start")]


async def test_turns_continue_in_the_same_thread_until_the_work_is_done(tmp_path: Path) -> None:
    seen: list[int] = []

    async def is_done(report: TurnReport) -> bool:
        seen.append(report.number)
        return len(seen) == 3

    plan = RunPlan(is_done=is_done, continuation=turn_prompt(END))
    async with work(tmp_path) as (options, log):
        report = await run_unattended(turn_prompt(usage(5, 5), END), options, plan)
    assert (report.ending, len(report.turns), report.usage.total_tokens) == ("done", 3, 5)
    assert inputs(log) == [turn_prompt(usage(5, 5), END), turn_prompt(END), turn_prompt(END)]
    assert len(log.calls("thread/start")) == 1


async def test_a_run_without_a_check_ends_when_nothing_changes(tmp_path: Path) -> None:
    async with work(tmp_path) as (options, log):
        report = await run_unattended(turn_prompt(END), options, RunPlan(max_turns=5))
    assert (report.ending, len(inputs(log))) == ("idle", 1)


async def test_a_run_has_a_maximum_of_turns(tmp_path: Path) -> None:
    diff = ["notify", "turn/diff/updated", {"diff": "--- a\n+++ b\n"}]
    plan = RunPlan(max_turns=2, continuation=turn_prompt(diff, END))
    async with work(tmp_path) as (options, log):
        report = await run_unattended(turn_prompt(diff, END), options, plan)
    assert (report.ending, len(inputs(log))) == ("max_turns", 2)


async def test_commits_and_changes_in_the_workspace_are_evidence(tmp_path: Path) -> None:
    workspace = repository(tmp_path / "workspace")

    def write(name: str) -> None:
        """Write a file."""
        (workspace / name).write_text("x")

    def save(name: str) -> str:
        """Commit a file."""
        return commit(workspace, name, "y")

    def call(tool: str) -> list[JsonValue]:
        params = {"callId": "c", "tool": tool, "arguments": {"name": "b.txt"}}
        return ["ask", tool, "item/tool/call", params]

    scene = work(tmp_path, "runs commands", tools=[write, save])
    async with scene as (options, _), Session(options) as session:
        idle = await session.run(turn_prompt(END))
        written = await session.run(turn_prompt(call("write"), END))
        saved = await session.run(turn_prompt(call("save"), END))
    assert not idle.evidence.is_any
    assert (written.evidence.after.changes, written.evidence.commit) == ("?? b.txt", None)
    assert saved.evidence.commit == saved.evidence.after.head != saved.evidence.before.head


@pytest.mark.parametrize(
    "scenario",
    ["leaves commands unanswered", "refuses commands", "answers commands with nonsense"],
)
async def test_a_turn_ends_where_the_server_runs_no_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    monkeypatch.setattr(unattended_git, "ANSWER_SECONDS", 0.2)
    repository(tmp_path / "workspace")
    async with work(tmp_path, scenario) as (options, log), Session(options) as session:
        reports = [await session.run(turn_prompt(END)) for _ in range(2)]
    assert [each.evidence.before for each in reports] == [Snapshot(), Snapshot()]
    assert not any(each.evidence.is_any for each in reports)
    policies = {each["sandboxPolicy"]["type"] for each in log.calls("command/exec")}
    assert policies == {"readOnly"}


async def test_a_server_that_never_answers_a_command_is_asked_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unattended_git, "ANSWER_SECONDS", 0.2)
    scene = work(tmp_path, "leaves commands unanswered")
    async with scene as (options, log), Session(options) as session:
        await session.run(turn_prompt(END))
        await session.run(turn_prompt(END))
    assert len(log.calls("command/exec")) == 2  # the two commands of one snapshot


async def test_git_runs_without_a_sandbox_only_where_commands_do(
    tmp_path: Path,
) -> None:
    scene = work(tmp_path, "refuses commands", sandbox="danger-full-access")
    async with scene as (options, log), Session(options) as session:
        await session.run(turn_prompt(END))
    policies = [each["sandboxPolicy"]["type"] for each in log.calls("command/exec")]
    assert sorted(policies) == ["dangerFullAccess"] * 4 + ["readOnly"] * 4


def test_changes_that_git_does_not_report_are_not_evidence() -> None:
    known = Snapshot("1" * 40, "")
    assert not Evidence(before=known, after=Snapshot()).is_any
    assert not Evidence(before=known, after=known).is_any
    assert Evidence(before=Snapshot(), after=known).is_any


async def test_a_temporary_failure_is_retried_without_repeating_the_prompt(
    tmp_path: Path,
) -> None:
    info = {"responseStreamDisconnected": {"httpStatusCode": 502}}
    async with work(tmp_path) as (options, log):
        plan = RunPlan(retry=QUICK, continuation=turn_prompt(END))
        report = await run_unattended(turn_prompt(failed(info)), options, plan)
    assert inputs(log) == [turn_prompt(failed(info)), turn_prompt(END)]
    assert (report.failures, report.ending) == (1, "idle")


async def test_a_failed_turn_does_not_count_towards_the_maximum(tmp_path: Path) -> None:
    """Otherwise a run of one failed turn would succeed, with nothing done."""
    async with work(tmp_path) as (options, log):
        prompt = turn_prompt(failed("serverOverloaded"))
        plan = RunPlan(max_turns=1, retry=QUICK, continuation=turn_prompt(END))
        report = await run_unattended(prompt, options, plan)
    assert inputs(log) == [prompt, turn_prompt(END)]
    assert (report.ending, len(report.turns), report.failures) == ("idle", 1, 1)


async def test_after_a_crash_the_thread_is_resumed(short_folder: Path) -> None:
    """In a new process; nothing that was counted before counts again."""
    prompt, more = turn_prompt(usage(10, 10), ["exit", 1]), turn_prompt(usage(14, 4), END)
    log, workspace = short_folder / "heard", short_folder / "workspace"
    workspace.mkdir()
    async with (
        asyncio.timeout(SECONDS),
        reached("subprocess", "steps", log) as where,
    ):
        env = {"PYTHONPATH": str(Path(__file__).parents[2])}
        options = SessionOptions(cwd=workspace, server=where, env=env)
        report = await run_unattended(prompt, options, RunPlan(retry=QUICK, continuation=more))
    assert [each["threadId"] for each in ServerLog(log).calls("thread/resume")] == [THREAD]
    assert inputs(ServerLog(log)) == [prompt, more]
    assert (report.failures, report.usage.total_tokens) == (1, 14)


async def test_a_thread_that_the_server_lost_is_replaced_with_the_whole_prompt(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state.json"
    prompt = turn_prompt(END)
    async with work(tmp_path, "forgets threads") as (options, log):
        plan = RunPlan(state=state, is_done=lambda _report: False, max_turns=1)
        await run_unattended(prompt, options, plan)
        await run_unattended(prompt, options, replace(plan, max_turns=2))
    assert [len(log.calls(name)) for name in ("thread/start", "thread/resume")] == [2, 1]
    assert inputs(log) == [prompt, prompt]


async def test_another_prompt_with_the_same_state_continues_the_thread(tmp_path: Path) -> None:
    plan = RunPlan(state=tmp_path / "state.json")
    async with work(tmp_path) as (options, log):
        await run_unattended(turn_prompt(END), options, plan)
        second = turn_prompt(usage(1, 1), END)
        await run_unattended(second, options, plan)
    assert inputs(log) == [turn_prompt(END), second]
    assert len(log.calls("thread/start")) == 1


async def test_an_unreadable_state_file_is_ignored(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("{")
    async with work(tmp_path) as (options, _):
        report = await run_unattended(turn_prompt(END), options, RunPlan(state=state))
    assert json.loads(state.read_text())["threadId"] == report.thread_id == THREAD


async def test_a_full_thread_is_compacted_once(tmp_path: Path) -> None:
    full = turn_prompt(failed("contextWindowExceeded"))
    async with work(tmp_path) as (options, log):
        with pytest.raises(SessionTurnFailed):
            await run_unattended(full, options, RunPlan(retry=QUICK, continuation=full))
    assert len(log.calls("thread/compact/start")) == 1
    assert len(inputs(log)) == 2


async def test_a_failed_compaction_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """It counts towards the retry budget, and is retried: the next one may succeed."""
    server = FakeAppServer()
    window = {"message": "full", "codexErrorInfo": "contextWindowExceeded"}
    server.on("turn/start", fake.turn(error=window), fake.turn(error=window), fake.turn("Done."))
    broken = {"id": "c1", "items": [], "status": "failed"}
    good = {"id": "c2", "items": [], "status": "completed"}
    server.on("thread/compact/start", _compacts(broken), _compacts(good))
    options = SessionOptions(cwd=tmp_path, server=server)
    report = await run_unattended("Work", options, RunPlan(retry=Backoff(3, 0.0, 0.0)))
    assert (report.agent_message, report.failures) == ("Done.", 3)
    assert len(server.received("thread/compact/start")) == 2


def _compacts(turn: JsonValue) -> fake.Play:
    """Return a play of a compaction that ends like this."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {})
        thread_id = request["params"]["threadId"]
        await connection.notify("turn/completed", {"threadId": thread_id, "turn": turn})

    return play


def limited(resets_at: float) -> str:
    """Return a turn that fails because the account's limit is reached until then."""
    window = {"usedPercent": 100, "windowDurationMins": 300, "resetsAt": int(resets_at)}
    limit = {"limitId": "codex", "primary": window}
    update = ["send", {"method": "account/rateLimits/updated", "params": {"rateLimits": limit}}]
    return turn_prompt(update, failed("usageLimitExceeded"))


async def test_a_run_waits_until_a_limit_resets(tmp_path: Path) -> None:
    waits: list[float] = []

    def listen(event: JsonValue) -> None:
        if event.event == "retrying":
            waits.append(event.payload["waitSeconds"])

    async with work(tmp_path, on_event=listen) as (options, log):
        plan = RunPlan(retry=QUICK, continuation=turn_prompt(END))
        await run_unattended(limited(time.time() + 2), options, plan)
    assert [0 < wait <= 2 for wait in waits] == [True]
    assert len(inputs(log)) == 2


async def test_a_run_does_not_wait_for_a_limit_that_lasts_too_long(tmp_path: Path) -> None:
    async with work(tmp_path) as (options, log):
        with pytest.raises(SessionTurnFailed) as caught:
            await run_unattended(limited(4_000_000_000), options, RunPlan(retry=QUICK))
    assert caught.value.retry_at == 4_000_000_000
    assert len(inputs(log)) == 1


async def test_the_token_budget_covers_all_sessions_of_a_run(tmp_path: Path) -> None:
    plan = RunPlan(state=tmp_path / "state.json", is_done=lambda _report: False, max_turns=1)
    async with work(tmp_path, max_tokens=100) as (options, log):
        await run_unattended(turn_prompt(usage(90, 90), END), options, plan)
        more = turn_prompt(usage(120, 30), END)
        later = replace(plan, max_turns=2, continuation=more)
        with pytest.raises(SessionBudgetExceeded):
            await run_unattended(turn_prompt(usage(90, 90), END), options, later)
    assert len(inputs(log)) == 2


async def test_an_interrupted_turn_is_not_retried(tmp_path: Path) -> None:
    stopped = ["notify", "turn/completed", {"turn": turn("interrupted"), "turnId": TURN}]
    async with work(tmp_path) as (options, log):
        with pytest.raises(Exception, match="interrupted"):
            await run_unattended(turn_prompt(stopped), options, RunPlan(retry=QUICK))
    assert len(inputs(log)) == 1


async def test_a_run_that_is_done_checks_again(tmp_path: Path) -> None:
    """The workspace may have changed since, and so may the check."""
    answers = [True, False, True]
    plan = RunPlan(
        state=tmp_path / "state.json",
        is_done=lambda _report: True,
        recheck=lambda: answers.pop(0),
        continuation=turn_prompt(END),
    )
    prompt = turn_prompt(END)
    async with work(tmp_path) as (options, log):
        endings = [await run_unattended(prompt, options, plan) for _ in range(4)]
    assert [len(each.turns) for each in endings] == [1, 0, 1, 0]
    assert [each.ending for each in endings] == ["done"] * 4
    assert (len(inputs(log)), answers) == (2, [])
