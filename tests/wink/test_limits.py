"""What ends an evaluation early: failures of the model and the server, deadlines, budgets."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from weakincentives import Budget, BudgetTracker, Deadline, DeadlineExceededError
from weakincentives.adapters import PromptEvaluationError
from weakincentives.clock import FakeClock
from weakincentives.prompt import ToolResult
from weakincentives.runtime import TokenUsage, ToolInvoked

from tests.harness.model_server import Reply, calls, created, refuses, says
from tests.wink.ground import Ground, Log, Text, prompt, tool
from treadle.protocol.base import JsonValue
from treadle.wink import CodexAppServerAdapter, CodexAppServerClientConfig


def soon() -> Deadline:
    """Return the earliest deadline that WINK allows, with a margin for its own clock."""
    return Deadline(expires_at=datetime.now(UTC) + timedelta(seconds=1.2))


# -- failures


FAILURES: dict[int, tuple[str, JsonValue, int | None]] = {
    401: ("request", {"httpConnectionFailed": {"httpStatusCode": 401}}, 401),
    429: ("request", {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, 429),
    500: ("response", "internalServerError", None),
}


@pytest.mark.parametrize("status", FAILURES)
async def test_a_failed_turn_is_reported_with_phase_and_http_status(
    ground: Ground, status: int
) -> None:
    ground.model.plays(*[refuses(status, {"error": {"message": "nothing today"}})] * 3)

    with pytest.raises(PromptEvaluationError) as failed:
        await ground.adapter().evaluate_async(prompt(), session=Log().session)

    payload: JsonValue = failed.value.provider_payload
    failure = (failed.value.phase, payload["codexErrorInfo"], payload["httpStatusCode"])
    assert failure == FAILURES[status]
    assert (payload["status"], type(payload["stderr"])) == ("failed", str)
    assert failed.value.message


async def test_the_message_is_the_providers_if_there_is_one(ground: Ground) -> None:
    ground.model.plays(refuses(400, {"error": {"message": "nothing today"}}))

    with pytest.raises(PromptEvaluationError, match="nothing today"):
        await ground.adapter().evaluate_async(prompt(), session=Log().session)


async def test_a_missing_program_is_named_with_the_remedy() -> None:
    config = CodexAppServerClientConfig(codex_bin="codex-nope")
    with (
        CodexAppServerAdapter(client_config=config) as adapter,
        pytest.raises(PromptEvaluationError) as failed,
    ):
        await adapter.evaluate_async(prompt(), session=Log().session)

    assert failed.value.phase == "request"
    assert "'codex-nope'" in failed.value.message
    assert "codex_bin" in failed.value.message


async def test_a_server_that_dies_leaves_its_last_output(
    own_ground: Ground, tmp_path: Path
) -> None:
    script = tmp_path / "dies"
    script.write_text("#!/bin/sh\nread line\necho 'no license' >&2\nexit 3\n", "utf-8")
    script.chmod(0o755)

    with pytest.raises(PromptEvaluationError, match="no license") as failed:
        await own_ground.adapter(codex_bin=[str(script)]).evaluate_async(
            prompt(), session=Log().session
        )

    assert failed.value.provider_payload == {"exit_code": 3, "stderr": "no license"}


async def test_a_server_that_never_initializes_times_out(own_ground: Ground) -> None:
    adapter = own_ground.adapter(codex_bin=["sleep", "600"], startup_timeout_s=0.2)

    with pytest.raises(PromptEvaluationError, match="initialize: no answer within") as failed:
        await adapter.evaluate_async(prompt(), session=Log().session)

    assert failed.value.phase == "request"


# -- deadlines


async def test_a_deadline_that_has_passed_is_refused_before_a_server_is_started(
    own_ground: Ground,
) -> None:
    clock = FakeClock()
    deadline = Deadline(expires_at=clock.utcnow() + timedelta(seconds=2), clock=clock)
    clock.advance(5)
    log = Log()

    with pytest.raises(PromptEvaluationError) as failed:
        await own_ground.adapter(codex_bin="codex-nope").evaluate_async(
            prompt(), session=log.session, deadline=deadline
        )

    assert isinstance(failed.value, DeadlineExceededError)
    assert (failed.value.phase, log.events) == ("request", [])


async def test_a_deadline_interrupts_the_turn_and_the_server_keeps_running(ground: Ground) -> None:
    ground.model.plays(says("First."), Reply([created(), asyncio.Event()]), says("Next."))
    command, starts = ground.recorded()
    adapter = ground.adapter(codex_bin=command)
    await adapter.evaluate_async(prompt(), session=Log().session)

    with pytest.raises(DeadlineExceededError):
        await adapter.evaluate_async(prompt(), session=Log().session, deadline=soon())
    response = await adapter.evaluate_async(prompt(), session=Log().session)

    assert (response.text, len(starts())) == ("Next.", 1)


async def test_a_deadline_kills_a_server_that_is_frozen(ground: Ground) -> None:
    ground.model.plays(Reply([created(), asyncio.Event()]))
    command, pids = ground.recorded()

    def freeze(_turn: object) -> None:
        os.kill(pids()[0], signal.SIGSTOP)

    adapter = ground.adapter(codex_bin=command, on_turn=freeze, interrupt_grace_s=0.2)
    with pytest.raises(DeadlineExceededError):
        await adapter.evaluate_async(prompt(), session=Log().session, deadline=soon())
    adapter.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pids()[0], 0)


async def test_a_deadline_does_not_wait_for_a_running_tool(ground: Ground) -> None:
    is_begun, release, is_done = threading.Event(), threading.Event(), threading.Event()

    def sleepy(params: Text) -> ToolResult[Text]:
        is_begun.set()
        release.wait(20)
        is_done.set()
        return ToolResult.ok(params)

    ground.model.plays(says("First."), calls("sleepy", {"text": "a"}), says("Never."))
    adapter, log = ground.adapter(), Log()
    await adapter.evaluate_async(prompt(), session=Log().session)

    with pytest.raises(DeadlineExceededError):
        await adapter.evaluate_async(
            prompt("Go.", tool("sleepy", sleepy)), session=log.session, deadline=soon()
        )
    assert (is_begun.is_set(), is_done.is_set()) == (True, False)
    release.set()
    await asyncio.to_thread(is_done.wait, 20)
    # A tool that is no longer awaited sends no events to the session.
    assert log.of(ToolInvoked) == []


# -- budgets


async def test_a_budget_stops_the_turn_at_the_first_report_that_exceeds_it(ground: Ground) -> None:
    ground.model.plays(*[calls("upper", {"text": "a"}, f"call-{n}") for n in range(5)])
    tracker = BudgetTracker(Budget(max_total_tokens=20))

    with pytest.raises(PromptEvaluationError, match="total_tokens") as failed:
        await ground.adapter().evaluate_async(
            prompt("Go.", tool()), session=Log().session, budget_tracker=tracker
        )

    assert failed.value.phase == "budget"
    payload: JsonValue = failed.value.provider_payload
    assert (payload["exceeded"], payload["input_tokens"]) == ("total_tokens", 20)
    assert len(ground.model.requests) < 5


async def test_evaluations_that_share_a_tracker_add_up(own_ground: Ground) -> None:
    own_ground.model.plays(says("One.", "m-1"), says("Two.", "m-2"))
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    adapter, log = own_ground.adapter(reuse_thread=True), Log()

    for _ in range(2):
        await adapter.evaluate_async(prompt(), session=log.session, budget_tracker=tracker)

    assert tracker.consumed == TokenUsage(20, 10, 0)


async def test_the_deadline_of_a_budget_applies_too(own_ground: Ground) -> None:
    own_ground.model.plays(Reply([created(), asyncio.Event()]))

    with pytest.raises(DeadlineExceededError):
        await own_ground.adapter().evaluate_async(
            prompt(), session=Log().session, budget=Budget(deadline=soon())
        )
