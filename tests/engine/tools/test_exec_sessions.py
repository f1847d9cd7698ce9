"""Commands that outlive their call: sessions, `write_stdin`, background terminals, their end."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.harness.commands import (
    FREE,
    HEAD,
    TAIL,
    bench,
    commands,
    exited,
    session_of,
    streamed,
    together,
    wait_until_gone,
)
from tests.harness.model_server import calls as model_calls
from tests.harness.model_server import says as model_says
from tests.harness.scripted import client_of, playing
from tests.harness.threads import outline, params_of
from treadle.model.scripted.script import AnyStep, calls, waits_for
from treadle.protocol.base import JsonValue


async def test_input_to_a_session_is_published_and_answered(home: Path) -> None:
    """Upstream: exec_command that stays open + write_stdin."""
    async with bench(home, **FREE) as b:
        arguments = {"cmd": "read x; echo got $x; read y", "tty": True, "yield_time_ms": 1}
        messages, output = await b.call("exec_command", arguments)
        session = session_of(output)
        assert commands(messages) == []

        wanted = {"session_id": session, "chars": "hey\n", "yield_time_ms": 300}
        messages, output = await b.call("write_stdin", wanted, "call-2")
        assert streamed(messages) == "hey\r\ngot hey\r\n"
        (interaction,) = params_of(messages, "item/commandExecution/terminalInteraction")
        turn_id = messages[-1]["params"]["turn"]["id"]
        assert interaction == {
            "threadId": b.thread_id,
            "turnId": turn_id,
            "itemId": "call-1",
            "processId": str(session),
            "stdin": "hey\n",
        }
        state = f"Process running with session ID {session}"
        tail = TAIL.format(tokens=4, output="hey\r\ngot hey\r\n")
        assert re.match(HEAD + re.escape(state + tail), output)

        messages, output = await b.call("write_stdin", {**wanted, "chars": "bye\n"}, "call-3")
        assert re.match(exited(0, 2, "bye\r\n"), output)
        (ended,) = commands(messages)
        assert (ended["id"], ended["aggregatedOutput"], ended["exitCode"]) == (
            "call-1",
            "hey\r\ngot hey\r\nbye\r\n",
            0,
        )

        _, output = await b.call("write_stdin", wanted, "call-4")
        assert output == f"write_stdin failed: Unknown process id {session}"


@pytest.mark.parametrize("sandbox", ["danger-full-access", "read-only"])
async def test_a_session_without_a_terminal_accepts_only_an_interrupt(
    home: Path, sandbox: str
) -> None:
    """Upstream's words."""
    async with bench(home, approvalPolicy="never", sandbox=sandbox) as b:
        _, output = await b.call("exec_command", {"cmd": "exec sleep 60", "yield_time_ms": 1})
        session = session_of(output)

        _, output = await b.call("write_stdin", {"session_id": session, "chars": "x"}, "call-2")
        assert output == (
            "write_stdin failed: stdin is closed for this session; rerun exec_command with "
            "tty=true to keep stdin open"
        )
        wanted = {"session_id": session, "chars": "\x03", "yield_time_ms": 30000}
        messages, output = await b.call("write_stdin", wanted, "call-3")
        assert re.match(exited(130, 0, ""), output)
        assert [item["exitCode"] for item in commands(messages)] == [130]


async def test_unread_output_of_a_session_is_returned_once(home: Path) -> None:
    async with bench(home, **FREE) as b:
        script = "read a; echo one; read b; echo two"
        arguments = {"cmd": script, "tty": True, "yield_time_ms": 1}
        _, output = await b.call("exec_command", arguments)
        session = session_of(output)
        wanted = {"session_id": session, "chars": "\n\n", "yield_time_ms": 30000}
        _, output = await b.call("write_stdin", wanted, "call-2")

    assert output.count("one") == output.count("two") == 1
    assert "Process exited with code 0" in output


async def test_a_command_outlives_its_turn_and_is_still_published(home: Path) -> None:
    """Upstream: the item completes after turn/completed, under the turn that began it."""
    async with bench(home, **FREE) as b:
        fifo = b.stage.workspace / "fifo"
        arguments = {"cmd": "mkfifo fifo; read x < fifo; echo $x", "yield_time_ms": 250}
        messages, output = await b.call("exec_command", arguments)
        session, turn_id = session_of(output), messages[-1]["params"]["turn"]["id"]
        listed = await b.client.request(
            "thread/backgroundTerminals/list", {"threadId": b.thread_id}
        )
        (terminal,) = listed["data"]
        assert (terminal["processId"], terminal["itemId"]) == (str(session), "call-1")
        assert terminal["command"] == arguments["cmd"]

        await asyncio.to_thread(fifo.write_text, "late\n")
        messages = await b.client.until("item/completed")
        ended = messages[-1]["params"]
        assert (ended["turnId"], ended["item"]["aggregatedOutput"]) == (turn_id, "late\n")
        listed = await b.client.request(
            "thread/backgroundTerminals/list", {"threadId": b.thread_id}
        )
        assert listed == {"data": [], "nextCursor": None}

        thread = await b.client.read(b.thread_id)
        items = thread["turns"][0]["items"]
        assert [i["aggregatedOutput"] for i in items if i["type"] == "commandExecution"] == [
            "late\n"
        ]
        _, output = await b.call("write_stdin", {"session_id": session}, "call-2")
        assert re.match(exited(0, 2, "late\n"), output)


async def test_a_client_that_joins_later_sees_running_commands(home: Path) -> None:
    async with bench(home, **FREE) as b:
        arguments = {"cmd": "echo so far; exec sleep 60", "yield_time_ms": 1000}
        await b.call("exec_command", arguments)
        other = await b.stage.client()
        await other.request("thread/resume", {"threadId": b.thread_id})

        messages = await other.until("item/started")
        item = messages[-1]["params"]["item"]
        assert (item["id"], item["status"]) == ("call-1", "inProgress")
        assert item["aggregatedOutput"] == "so far\n"


async def test_terminals_are_ended_one_by_one_or_all_at_once(home: Path) -> None:
    async with bench(home, **FREE) as b:
        wanted: JsonValue = {"cmd": "exec sleep 60", "yield_time_ms": 250, "login": False}
        names = ("call-1", "call-2", "call-3")
        b.stage.model.plays(together(*(("exec_command", wanted, name) for name in names)))
        await b.client.run(b.thread_id)
        where = {"threadId": b.thread_id}
        listed = (await b.client.request("thread/backgroundTerminals/list", where))["data"]
        assert {terminal["itemId"] for terminal in listed} == set(names)
        page = await b.client.request("thread/backgroundTerminals/list", {**where, "limit": 2})
        assert (page["data"], page["nextCursor"]) == (listed[:2], "2")

        one = {**where, "processId": listed[0]["processId"]}
        method = "thread/backgroundTerminals/terminate"
        assert await b.client.request(method, one) == {"terminated": True}
        (ended,) = commands(await b.client.until("item/completed"))
        assert (ended["processId"], ended["exitCode"]) == (listed[0]["processId"], -1)
        assert ended["status"] == "failed"
        assert await b.client.request(method, {**where, "processId": "1"}) == {"terminated": False}

        assert await b.client.request("thread/backgroundTerminals/clean", where) == {}
        for _ in range(2):
            await b.client.until("item/completed")
        for terminal in listed:
            wait_until_gone(terminal["osPid"])


async def test_an_interrupt_kills_the_commands_of_the_turn_and_all_that_they_started(
    home: Path,
) -> None:
    """Ours: upstream leaves them running."""
    async with bench(home, **FREE) as b:
        script = "sleep 1000 & echo $!; wait"
        turn_id = await b.start_call("exec_command", {"cmd": script, "yield_time_ms": 30000})
        messages = await b.client.until("item/commandExecution/outputDelta")
        child = int(streamed(messages))
        await b.client.request("turn/interrupt", {"threadId": b.thread_id, "turnId": turn_id})
        messages = await b.client.end_of(turn_id)

        assert outline(messages) == [
            "item/completed commandExecution",
            "thread/status/changed idle",
            "turn/completed interrupted",
        ]
        (ended,) = commands(messages)
        assert (ended["status"], ended["exitCode"]) == ("failed", -1)
        assert ended["aggregatedOutput"] == f"{child}\n"
        wait_until_gone(child)
        await b.client.run(b.thread_id)
        assert b.output() == "aborted by user"


async def test_an_interrupt_leaves_what_earlier_turns_started(home: Path) -> None:
    async with bench(home, **FREE) as b:
        wanted = {"cmd": "exec sleep 60", "yield_time_ms": 250}
        await b.call("exec_command", wanted)
        turn_id = await b.start_call("exec_command", {"cmd": "echo; sleep 60"}, "call-2")
        await b.client.until("item/commandExecution/outputDelta")
        await b.client.request("turn/interrupt", {"threadId": b.thread_id, "turnId": turn_id})
        await b.client.end_of(turn_id)

        listed = await b.client.request(
            "thread/backgroundTerminals/list", {"threadId": b.thread_id}
        )
        assert [terminal["itemId"] for terminal in listed["data"]] == ["call-1"]


@pytest.mark.parametrize("sandbox", ["read-only", "danger-full-access"])
async def test_a_command_whose_call_has_returned_outlives_an_interrupt(
    home: Path, sandbox: str
) -> None:
    """Upstream: background terminals end with `thread/backgroundTerminals/clean` only."""
    async with bench(home, approvalPolicy="never", sandbox=sandbox) as b:
        where = {"threadId": b.thread_id}
        wanted = {"cmd": "echo up; exec sleep 1000", "yield_time_ms": 250, "login": False}
        answer = model_says("x", "msg-1", ["x"], asyncio.Event())
        b.stage.model.plays(model_calls("exec_command", wanted), answer)
        turn_id = await b.client.start_turn(b.thread_id)
        await b.client.until("item/agentMessage/delta")
        await b.client.request("turn/interrupt", {**where, "turnId": turn_id})
        messages = await b.client.end_of(turn_id)
        listed = await b.client.request("thread/backgroundTerminals/list", where)

        await b.client.request("thread/backgroundTerminals/clean", where)
        (ended,) = commands(await b.client.until("item/completed"))
        await asyncio.to_thread(wait_until_gone, listed["data"][0]["osPid"])
        stored = (await b.client.read(b.thread_id))["turns"][0]["items"]

    assert outline(messages)[-1] == "turn/completed interrupted"
    assert commands(messages) == []
    assert [terminal["itemId"] for terminal in listed["data"]] == ["call-1"]
    assert (ended["status"], ended["exitCode"], ended["aggregatedOutput"]) == ("failed", -1, "up\n")
    assert ended in stored


async def test_no_command_outlives_the_server(home: Path) -> None:
    async with bench(home, **FREE) as b:
        await b.call("exec_command", {"cmd": "sleep 1000; true", "yield_time_ms": 250})
        listed = await b.client.request(
            "thread/backgroundTerminals/list", {"threadId": b.thread_id}
        )
        await b.stage.restart()
        wait_until_gone(listed["data"][0]["osPid"])

        client = await b.stage.client()
        await client.request("thread/resume", {"threadId": b.thread_id})
        items = (await client.read(b.thread_id))["turns"][0]["items"]
        statuses = [i["status"] for i in items if i["type"] == "commandExecution"]
        assert statuses == ["failed"]


async def test_at_most_64_sessions_are_kept(home: Path) -> None:
    """Upstream: the one that was used longest ago has to go."""
    async with bench(home, **FREE) as b:
        wanted: JsonValue = {"cmd": "exec sleep 1000", "yield_time_ms": 250, "login": False}
        await b.call("exec_command", wanted, "first")
        several = [("exec_command", wanted, f"call-{n}") for n in range(64)]
        b.stage.model.plays(together(*several))
        messages = await b.client.run(b.thread_id)
        if not commands(messages):
            messages += await b.client.until("item/completed")

        assert [item["id"] for item in commands(messages)] == ["first"]
        listed = await b.client.request(
            "thread/backgroundTerminals/list", {"threadId": b.thread_id}
        )
        assert len(listed["data"]) == 64


async def test_commands_of_a_turn_end_when_the_turn_is_rolled_back(home: Path) -> None:
    async with bench(home, **FREE) as b:
        await b.client.run(b.thread_id)
        await b.call("exec_command", {"cmd": "exec sleep 1000", "yield_time_ms": 250})
        where = {"threadId": b.thread_id}
        listed = (await b.client.request("thread/backgroundTerminals/list", where))["data"]
        await b.client.request("thread/rollback", {**where, "numTurns": 1})
        await asyncio.to_thread(wait_until_gone, listed[0]["osPid"])

        assert len((await b.client.read(b.thread_id))["turns"]) == 1


async def test_processes_of_an_unsandboxed_command_end_with_the_interrupted_turn(
    home: Path, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    command = f"(setsid sleep 600 >/dev/null 2>&1 & echo $! > {pid_file}) ; true"
    gate = asyncio.Event()
    script: list[list[AnyStep]] = [
        [calls("exec_command", {"cmd": command, "login": False}, call_id="call-1")],
        [waits_for(gate)],
    ]
    async with playing(home, script) as server, client_of(server) as client:
        thread_id = await client.start(
            cwd=str(tmp_path), approvalPolicy="never", sandbox="danger-full-access"
        )
        turn_id = await client.start_turn(thread_id)
        await client.until("item/completed", lambda params: params["item"]["id"] == "call-1")
        left = int(pid_file.read_text())
        os.kill(left, 0)
        await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        await client.end_of(turn_id)
        wait_until_gone(left)


async def test_a_command_that_does_not_read_does_not_block_the_turn(home: Path) -> None:
    async with bench(home, **FREE) as b:
        slow = {"cmd": "stty raw; sleep 600", "tty": True, "yield_time_ms": 250}
        _, output = await b.call("exec_command", slow)
        typed = {"session_id": session_of(output), "chars": "x" * 200_000}
        messages, output = await b.call("write_stdin", typed, "call-2")

    assert output == (
        "write_stdin failed: the command does not read its input; only part of it was written"
    )
    assert outline(messages)[-1] == "turn/completed completed"
