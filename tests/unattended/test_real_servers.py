"""Unattended sessions with real servers: ours and the reference, each in its own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.programs import folder_for_homes
from tests.harness.model_server import ModelServer, calls, model_server, refuses, says
from tests.harness.releases import NEWEST, OFFLINE, SERVERS, program
from tests.harness.repositories import repository
from tests.harness.threads import configure
from tests.unattended.fake import is_alive
from treadle.protocol.base import JsonValue
from treadle.unattended import (
    RunPlan,
    Session,
    SessionEvent,
    SessionOptions,
    SessionTurnFailed,
    Stalled,
    Usage,
    run_unattended,
)

SECONDS = 50


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=folder_for_homes(), prefix="home-") as name:
        yield Path(name)


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(SECONDS), model_server() as model:
        yield model


@pytest.fixture(params=SERVERS)
def options(request: pytest.FixtureRequest, folder: Path, model: ModelServer) -> SessionOptions:
    """Options for a server of each kind, in a repository, with a model on loopback."""
    home = folder / "home"
    home.mkdir()
    configure(home, model, OFFLINE.get(request.param, ""))
    env = {"HOME": str(home), "CODEX_HOME": str(home), "TREADLE_HOME": str(home)}
    return SessionOptions(
        cwd=repository(folder / "workspace"),
        workspace_root=folder,
        server=Path(program(request.param)),
        env=env,
    )


async def test_4_the_defaults_are_accepted_and_turns_continue_in_one_thread(
    options: SessionOptions, model: ModelServer
) -> None:
    """The public driver's default policy is refused by current servers."""
    model.plays(says("one", tokens=(10, 5)), says("two", "m2", tokens=(20, 6)))
    events: list[SessionEvent] = []
    async with Session(replace(options, on_event=events.append, title="MT-1")) as session:
        first = await session.run("hello")
        second = await session.run("and on")
    assert [each.agent_message for each in (first, second)] == ["one", "two"]
    assert first.usage == Usage(10, 0, 5, 0, 15)
    assert session.used == Usage(30, 0, 11, 0, 41)
    assert first.session_id != second.session_id
    assert first.session_id.startswith(f"{session.thread_id}-")
    assert model.requests[1].conversation()[-3:] == [
        ("user", "hello"),
        ("assistant", "one"),
        ("user", "and on"),
    ]
    assert [str(each.event) for each in events if each.event != "notification"] == [
        "session_started",
        "turn_completed",
        "session_started",
        "turn_completed",
        "session_ended",
    ]


async def test_a_tool_of_the_caller_is_called(options: SessionOptions, model: ModelServer) -> None:
    heard: list[str] = []

    def linear_graphql(query: str) -> dict[str, str]:
        """Ask the tracker."""
        heard.append(query)
        return {"id": "usr_123"}

    model.plays(calls("linear_graphql", {"query": "{ viewer { id } }"}), says("done"))
    async with Session(replace(options, tools=[linear_graphql])) as session:
        report = await session.run("who am I?")
    assert (heard, report.agent_message) == (["{ viewer { id } }"], "done")
    output: JsonValue = model.requests[1].outputs()["call-1"]
    assert "usr_123" in str(output)


async def test_commands_leave_evidence(options: SessionOptions, model: ModelServer) -> None:
    script = {"cmd": "printf x > made.txt"}
    model.plays(calls("exec_command", script), says("done"))
    # Inside the sandbox of a test machine commands may not run at all.
    async with Session(replace(options, sandbox="danger-full-access")) as session:
        report = await session.run("make a file")
    assert report.evidence.is_any
    assert report.evidence.after.changes == "?? made.txt"


async def test_a_failure_of_the_model_is_a_failed_turn(
    options: SessionOptions, model: ModelServer
) -> None:
    model.plays(refuses(400, {"error": {"message": "bad model", "type": "invalid_request_error"}}))
    async with Session(options) as session:
        with pytest.raises(SessionTurnFailed) as caught:
            await session.run("hello")
        assert "bad model" in str(caught.value)
        report = await session.run("again")
    assert report.agent_message == "done"


@pytest.mark.parametrize("options", ["treadle", NEWEST], indirect=True)
async def test_a_refused_key_is_not_retried(options: SessionOptions, model: ModelServer) -> None:
    """Even where the server reports only the status of the provider."""
    model.plays(refuses(401, {"error": {"message": "bad key"}}))
    with pytest.raises(SessionTurnFailed) as caught:
        await run_unattended("hello", options)
    assert "bad key" in str(caught.value)
    assert len(model.requests) == 1


async def test_a_model_that_hangs_is_a_stall_and_the_process_is_gone(
    options: SessionOptions, model: ModelServer
) -> None:
    never = asyncio.Event()
    model.plays(says("never", None, ["ne"], never))
    async with Session(replace(options, stall_seconds=1.0)) as session:
        with pytest.raises(Stalled):
            await session.run("hello")
        assert session.is_closed
        assert not is_alive(session.pid or 0)


@pytest.mark.parametrize("options", ["treadle"], indirect=True)
async def test_a_run_that_could_not_record_its_prompt_does_not_repeat_it(
    options: SessionOptions, model: ModelServer, folder: Path
) -> None:
    """A kill or a full disk left the state as it was before the first turn: it was done again."""
    plan = RunPlan(state=folder / "state.json", is_done=lambda _report: False, max_turns=1)
    gate, state = asyncio.Event(), folder / "state.json"
    model.plays(says("one", None, ["o"], gate), says("two", "m2"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_unattended("hello", options, plan))
        await model.wait_for_request(1)
        before = state.read_bytes()
        gate.set()
    state.write_bytes(before)
    await run_unattended("hello", options, plan)
    heard = [text for role, text in model.requests[1].conversation() if role == "user"]
    assert heard.count("hello") == 1
    assert heard[-1].startswith("Continue")


async def test_a_later_run_continues_the_thread(
    options: SessionOptions, model: ModelServer, folder: Path
) -> None:
    """In a new server process, with the tokens of the old one counted once."""
    plan = RunPlan(state=folder / "state.json", is_done=lambda _report: False, max_turns=1)
    model.plays(says("one", tokens=(10, 5)), says("two", "m2", tokens=(20, 6)))
    await run_unattended("hello", options, plan)
    report = await run_unattended("hello", options, replace(plan, max_turns=2))
    assert [each.agent_message for each in report.turns] == ["two"]
    assert report.usage == Usage(30, 0, 11, 0, 41)
    messages = model.requests[1].conversation()
    # Without the environment context that the oldest release inserts.
    heard = [("user", "hello"), ("assistant", "one")]
    assert [each for each in messages[:-1] if each in heard] == heard
    assert messages[-1][1].startswith("Continue")
