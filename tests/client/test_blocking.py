"""The client for programs without asyncio, against a real server process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.harness.processes import environment
from tests.harness.scripted import scripted_server, write_script
from treadle import Client, RequestRefused, ServerExited, TurnFailed, TurnInterrupted
from treadle.client.events import AgentMessageDelta, ThreadStarted
from treadle.protocol.item import DynamicToolCallThreadItem, UserMessageThreadItem
from treadle.protocol.turn import Turn
from treadle.testing import says, waits
from treadle.testing.plugin import ProcessFactory


def client_of(home: Path, *responses: object) -> Client:
    script = write_script(home.parent / "script.json", list(responses))
    return Client(env=environment(home, TREADLE_SCRIPT=str(script)), cwd=home)


def streamed(text: str) -> list[object]:
    return [{"type": "says", "text": text, "deltas": list(text)}]


def test_a_turn_is_run_and_read_back(home: Path) -> None:
    with client_of(home, ["Hello"]) as client:
        thread = client.start_thread()
        result = thread.run("hi")
        assert (result.agent_message, result.turn.status) == ("Hello", "completed")
        assert [item.id for item in thread.read().turns[0].items] == [
            item.id for item in result.items
        ]
        assert [stored.preview for stored in client.iter_threads()] == ["hi"]
        thread.set_name("greeting")
        assert client.read_thread(thread.id).name == "greeting"


def test_a_stream_is_an_iterator(home: Path) -> None:
    with client_of(home, streamed("abc"), streamed("def")) as client:
        thread = client.start_thread()
        events = list(thread.stream("hi"))
        words = "".join(event.delta for event in events if isinstance(event, AgentMessageDelta))
        assert words == "abc"
        assert "".join(thread.stream("again").text()) == "def"


def test_a_stream_that_was_left_continues_where_it_was(home: Path) -> None:
    with client_of(home, streamed("abc")) as client:
        turn = client.start_thread().start_turn("hi")
        words = [next(turn.text())]
        words += turn.text()
        assert words == ["a", "b", "c"]
        assert list(turn) == []


def test_events_and_listeners_run_beside_the_program(home: Path) -> None:
    turns: list[Turn] = []
    ended = threading.Event()
    with client_of(home, ["Hello"]) as client:

        @client.on("turn:completed")
        def hear(turn: Turn) -> None:
            turns.append(turn)
            ended.set()

        events = client.events()
        client.thread(client.start_thread().id).run("hi")
        assert ended.wait(10)
        assert isinstance(next(event for event in events), ThreadStarted)
    assert [turn.status for turn in turns] == ["completed"]


def test_errors_are_the_same_as_of_the_async_client(home: Path) -> None:
    with client_of(home, [{"type": "fails", "message": "no model today"}]) as client:
        thread = client.start_thread()
        with pytest.raises(TurnFailed):
            thread.run("hi")
        with pytest.raises(RequestRefused) as caught:
            client.read_thread("00000000-0000-7000-8000-000000000000")
        assert caught.value.kind == "threadNotFound"
    with pytest.raises(ServerExited), Client(["/bin/sh", "-c", "exit 4"]):
        pass


def test_a_client_can_be_used_only_while_it_is_connected(home: Path) -> None:
    client = client_of(home)
    with pytest.raises(RuntimeError, match="not connected"):
        client.start_thread()
    with client:
        assert client.server.platform_family == "unix"


def test_no_thread_is_left_when_it_is_closed(home: Path) -> None:
    before = set(threading.enumerate())
    with client_of(home, ["Hello"]) as client:
        item = client.start_thread().run("hi").items[0]
    assert isinstance(item, UserMessageThreadItem)
    # Idle threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_handlers_and_tools_may_call_the_client(home: Path) -> None:
    call = {"type": "calls", "tool": "count_models", "arguments": {}}
    with client_of(home, [call], ["Many."]) as client:

        @client.tool
        def count_models() -> int:
            """Count the models."""
            return len(client.list_models().data)

        result = client.start_thread().run("How many models are there?")
        assert result.agent_message == "Many."
        assert isinstance(result.items[1], DynamicToolCallThreadItem)
        assert result.items[1].success


def test_a_listener_that_waits_for_its_own_client_gets_an_error(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(home, ["Hello"]) as client:
        client.on("turn:started", lambda _turn: client.list_models())
        client.start_thread().run("hi")
    assert "cannot wait for its own client" in caplog.text


def test_a_server_in_this_process_runs_on_the_clients_loop(home: Path) -> None:
    server = scripted_server(home, ["Hello"])
    with Client.in_process(server) as client:
        assert client.start_thread().run("hi").agent_message == "Hello"
        client.portal.run(server.close())


WAITING = """
import sys
from treadle import Client

with Client(sys.argv[1]) as client:
    client.on("item:agentMessage:delta", lambda _delta: print("spoken", flush=True))
    thread = client.start_thread()
    print(thread.id, flush=True)
    {wait}
"""


@pytest.mark.parametrize("wait", ['thread.run("hi")', 'list(thread.stream("hi"))'])
def test_ctrl_c_interrupts_the_turn(treadle_process: ProcessFactory, wait: str) -> None:
    """On a server that keeps running, as a shared one does."""
    server = treadle_process([[says("On and on", deltas=["On "]), waits(60)]])
    code = WAITING.format(wait=wait)
    with subprocess.Popen(
        [sys.executable, "-c", code, server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        thread_id, spoken = program.stdout.readline().strip(), program.stdout.readline()
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate()
    assert spoken == "spoken\n"
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    with Client(server.url) as client:
        turn = client.resume_thread(thread_id).running()
        if turn is not None:
            with pytest.raises(TurnInterrupted):
                turn.result()
        (stored,) = client.read_thread(thread_id, include_turns=True).turns
    assert stored.status == "interrupted"
