"""`thread/shellCommand`: commands of the user's own, alone and beside a turn."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.harness.commands import LOGIN_SHELL, bench, commands, streamed, wait_until_gone
from tests.harness.items import untimed
from tests.harness.model_server import says
from tests.harness.threads import EPILOGUE, outline
from treadle.protocol.base import JsonValue

READ_ONLY: JsonValue = {"approvalPolicy": "never", "sandbox": "read-only"}


def words(command: str, code: int, output: str) -> str:
    text = re.escape(f"<user_shell_command>\n<command>\n{command}\n</command>\n<result>\n")
    text += rf"Exit code: {code}\nDuration: \d+\.\d{{4}} seconds\nOutput:\n"
    return text + re.escape(f"{output}\n</result>\n</user_shell_command>")


async def test_a_user_command_is_a_separate_turn(home: Path) -> None:
    """Upstream: thread/shellCommand, idle thread."""
    async with bench(home, **READ_ONLY) as b:
        script = "echo one > written; echo two >&2; exit 4"
        params = {"threadId": b.thread_id, "command": f" {script} "}
        assert await b.client.request("thread/shellCommand", params) == {}
        messages = await b.client.until("turn/completed")

        assert outline(messages) == [
            "thread/status/changed active",
            "turn/started",
            "item/started commandExecution",
            "item/commandExecution/outputDelta",
            "item/completed commandExecution",
            *EPILOGUE,
        ]
        (started,), (ended,) = commands(messages, "item/started"), commands(messages)
        expected: JsonValue = {
            "type": "commandExecution",
            "id": started["id"],
            "pluginId": None,
            "scriptPath": None,
            "command": f"{LOGIN_SHELL} -lc '{script}'",
            "cwd": str(b.stage.workspace),
            "processId": None,
            "source": "userShell",
            "status": "inProgress",
            "commandActions": [{"type": "unknown", "command": script}],
            "aggregatedOutput": None,
            "exitCode": None,
            "durationMs": None,
        }
        assert untimed(started) == expected
        assert untimed(ended) == {
            **expected,
            "status": "failed",
            "aggregatedOutput": "two\n",
            "exitCode": 4,
            "durationMs": ended["durationMs"],
        }
        # Outside the sandbox, unlike what the model runs.
        assert (b.stage.workspace / "written").read_text() == "one\n"

        await b.client.run(b.thread_id, "after")
        (_, heard), (_, after) = b.stage.model.requests[-1].conversation()
        assert re.fullmatch(words(script, 4, "two\n"), heard)
        assert after == "after"


async def test_a_user_command_during_a_turn_joins_it_and_causes_a_model_request(home: Path) -> None:
    """Upstream: thread/shellCommand during an active turn."""
    async with bench(home, **READ_ONLY) as b:
        gate = asyncio.Event()
        b.stage.model.plays(says("late", "m1", ["la"], gate), says("seen", "m2"))
        turn_id = await b.client.start_turn(b.thread_id)
        await b.client.until("item/agentMessage/delta")
        params = {"threadId": b.thread_id, "command": "echo aux"}
        await b.client.request("thread/shellCommand", params)
        messages = await b.client.until("item/completed")
        (ended,) = commands(messages)
        assert (ended["aggregatedOutput"], messages[-1]["params"]["turnId"]) == ("aux\n", turn_id)
        gate.set()
        messages = await b.client.end_of(turn_id)

    conversation = [text for _, text in b.stage.model.requests[-1].conversation()]
    assert conversation[:2] == ["hi", "late"]
    assert re.fullmatch(words("echo aux", 0, "aux\n"), conversation[2])
    assert outline(messages)[-2:] == EPILOGUE


async def test_two_commands_share_a_turn_that_ends_with_the_last(home: Path) -> None:
    async with bench(home, **READ_ONLY) as b:
        fifo = b.stage.workspace / "fifo"
        where = {"threadId": b.thread_id}
        script = "mkfifo fifo; echo made; read x < fifo; echo $x"
        await b.client.request("thread/shellCommand", {**where, "command": script})
        first = await b.client.until("item/commandExecution/outputDelta")
        await b.client.request("thread/shellCommand", {**where, "command": "echo second"})
        second = await b.client.until("item/completed")
        assert streamed(second, second[-1]["params"]["item"]["id"]) == "second\n"
        await asyncio.to_thread(fifo.write_text, "go\n")
        rest = await b.client.until("turn/completed")

    assert len([line for line in outline([*first, *second, *rest]) if "turn/" in line]) == 2
    assert [item["aggregatedOutput"] for item in commands(rest)] == ["made\ngo\n"]


async def test_an_interrupt_stops_the_command(home: Path) -> None:
    async with bench(home, **READ_ONLY) as b:
        script = "sleep 1000 & echo $!; wait"
        params = {"threadId": b.thread_id, "command": script}
        await b.client.request("thread/shellCommand", params)
        messages = await b.client.until("item/commandExecution/outputDelta")
        turn_id, child = messages[-1]["params"]["turnId"], int(messages[-1]["params"]["delta"])
        await b.client.request("turn/interrupt", {"threadId": b.thread_id, "turnId": turn_id})
        messages = await b.client.end_of(turn_id)

        (ended,) = commands(messages)
        assert (ended["status"], ended["exitCode"]) == ("failed", -1)
        assert outline(messages)[-1] == "turn/completed interrupted"
        wait_until_gone(child)
        await b.client.run(b.thread_id, "after")
        heard = [text for _, text in b.stage.model.requests[-1].conversation()]
        assert re.fullmatch(words(script, -1, f"{child}\n"), heard[0])
        assert heard[1].startswith("<turn_aborted>")


@pytest.mark.parametrize("limit", [0, 300])
async def test_a_command_ends_when_its_time_is_up(home: Path, limit: int) -> None:
    async with bench(home, **READ_ONLY) as b:
        params = {"threadId": b.thread_id, "command": "sleep 1000", "timeoutMs": limit}
        await b.client.request("thread/shellCommand", params)
        messages = await b.client.until("turn/completed")

    (ended,) = commands(messages)
    assert (ended["status"], ended["exitCode"]) == ("failed", 124)


async def test_input_given_meanwhile_goes_to_the_model_afterwards(home: Path) -> None:
    async with bench(home, **READ_ONLY) as b:
        fifo = b.stage.workspace / "fifo"
        script = "mkfifo fifo; echo made; read x < fifo"
        where = {"threadId": b.thread_id}
        await b.client.request("thread/shellCommand", {**where, "command": script})
        messages = await b.client.until("item/commandExecution/outputDelta")
        turn_id = messages[-1]["params"]["turnId"]
        assert await b.client.start_turn(b.thread_id, "and then") == turn_id
        await asyncio.to_thread(fifo.write_text, "go\n")
        messages = await b.client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE
    heard = [text for _, text in b.stage.model.requests[-1].conversation()]
    assert re.fullmatch(words(script, 0, "made\n"), heard[0])
    assert heard[1:] == ["and then"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [("a\0b", "embedded null byte"), ("x" * 200_000, "Argument list too long (os error 7)")],
    ids=["null", "long"],
)
async def test_a_command_that_cannot_be_passed_to_a_process_ends_with_the_reason(
    home: Path, script: str, reason: str
) -> None:
    async with bench(home, **READ_ONLY) as b:
        await b.client.request("thread/shellCommand", {"threadId": b.thread_id, "command": script})
        messages = await b.client.until("turn/completed")

    [item] = commands(messages)
    assert (item["status"], item["exitCode"]) == ("failed", -1)
    assert item["aggregatedOutput"] == f"execution error: {reason}"


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"command": "   "}, -32600, "command must not be empty"),
        (
            {"command": "true", "timeoutMs": -4},
            -32602,
            "thread/shellCommand timeoutMs must be non-negative, got -4",
        ),
    ],
)
async def test_invalid_commands_are_rejected(
    home: Path, params: JsonValue, code: int, message: str
) -> None:
    async with bench(home, **READ_ONLY) as b:
        asked = {"threadId": b.thread_id, **params}
        refused = await b.client.refusal("thread/shellCommand", asked)

    assert (refused.code, refused.message) == (code, message)


async def test_a_background_process_ends_with_its_thread_however_many_commands_follow(
    home: Path,
) -> None:
    """It once lived on after 64 more commands, until the end of the server."""
    async with bench(home, **READ_ONLY) as b:
        for script in ("setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid", *["true"] * 65):
            params = {"threadId": b.thread_id, "command": script}
            await b.client.request("thread/shellCommand", params)
            await b.client.until("turn/completed")
        pid = int((b.stage.workspace / "pid").read_text())
        os.kill(pid, 0)  # it runs

        await b.client.request("thread/delete", {"threadId": b.thread_id})
        await asyncio.to_thread(wait_until_gone, pid)


@pytest.mark.parametrize("decision", ["forbidden", "prompt", "prompt-user"])
async def test_rules_do_not_apply_to_commands_of_the_user(home: Path, decision: str) -> None:
    """Upstream 0.169.0: neither the user's rules nor an administrator's; a person sends them."""
    (home / "rules").mkdir()
    own = decision.removesuffix("-user")  # only an administrator demands a person
    rule = f'prefix_rule(pattern=["touch", "made"], decision="{own}")\n'
    (home / "rules" / "default.rules").write_text(rule)
    pattern = '[{ token = "touch" }, { token = "other" }]'
    required = f'[[rules.prefix_rules]]\npattern = {pattern}\ndecision = "{decision}"\n'
    async with bench(home, **READ_ONLY) as b:
        b.stage.require(required)
        for name in ("made", "other"):
            params = {"threadId": b.thread_id, "command": f"touch {name}"}
            await b.client.request("thread/shellCommand", params)
            (ended,) = commands(await b.client.until("turn/completed"))
            assert (ended["status"], ended["exitCode"]) == ("completed", 0)
            assert (b.stage.workspace / name).exists()
