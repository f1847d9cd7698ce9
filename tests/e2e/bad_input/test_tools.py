"""After any failure of a tool, the model or the client receives an error, and the thread works.

Every test runs against a server in its own process.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.harness.acting import WRITES, acting, is_there, only
from tests.harness.commands import commands
from tests.harness.mcp import item_of, stdio, text_of
from tests.harness.model_server import (
    Reply,
    calls,
    completed,
    created,
    done,
    model_server,
)
from tests.harness.processes import listening
from tests.harness.questions import answer, question
from tests.harness.scripted import over
from tests.harness.threads import EPILOGUE, configure, outline
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport
from treadle.transport.websocket.listener import connect_websocket

MEBIBYTE = 2**20
TOOL: JsonValue = {"name": "lookup", "description": "d", "inputSchema": {"type": "object"}}
BINARY = bytes(range(256))
INVALID = "dynamic tool response was invalid"
OUTSIDE = "/var/lib/treadle-must-not-exist"


TOOLS = """
    exec_command write_stdin apply_patch update_plan view_image
    spawn_agent send_input wait_agent resume_agent close_agent
    list_mcp_resources list_mcp_resource_templates read_mcp_resource mcp__mini__echo
""".split()


MALFORMED = {
    "cut": '{"cmd": ',
    "list": "[1, 2]",
    "text": '"x"',
    "more": "{}}",
    "no-json": "\\ud800",
    "surrogate": '{"cmd": "\\ud800"}',
    "deep": '{"a":' * 100_000,
}


async def test_malformed_arguments(home: Path) -> None:
    more = "mcp_optional_startup_grace_ms = 20000\n" + stdio()
    async with acting(home, more, **WRITES) as scene:
        for case, arguments in MALFORMED.items():
            scene.model.plays(all_of(arguments, case))
            messages = await scene.client.run(scene.thread_id)
            assert outline(messages)[-2:] == EPILOGUE
        outputs = scene.model.requests[-1].outputs()
        await scene.client.run(scene.thread_id, "and now?")

    prefix = "failed to parse function arguments: "
    expected = {f"{case} {tool}": prefix for case in MALFORMED for tool in TOOLS}
    assert {call: output[: len(prefix)] for call, output in outputs.items()} == expected


def all_of(arguments: str, case: str) -> Reply:
    """A response that calls every tool with the same arguments."""
    call: JsonValue = {"type": "function_call", "arguments": arguments}
    made = [done({**call, "call_id": f"{case} {tool}", "name": tool}) for tool in TOOLS]
    return Reply([created(case), *made, completed(case)])


async def test_a_binary_file_that_a_command_prints(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        (scene.work / "a.bin").write_bytes(BINARY)
        messages, output = await scene.play(calls("exec_command", {"cmd": "cat a.bin"}))
        await scene.goes_on()

    shown = BINARY.decode("utf-8", "replace")
    assert commands(messages)[0]["aggregatedOutput"] == shown
    assert output.endswith(f"Output:\n{shown}")


async def test_a_binary_file_that_is_not_an_image(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        (scene.work / "a.bin").write_bytes(BINARY)
        path = str(scene.work / "a.bin")
        _, output = await scene.play(calls("view_image", {"path": path}))
        await scene.goes_on()

    assert output == "unable to process image: invalid or unsupported image data"


async def test_a_command_that_writes_outside_the_writable_roots(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        messages, output = await scene.play(calls("exec_command", {"cmd": f"echo x > {OUTSIDE}"}))
        await scene.goes_on()

    (item,) = commands(messages)
    # The exit code depends on the shell of the user.
    assert item["status"] == "failed"
    assert item["exitCode"] in (1, 2)
    assert "Read-only file system" in output
    assert not is_there(OUTSIDE)


async def test_a_command_that_forks_and_daemonises(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        script = "(setsid sh -c 'echo $$ > pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &)"
        ready = "until [ -s pid ]; do :; done; echo up"
        messages, output = await scene.play(calls("exec_command", {"cmd": f"{script}; {ready}"}))
        await scene.goes_on()

    (item,) = commands(messages)
    assert (item["status"], item["exitCode"], item["aggregatedOutput"]) == ("completed", 0, "up\n")
    assert output.endswith("Output:\nup\n")


async def test_100_mb_of_output(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        many = "head -c 104857600 /dev/zero | tr '\\0' x; echo; echo the end"
        transport = scene.client.peer.transport
        assert isinstance(transport, SubprocessTransport)
        before = peak_memory(transport.pid)
        messages, output = await scene.play(
            calls("exec_command", {"cmd": many, "yield_time_ms": 30000})
        )
        after = peak_memory(transport.pid)
        await scene.goes_on()

    (item,) = commands(messages)
    assert (item["status"], item["exitCode"]) == ("completed", 0)
    assert item["aggregatedOutput"].endswith("the end\n")
    assert output.endswith("the end\n")
    assert len(item["aggregatedOutput"]) < 2 * MEBIBYTE
    assert len(output) < MEBIBYTE
    assert after - before < 100 * MEBIBYTE


def peak_memory(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


# -- results of tools


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("not json", "dynamic tool response was invalid"),
        ({"success": True}, "dynamic tool response was invalid"),
        ({"contentItems": "text", "success": True}, "dynamic tool response was invalid"),
        (
            {"contentItems": [{"type": "smell"}], "success": True},
            "dynamic tool response was invalid",
        ),
        (None, "dynamic tool response was invalid"),
        ({"contentItems": [], "success": True}, ""),
    ],
)
async def test_a_client_tool_with_an_invalid_answer(
    home: Path, result: JsonValue, text: str
) -> None:
    async with acting(home, dynamicTools=[TOOL]) as scene:
        scene.model.plays(calls("lookup", {}))
        turn_id = await scene.client.start_turn(scene.thread_id)
        await answer(scene.client, await question(scene.client, "item/tool/call"), result)
        messages, output = await scene.finish(turn_id)
        await scene.goes_on()

    assert output == text
    assert only(messages, "dynamicToolCall")["status"] == ("failed" if text else "completed")


FAILED = "dynamic tool request failed"
LATIN = b', "result": {"contentItems": [{"type": "inputText", "text": "\xff"}], "success": true}}'


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (b"}", FAILED),
        (b', "result": {', FAILED),
        (b', "result": {"contentItems": "\\ud800"}}', FAILED),
        (LATIN, "dynamic tool response was invalid"),
    ],
)
async def test_a_client_whose_answer_is_not_json(home: Path, rest: bytes, text: str) -> None:
    """The first is what JavaScript produces for an answer that is `undefined`."""
    async with acting(home, dynamicTools=[TOOL]) as scene:
        scene.model.plays(calls("lookup", {}))
        turn_id = await scene.client.start_turn(scene.thread_id)
        asked = await question(scene.client, "item/tool/call")
        await scene.client.peer.send_raw(b'{"id": %d' % asked["id"] + rest)
        messages, output = await scene.finish(turn_id)
        await scene.goes_on()

    assert output == text
    assert only(messages, "dynamicToolCall")["status"] == "failed"


async def test_an_mcp_tool_with_a_result_of_the_wrong_type(home: Path) -> None:
    more = "mcp_optional_startup_grace_ms = 20000\n" + stdio()
    results: list[JsonValue] = ["text", 5, [], {"content": "text"}, {"content": 5}, {"content": {}}]
    async with acting(home, more) as scene:
        for number, result in enumerate(results, 1):
            call = f"call-{number}"
            scene.model.plays(calls("mcp__mini__give", {"result": result}, call))
            messages = await scene.client.run(scene.thread_id)
            output = scene.model.requests[-1].outputs()[call]
            item = item_of(messages)
            assert item["status"] == "failed", result
            message = item["error"]["message"]
            assert "the answer to tools/call does not fit the protocol" in message, result
            assert "pydantic" not in message, result
            assert text_of(output) == message, result
        await scene.goes_on()


async def test_an_mcp_tool_with_a_result_that_is_not_json(home: Path) -> None:
    more = "mcp_optional_startup_grace_ms = 20000\n" + stdio(tool_timeout_sec=0.5)
    async with acting(home, more) as scene:
        messages, output = await scene.play(
            calls("mcp__mini__garble", {"line": "<html>oops</html>"})
        )
        await scene.goes_on()

    item = item_of(messages)
    assert item["status"] == "failed"
    assert text_of(output) == item["error"]["message"]
    assert item["error"]["message"].endswith(
        "timed out awaiting tools/call after 500ms; meanwhile the server wrote something "
        "that is not a protocol message"
    )


async def test_an_mcp_server_that_dies_during_a_call(home: Path) -> None:
    more = "mcp_optional_startup_grace_ms = 20000\n" + stdio()
    async with acting(home, more) as scene:
        messages, output = await scene.play(calls("mcp__mini__die", {}))
        item = item_of(messages)
        _, again = await scene.play(calls("mcp__mini__echo", {"text": "x"}))

    assert item["status"] == "failed"
    assert "the MCP server 'mini' ended before it answered: I am dying" in item["error"]["message"]
    assert text_of(output) == item["error"]["message"]
    assert text_of(again) == "echo: x"


# -- several answers


async def test_two_clients_that_answer_at_the_same_time(home: Path) -> None:
    work = home.parent / "work"
    work.mkdir()
    params = {"cwd": str(work), "approvalPolicy": "on-request", "sandbox": "read-only"}
    wish = {"cmd": "echo ran >> a", "sandbox_permissions": "require_escalated"}
    async with model_server() as model:
        configure(home, model)
        with listening(home, "--listen", "ws://127.0.0.1:0") as server:
            url = server.websocket_url()
            async with (
                asyncio.timeout(30),
                over(await connect_websocket(url)) as one,
                over(await connect_websocket(url)) as two,
            ):
                thread_id = await one.start(**params)
                await two.request("thread/resume", {"threadId": thread_id})
                for decisions in (("accept", "decline"), ("decline", "accept")) * 3:
                    model.plays(calls("exec_command", wish))
                    turn_id = await one.start_turn(thread_id)
                    method = "item/commandExecution/requestApproval"
                    asked = [await question(each, method) for each in (one, two)]
                    async with asyncio.TaskGroup() as tasks:
                        for client, its, decision in zip((one, two), asked, decisions, strict=True):
                            tasks.create_task(answer(client, its, {"decision": decision}))
                    heard = [await each.end_of(turn_id) for each in (one, two)]
                    check_one_answer(heard, work / "a")


def check_one_answer(heard: list[list[JsonValue]], trace: Path) -> None:
    """Assert that both clients received the same decision, and that it was carried out."""
    ran = trace.exists()
    for messages in heard:
        assert outline(messages).count("serverRequest/resolved") == 1
        assert outline(messages)[-2:] == EPILOGUE
        (item,) = commands(messages)
        assert item["status"] == ("completed" if ran else "declined")
    if ran:
        assert trace.read_text() == "ran\n"
        trace.unlink()
