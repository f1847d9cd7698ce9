"""`exec_command`: its item, its output, what it refuses (upstream's own words)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.harness.commands import (
    FREE,
    LOGIN_SHELL,
    bench,
    commands,
    exited,
    streamed,
    together,
)
from tests.harness.items import untimed
from tests.harness.threads import EPILOGUE, outline, params_of
from treadle.protocol.base import JsonValue


async def test_a_command_is_an_item_from_its_start_to_its_end(home: Path) -> None:
    """Upstream: never + danger-full-access, command with exit 3."""
    async with bench(home, **FREE) as b:
        messages, output = await b.call("exec_command", {"cmd": "echo out; echo err >&2; exit 3"})

    (started,), (ended,) = commands(messages, "item/started"), commands(messages)
    process_id, took = started["processId"], ended["durationMs"]
    assert process_id.isdigit()
    assert took >= 0
    expected: JsonValue = {
        "type": "commandExecution",
        "id": "call-1",
        "pluginId": None,
        "scriptPath": None,
        "command": f"{LOGIN_SHELL} -lc 'echo out; echo err >&2; exit 3'",
        "cwd": str(b.stage.workspace),
        "processId": process_id,
        "source": "unifiedExecStartup",
        "status": "inProgress",
        "commandActions": [{"type": "unknown", "command": "echo out; echo err >&2; exit 3"}],
        "aggregatedOutput": None,
        "exitCode": None,
        "durationMs": None,
    }
    assert untimed(started) == expected
    assert untimed(ended) == {
        **expected,
        "status": "failed",
        "aggregatedOutput": "out\nerr\n",
        "exitCode": 3,
        "durationMs": took,
    }
    assert re.match(exited(3, 2, "out\nerr\n"), output)


async def test_deltas_add_up_to_the_output(home: Path) -> None:
    async with bench(home, **FREE) as b:
        messages, _ = await b.call("exec_command", {"cmd": "seq 1 30000", "login": False})

    (ended,) = commands(messages)
    assert (
        streamed(messages)
        == ended["aggregatedOutput"]
        == "".join(f"{i}\n" for i in range(1, 30001))
    )


async def test_a_character_that_arrives_in_two_pieces_is_published_as_one(home: Path) -> None:
    async with bench(home, **FREE) as b:
        script = r"printf 'caf\303'; sleep 0.1; printf '\251\n'"
        messages, output = await b.call("exec_command", {"cmd": script})

    deltas = [p["delta"] for p in params_of(messages, "item/commandExecution/outputDelta")]
    assert deltas == ["caf", "é\n"]
    assert output.endswith("Output:\ncafé\n")


async def test_without_a_terminal_stdin_is_empty(home: Path) -> None:
    async with bench(home, **FREE) as b:
        _, output = await b.call("exec_command", {"cmd": "cat"})

    assert re.match(exited(0, 0, ""), output)


@pytest.mark.parametrize(
    ("arguments", "argv0"),
    [
        ({"login": False}, f"{LOGIN_SHELL} -c"),
        ({"shell": "/bin/sh"}, "/bin/sh -lc"),
        ({"shell": "fish"}, "/bin/sh -lc"),
        ({"shell": "/elsewhere/bash", "login": False}, "bash -c"),
    ],
)
async def test_the_model_may_choose_among_the_shells_of_the_system(
    home: Path, arguments: JsonValue, argv0: str
) -> None:
    """Ours: a shell in another folder is not run, whatever its name."""
    async with bench(home, **FREE) as b:
        messages, output = await b.call("exec_command", {"cmd": "true", **arguments})

    (ended,) = commands(messages)
    assert ended["command"].removeprefix("/usr").removesuffix(" true").endswith(argv0)
    assert not ended["command"].startswith("/elsewhere")
    assert re.match(exited(0, 0, ""), output)


async def test_a_missing_folder_is_reported_to_the_model(home: Path) -> None:
    """Upstream's text."""
    async with bench(home, **FREE) as b:
        messages, output = await b.call("exec_command", {"cmd": "pwd", "workdir": "gone"})

    why = "Failed to create unified exec process: No such file or directory (os error 2)"
    (started,), (ended,) = commands(messages, "item/started"), commands(messages)
    assert (started["status"], started["processId"]) == ("inProgress", None)
    assert (ended["status"], ended["exitCode"], ended["aggregatedOutput"]) == ("failed", -1, why)
    assert ended["cwd"] == str(b.stage.workspace / "gone")
    rejected = f'exec_command failed: CreateProcess {{ message: "Rejected(\\"{why}\\")" }}'
    assert output == rejected


@pytest.mark.parametrize("sandbox", ["read-only", "danger-full-access"])
async def test_a_command_that_cannot_be_passed_to_a_process_is_reported_to_the_model(
    home: Path, sandbox: str
) -> None:
    async with bench(home, approvalPolicy="never", sandbox=sandbox) as b:
        messages, output = await b.call("exec_command", {"cmd": "echo a\0b"})

    assert len(commands(messages, "item/started")) == 1
    assert [item["status"] for item in commands(messages)] == ["failed"]
    assert "Failed to create unified exec process: embedded null byte" in output


@pytest.mark.parametrize("arguments", ["nonsense", {"foo": 1}, {"cmd": 7}, {"cmd": ["ls"]}])
async def test_invalid_arguments_are_rejected(home: Path, arguments: JsonValue) -> None:
    async with bench(home, **FREE) as b:
        messages, output = await b.call("exec_command", arguments)

    assert output.startswith("failed to parse function arguments: ")
    assert commands(messages) == []
    assert outline(messages)[-2:] == EPILOGUE


async def test_long_output_is_cut_in_the_middle(home: Path) -> None:
    """Upstream: head and tail of the budget each, and a line on what is missing."""
    async with bench(home, **FREE) as b:
        arguments = {"cmd": "seq 1 2000", "max_output_tokens": 50}
        messages, output = await b.call("exec_command", arguments)

    numbers = "".join(f"{i}\n" for i in range(1, 2001))
    cut = f"{numbers[:100]}…2174 tokens truncated…{numbers[-100:]}"
    warning = "Warning: truncated output (original token count: 2224)\nTotal output lines: 2000\n\n"
    assert re.match(exited(0, 2224, warning + cut), output)
    (ended,) = commands(messages)
    assert ended["aggregatedOutput"] == numbers


async def test_a_flood_of_output_is_bounded_and_the_turn_continues(home: Path) -> None:
    async with bench(home, **FREE) as b:
        script = "head -c 100000000 /dev/zero | tr '\\0' x; echo end"
        messages, output = await b.call("exec_command", {"cmd": script, "yield_time_ms": 30000})

    (ended,) = commands(messages)
    assert (ended["status"], ended["exitCode"]) == ("completed", 0)
    (path,) = (home / "outputs").glob("*/*.log")
    gap = f"\n... {100000004 - 2**20} bytes omitted; full output in {path} ...\n"
    kept = ended["aggregatedOutput"]
    assert kept == f"{'x' * 2**19}{gap}{'x' * (2**19 - 4)}end\n"
    assert len(output) < 50_000
    assert outline(messages)[-2:] == EPILOGUE


async def test_fifty_commands_at_once_lose_nothing(home: Path) -> None:
    async with bench(home, **FREE) as b:
        scripts = {
            f"call-{i}": f"for n in 1 2; do seq {i * 1000} {i * 1000 + 999}; done"
            for i in range(50)
        }
        wanted = [
            ("exec_command", {"cmd": script, "login": False, "yield_time_ms": 30000}, call_id)
            for call_id, script in scripts.items()
        ]
        b.stage.model.plays(together(*wanted))
        messages = await b.client.run(b.thread_id)

    printed = {item["id"]: item["aggregatedOutput"] for item in commands(messages)}
    assert printed == {
        f"call-{i}": 2 * "".join(f"{n}\n" for n in range(i * 1000, i * 1000 + 1000))
        for i in range(50)
    }
    assert {call_id: streamed(messages, call_id) for call_id in scripts} == printed
    for call_id, text in printed.items():
        assert b.output(call_id).endswith(f"Output:\n{text}")


async def test_a_command_that_leaves_a_daemon_behind_is_over_when_it_says_so(home: Path) -> None:
    async with bench(home, **FREE) as b:
        script = "sleep 1000 & echo $!"
        async with asyncio.timeout(20):
            messages, output = await b.call("exec_command", {"cmd": script, "yield_time_ms": 30000})

        (ended,) = commands(messages)
        assert (ended["status"], ended["exitCode"]) == ("completed", 0)
        assert "Process exited with code 0" in output


async def test_commands_see_only_the_allowed_variables(home: Path) -> None:
    policy = """
        shell_environment_policy = {inherit = "core", set = {ADDED = "yes"}, exclude = ["USER"]}
    """
    async with bench(home, policy, **FREE) as b:
        _, output = await b.call("exec_command", {"cmd": "env", "login": False})

    names = {line.partition("=")[0] for line in output.partition("Output:\n")[2].splitlines()}
    assert {"ADDED", "CODEX_CI", "CODEX_THREAD_ID", "GIT_PAGER", "NO_COLOR", "PATH"} <= names
    assert not {"TREADLE_HOME", "USER"} & names


async def test_a_patch_in_a_shell_command_is_applied_as_a_patch(home: Path) -> None:
    """Upstream: apply_patch is always taken out of a shell command."""
    async with bench(home, **FREE) as b:
        patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
        messages, _ = await b.call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF\n"})

    assert (b.stage.workspace / "new.txt").read_text() == "hello\n"
    assert commands(messages) == []
    assert "item/completed fileChange" in outline(messages)
