"""`shell` and `shell_command`, offered without unified exec (upstream's own words)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.commands import LOGIN_SHELL, Bench, bench, commands, streamed, wait_until_gone
from tests.harness.threads import outline
from treadle.protocol.base import JsonValue

CLASSIC = "[features]\nunified_exec = false\n"
KNOWN = {"model": "gpt-5.5"}


def offered(b: Bench) -> set[str]:
    names = {tool.get("name") for tool in b.stage.model.requests[-1].body["tools"]}
    return names & {"exec_command", "write_stdin", "shell", "shell_command"}


@pytest.mark.parametrize(
    ("more", "params", "tools"),
    [
        ("", {}, {"exec_command", "write_stdin"}),
        (CLASSIC, {}, {"shell"}),
        (CLASSIC, KNOWN, {"shell_command"}),
    ],
)
async def test_the_tools_depend_on_the_feature_and_the_model(
    home: Path, more: str, params: JsonValue, tools: set[str]
) -> None:
    async with bench(home, more, **params) as b:
        await b.client.run(b.thread_id)
        assert offered(b) == tools


@pytest.mark.parametrize("more", ["", CLASSIC])
@pytest.mark.parametrize("params", [{}, KNOWN])
async def test_the_older_tools_work_where_they_are_not_offered(
    home: Path, more: str, params: JsonValue
) -> None:
    """Upstream 0.118: a model may go on as it did in an older history."""
    async with bench(home, more, **params, sandbox="danger-full-access") as b:
        _, first = await b.call("shell", {"command": ["echo", "one"]}, "call-1")
        _, second = await b.call("shell_command", {"command": "echo two"}, "call-2")

    assert first.startswith('{"output":"one\\n"')
    assert second.endswith("Output:\ntwo\n")


async def test_a_clients_tool_may_have_the_name_of_one_that_is_not_offered(home: Path) -> None:
    tool = {"name": "shell", "description": "d", "inputSchema": {"type": "object"}}
    async with bench(home, dynamicTools=[tool]) as b:
        turn_id = await b.start_call("shell", {})
        question = (await b.client.until("item/tool/call"))[-1]
        content = [{"type": "inputText", "text": "mine"}]
        result = {"contentItems": content, "success": True}
        await b.client.peer.send({"id": question["id"], "result": result})
        await b.client.end_of(turn_id)
        assert offered(b) == {"exec_command", "write_stdin", "shell"}
        assert b.output() == "mine"


async def test_shell_returns_json(home: Path) -> None:
    """Upstream: streamed output and exit 3."""
    async with bench(home, CLASSIC, sandbox="danger-full-access") as b:
        argv = ["bash", "-c", "echo one; echo two >&2; exit 3"]
        messages, output = await b.call("shell", {"command": argv})

    pattern = r'\{"output":"one\\ntwo\\n","metadata":\{"exit_code":3,"duration_seconds":\d\.\d\}\}'
    assert re.fullmatch(pattern, output)
    (started,), (ended,) = commands(messages, "item/started"), commands(messages)
    assert (started["source"], started["processId"]) == ("agent", None)
    assert started["command"] == "bash -c 'echo one; echo two >&2; exit 3'"
    assert (ended["source"], ended["processId"], ended["exitCode"]) == ("agent", None, 3)
    assert ended["status"] == "failed"
    assert streamed(messages) == ended["aggregatedOutput"] == "one\ntwo\n"


async def test_shell_command_returns_text(home: Path) -> None:
    """Upstream: shell_command, decision accept."""
    async with bench(home, CLASSIC, **KNOWN, sandbox="danger-full-access") as b:
        messages, output = await b.call("shell_command", {"command": "echo made", "login": False})

    assert re.fullmatch(r"Exit code: 0\nWall time: \S+ seconds\nOutput:\nmade\n", output)
    (ended,) = commands(messages)
    assert (ended["command"], ended["status"]) == (f"{LOGIN_SHELL} -c 'echo made'", "completed")


async def test_a_command_that_takes_too_long_is_killed(home: Path) -> None:
    """Upstream: shell: timeout."""
    async with bench(home, CLASSIC, sandbox="danger-full-access") as b:
        script = "sleep 1000 & echo $!; wait"
        wanted = {"command": ["bash", "-c", script], "timeout_ms": 300}
        messages, output = await b.call("shell", wanted)

        (ended,) = commands(messages)
        child = int(ended["aggregatedOutput"])
        assert (ended["status"], ended["exitCode"]) == ("failed", 124)
        start = r'\{"output":"command timed out after \d+ milliseconds\\n'
        metadata = r'"metadata":\{"exit_code":124,"duration_seconds":0\.\d\}\}'
        assert re.fullmatch(rf'{start}{child}\\n",{metadata}', output)
        wait_until_gone(child)


async def test_long_output_is_cut(home: Path) -> None:
    more = f"tool_output_token_limit = 50\n{CLASSIC}"
    async with bench(home, more, **KNOWN, sandbox="danger-full-access") as b:
        _, output = await b.call("shell_command", {"command": "seq 1 2000", "login": False})

    head, _, text = output.partition("Output:\n")
    numbers = "".join(f"{i}\n" for i in range(1, 2001))
    assert text == f"{numbers[:100]}…2174 tokens truncated…{numbers[-100:]}"
    assert head.endswith("Total output lines: 2000\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": []}, "command args are empty"),
        ({"command": ["/no/such"]}, "execution error: No such file or directory (os error 2)"),
    ],
)
async def test_an_invalid_command_is_reported_to_the_model(
    home: Path, arguments: JsonValue, words: str
) -> None:
    async with bench(home, CLASSIC, sandbox="danger-full-access") as b:
        _, output = await b.call("shell", arguments)

    assert output == words


async def test_a_declined_command_is_reported_to_the_model(home: Path) -> None:
    """Upstream: decision decline; once where upstream reports it twice."""
    async with bench(home, CLASSIC, approvalPolicy="untrusted", sandbox="danger-full-access") as b:
        turn_id = await b.start_call("shell", {"command": ["touch", "hello.txt"]})
        messages = await b.client.until("item/commandExecution/requestApproval")
        await b.client.peer.send({"id": messages[-1]["id"], "result": {"decision": "decline"}})
        messages = await b.client.end_of(turn_id)

    assert b.output() == "exec command rejected by user"
    assert [item["status"] for item in commands(messages)] == ["declined"]
    assert not (b.stage.workspace / "hello.txt").exists()
    assert outline(messages)[-1] == "turn/completed completed"
