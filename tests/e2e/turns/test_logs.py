"""What the logs show of a turn: its start and end at `info`, each step at `debug`."""

from __future__ import annotations

import logging

import pytest

from tests.harness.model_server import calls, refuses, says
from tests.harness.questions import answer, question
from tests.harness.threads import Stage
from treadle.protocol.base import JsonValue

SECRET = "do not log this"


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The records of the package, at every level."""
    caplog.set_level(logging.DEBUG, logger="treadle")
    return caplog


def lines(logs: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    """The records of at least this level that belong to turns."""
    return [
        record for record in logs.records if record.levelno >= level and hasattr(record, "turn_id")
    ]


def fields(record: logging.LogRecord, *names: str) -> list[JsonValue]:
    """Some fields of a record."""
    return [getattr(record, name) for name in names]


async def test_a_turn_has_one_line_at_its_start_and_one_at_its_end(
    stage: Stage, logs: pytest.LogCaptureFixture
) -> None:
    client = await stage.client()
    thread_id = await client.start(serviceName="shop", cwd=str(stage.workspace))
    stage.model.plays(calls("exec_command", {"cmd": f"echo {SECRET}"}), says(SECRET))
    turn_id = await client.start_turn(thread_id, SECRET)
    await client.end_of(turn_id)
    started, ended = lines(logs, logging.INFO)

    ids = [thread_id, turn_id, "shop"]
    assert fields(started, "message", "thread_id", "turn_id", "service", "model", "kind") == [
        *("turn started", *ids, "mock-model", "regular")
    ]
    assert fields(ended, "message", "thread_id", "turn_id", "service", "status", "error") == [
        *("turn ended", *ids, "completed", None)
    ]
    assert isinstance(ended.__dict__["duration_ms"], int)


async def test_each_step_of_a_turn_can_be_followed(
    stage: Stage, logs: pytest.LogCaptureFixture
) -> None:
    stage.configure(retries=1)
    client = await stage.client()
    params: JsonValue = {"approvalPolicy": "untrusted", "cwd": str(stage.workspace)}
    thread_id = await client.start(**params)
    touch = calls("exec_command", {"cmd": "touch x"}, call_id="c1")
    stage.model.plays(refuses(500, {"error": {"message": SECRET}}), touch, says("done"))
    turn_id = await client.start_turn(thread_id, "go")
    asked = await question(client, "item/commandExecution/requestApproval")
    await answer(client, asked, {"decision": "decline"})
    await client.end_of(turn_id)

    found = lines(logs, logging.DEBUG)
    assert all(fields(each, "thread_id", "turn_id") == [thread_id, turn_id] for each in found)
    steps = [each.getMessage() for each in found]
    expected = [
        "turn started",
        "model requested",
        "model is retried",
        "tool called",
        "server request opened",
        "item started",
        "server request resolved",
        "item completed",
        "tool refused",
        "model requested",
        "model responded",
        "turn ended",
    ]
    rest = iter(steps)
    assert all(step in rest for step in expected), steps
    of_call = [each for each in found if getattr(each, "item_id", None) == "c1"]
    assert {each.getMessage() for each in of_call} >= {"tool called", "server request opened"}


async def test_the_cause_of_a_failure_is_logged_without_its_text(
    stage: Stage, logs: pytest.LogCaptureFixture
) -> None:
    stage.model.plays(refuses(400, {"error": {"message": SECRET}}))
    client = await stage.client()
    await client.run(await client.start())
    (ended,) = [each for each in lines(logs, logging.INFO) if each.getMessage() == "turn ended"]

    assert fields(ended, "status", "error") == ["failed", "badRequest"]


async def test_requests_of_clients_are_logged_with_their_answers(
    stage: Stage, logs: pytest.LogCaptureFixture
) -> None:
    client = await stage.client()
    await client.refusal("thread/read", {"threadId": "nope"})
    found = [each for each in logs.records if each.getMessage().startswith("request ")]

    assert [each.getMessage() for each in found][-2:] == ["request received", "request refused"]
    assert fields(found[-2], "method", "thread_id") == ["thread/read", "nope"]
    assert found[-1].__dict__["code"] == -32600


async def test_no_text_of_users_models_or_tools_is_logged(
    stage: Stage, logs: pytest.LogCaptureFixture
) -> None:
    """Ours: not at debug level either."""
    client = await stage.client()
    params = {"cwd": str(stage.workspace), "developerInstructions": SECRET}
    stage.model.plays(
        calls("exec_command", {"cmd": f"echo {SECRET}"}),
        refuses(400, {"error": {"message": SECRET}}),
    )
    await client.run(await client.start(**params), SECRET)

    shown = [f"{each.getMessage()} {each.__dict__}" for each in lines(logs, logging.DEBUG)]
    assert [line for line in shown if SECRET in line] == []
