"""Requests and results of a client, over every transport."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.client.conftest import Reach
from tests.client.fake import INFO, THREAD, TURN
from treadle import (
    AsyncClient,
    Connector,
    Disconnected,
    RequestRefused,
    RequestTimeout,
    ServerExited,
)
from treadle.client.errors import ServerUnavailable
from treadle.client.events import (
    AgentMessageDelta,
    ItemCompleted,
    ItemStarted,
    TokenUsageUpdated,
    TurnCompleted,
    TurnDiffUpdated,
    TurnPlanUpdated,
    TurnStarted,
)
from treadle.client.result import TurnResult
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import MODEL_LIST
from treadle.protocol.initialize import InitializeResponse
from treadle.protocol.item import AgentMessageThreadItem
from treadle.protocol.model import ModelListParams
from treadle.protocol.turn import Turn, TurnPlanStep
from treadle.protocol.usage import ThreadTokenUsage, TokenUsageBreakdown
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.testing import FakeAppServer, fake
from treadle.transport.base import Transport
from treadle.transport.memory import memory_pair


async def test_connect_sends_initialize_as_id_0_then_initialized(server: Reach) -> None:
    """Seed 001, unit test 1."""
    async with server("usual", client_name="me", client_version="2") as (client, log):
        about = await client.connect()
        await client.list_models()
        await client.disconnect()
    first, second, *_ = log.all()
    assert about == InitializeResponse(
        codex_home=INFO["codexHome"],
        platform_family="unix",
        platform_os="linux",
        user_agent="fake/0.1",
    )
    assert first == {
        "id": 0,
        "method": "initialize",
        "params": {
            "clientInfo": {"name": "me", "title": "me", "version": "2"},
            "capabilities": {
                "experimentalApi": True,
                "explicitGatewayOauth": False,
                "mcpServerOpenaiFormElicitation": False,
                "optOutNotificationMethods": None,
                "requestAttestation": False,
            },
        },
    }
    assert second == {"method": "initialized", "params": {}}
    assert [each["id"] for each in log.all() if "id" in each] == [0, 1]


async def test_start_thread_sends_the_defaults_and_returns_the_thread(server: Reach) -> None:
    """Seed 001, unit test 2: never ask, write in the folder; the README's spellings are valid."""
    usual = server("usual", approval_policy="unlessTrusted", model="m")
    async with usual as (client, log), client:
        thread = await client.start_thread(sandbox="workspaceWrite", cwd="/")
    assert (thread.id, thread.info.model_provider) == (THREAD, "fake")
    assert log.calls("thread/start") == [
        {"approvalPolicy": "untrusted", "cwd": "/", "model": "m", "sandbox": "workspace-write"}
    ]


async def test_resume_thread_sends_its_id_and_no_defaults(server: Reach) -> None:
    """Seed 001, unit test 3: a stored thread keeps its settings."""
    async with server("usual") as (client, log), client:
        thread = await client.resume_thread(THREAD, personality="friendly")
    assert thread.id == THREAD
    assert log.calls("thread/resume") == [{"threadId": THREAD, "personality": "friendly"}]


async def test_start_turn_sends_the_input_and_returns_the_turn(server: Reach) -> None:
    """Seed 001, unit test 4."""
    async with server("usual") as (client, log), client:
        turn = await client.start_turn(
            THREAD, ["hi", Path("/p.png")], client_user_message_id="m1", effort="low"
        )
    assert turn == Turn(id=TURN, items=[], status="inProgress")
    assert log.calls("turn/start") == [
        {
            "threadId": THREAD,
            "clientUserMessageId": "m1",
            "effort": "low",
            "input": [
                {"type": "text", "text": "hi", "text_elements": []},
                {"type": "localImage", "path": "/p.png"},
            ],
        }
    ]


USAGE = TokenUsageBreakdown(0, 3, 2, 0, 5)
HELLO = AgentMessageThreadItem(id="item-1", text="Hello")
RESULT: TurnResult[None] = TurnResult(
    turn=Turn(id=TURN, items=[], status="completed"),
    items=[HELLO],
    agent_message="Hello",
    diff="--- a\n+++ b\n",
    usage=ThreadTokenUsage(USAGE, USAGE),
    plan=[TurnPlanStep("completed", "look")],
    output=None,
)


async def test_run_turn_collects_everything_until_the_end(server: Reach) -> None:
    """Seed 001, unit test 5."""
    async with server("usual") as (client, _), client:
        thread = await client.start_thread()
        assert await client.run_turn(thread.id, "hi") == RESULT


async def test_a_stream_yields_typed_events_in_order_and_ends(server: Reach) -> None:
    async with server("usual") as (client, _), client:
        thread = await client.start_thread()
        stream = thread.stream("hi")
        events = [event async for event in stream]
        assert await stream.result() == RESULT
    assert [type(event) for event in events] == [
        TurnStarted,
        ItemStarted,
        AgentMessageDelta,
        AgentMessageDelta,
        ItemCompleted,
        TurnDiffUpdated,
        TurnPlanUpdated,
        TokenUsageUpdated,
        TurnCompleted,
    ]


async def test_the_text_of_a_turn_can_be_read_as_it_arrives(server: Reach) -> None:
    async with server("usual") as (client, _), client:
        thread = await client.start_thread()
        assert [words async for words in thread.stream("hi").text()] == ["Hel", "lo"]


async def test_events_before_the_answer_are_not_lost(server: Reach) -> None:
    """Upstream: the reference may publish events of a turn before it answers `turn/start`."""
    async with server("early events") as (client, _), client:
        thread = await client.start_thread()
        assert await thread.run("hi") == RESULT


async def test_steer_turn_names_the_expected_turn_and_returns_the_id(server: Reach) -> None:
    """Seed 001, unit test 6."""
    async with server("usual") as (client, log), client:
        assert await client.steer_turn(THREAD, "left", TURN) == TURN
    assert log.calls("turn/steer") == [
        {
            "threadId": THREAD,
            "expectedTurnId": TURN,
            "input": [{"type": "text", "text": "left", "text_elements": []}],
        }
    ]


async def test_interrupt_turn_names_the_thread_and_the_turn(server: Reach) -> None:
    """Seed 001, unit test 7."""
    async with server("usual") as (client, log), client:
        await client.interrupt_turn(THREAD, TURN)
    assert log.calls("turn/interrupt") == [{"threadId": THREAD, "turnId": TURN}]


async def test_an_error_answer_is_raised_with_its_fields(server: Reach) -> None:
    """Seed 001, unit test 8."""
    async with server("refuses") as (client, _), client:
        with pytest.raises(RequestRefused) as caught:
            await client.list_models()
    refused = caught.value
    assert (refused.method, refused.code, refused.message) == ("model/list", -32600, "no")
    assert (refused.kind, refused.data) == ("invalidParams", {"kind": "invalidParams", "path": "x"})


async def test_a_server_that_disconnects_fails_all_waiting_calls(server: Reach) -> None:
    """Seed 001, unit test 9; for a process, with its exit code and its last output."""
    faults: list[Exception] = []
    async with server("hangs up", reconnect=False) as (client, _):
        client.on("error", faults.append)
        async with client:
            thread = await client.start_thread()
            with pytest.raises(Disconnected) as caught:
                await thread.run("hi")
            with pytest.raises(Disconnected):
                await client.list_models()
    if isinstance(caught.value, ServerExited):
        assert caught.value.exit_code == 7
        assert caught.value.stderr == "first words\nlast words"
    assert [type(fault) for fault in faults] == [type(caught.value)]


async def test_a_request_to_an_overloaded_server_is_retried(server: Reach) -> None:
    """Users, 33: -32001 is recognized by its code."""
    async with server("busy") as (client, log), client:
        assert (await client.list_models()).data == []
    assert len(log.calls("model/list")) == 3


async def test_a_request_without_an_answer_times_out_and_others_continue(server: Reach) -> None:
    async with server("silent", request_timeout=5) as (client, _), client:
        with pytest.raises(RequestTimeout) as caught:
            await client.request(MODEL_LIST, ModelListParams(), timeout=0.01)
        assert (await client.start_thread()).id == THREAD
    assert (caught.value.method, caught.value.seconds) == ("model/list", 0.01)


async def test_a_program_that_does_not_exist_is_reported_at_once() -> None:
    """Users, 39."""
    with pytest.raises(ServerUnavailable, match="could not start '/does/not/exist'"):
        await AsyncClient(["/does/not/exist"]).connect()


async def test_a_program_that_exits_at_once_is_reported_with_its_last_output() -> None:
    """Users, 40."""
    command = ["/bin/sh", "-c", "echo no key >&2; exit 3"]
    with pytest.raises(ServerExited) as caught:
        async with AsyncClient(command):
            pass
    assert (caught.value.exit_code, caught.value.stderr) == (3, "no key")


async def test_an_address_without_a_listener_is_reported() -> None:
    with pytest.raises(ServerUnavailable):
        await AsyncClient("ws://127.0.0.1:1").connect()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        (5, TypeError),
        (b"codex", TypeError),
        ("", ValueError),
        ([], ValueError),
        ("http://127.0.0.1:1", ValueError),
    ],
    ids=repr,
)
def test_an_invalid_server_argument_is_refused_by_the_constructor(
    where: JsonValue, error: type[Exception]
) -> None:
    with pytest.raises(error, match="server"):
        AsyncClient(where)


def test_a_misspelt_option_is_refused() -> None:
    options: JsonValue = {"modle": "m"}
    with pytest.raises(TypeError, match="'modle'"):
        AsyncClient(**options)


async def test_a_missing_folder_is_named() -> None:
    with pytest.raises(ServerUnavailable, match="no folder '/does/not/exist'"):
        await AsyncClient(["true"], cwd="/does/not/exist").connect()


@pytest.mark.parametrize("value", [5, None, b"hi", {"type": "text"}, [["nested"]]], ids=repr)
async def test_invalid_input_starts_no_turn(value: JsonValue) -> None:
    server = FakeAppServer()
    async with AsyncClient(server) as client:
        thread = await client.start_thread()
        with pytest.raises(TypeError, match="a turn takes text"):
            await thread.run(value)
    assert server.received("turn/start") == []


async def test_a_command_as_one_string_is_refused_with_a_hint(in_memory: Reach) -> None:
    async with in_memory("echo") as (client, log), client:
        for run in (client.exec_command, client.spawn_command):
            with pytest.raises(TypeError, match="such as \\['sh', '-c', 'ls -l'\\]"):
                await run("ls -l")
    assert log.calls("command/exec") == []


async def test_params_that_json_cannot_encode_fail_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncClient(FakeAppServer()) as client:
        with pytest.raises(TypeError):
            await client.write_config({"model": object()})
        assert (await client.list_models()).data == []
    gc.collect()  # a future with an unretrieved exception logs when collected
    assert caplog.text == ""


async def test_a_custom_transport_connects_to_a_server() -> None:
    server, dialled = FakeAppServer(), 0
    server.on("turn/start", fake.hangs_up(), fake.turn("Hello again"))

    async def dial(tasks: BackgroundTasks) -> Transport:
        nonlocal dialled
        dialled += 1
        ours, theirs = memory_pair()
        tasks.spawn(server.attach(theirs), "server side")
        return ours

    async with AsyncClient(Connector(dial, can_return=True)) as client:
        result = await (await client.start_thread()).run("hi")
    assert (result.agent_message, dialled) == ("Hello again", 2)


async def test_endless_output_of_a_program_is_not_copied_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(RequestTimeout):
        await AsyncClient(["yes"], request_timeout=0.3).connect()
    assert 0 < len(caplog.records) <= 10
