"""A command that prints without end: bounded for clients, whole in a file, and nothing waits."""

from __future__ import annotations

import re
import stat
import tracemalloc
from pathlib import Path

import pytest

from tests.harness.commands import FREE, Bench, bench, commands, session_of, streamed
from tests.harness.threads import params_of
from treadle.engine.terminals.output_deltas import BURST_BYTES, TOTAL_BYTES
from treadle.engine.tools.output import OutputBuffer
from treadle.protocol.base import JsonValue
from treadle.server.client_commands.running import MAX_ANSWER

pytestmark = pytest.mark.timeout(60)

SIZE = 64_000_000
FLOOD = f"yes 0123456789012345678 | head -c {SIZE}; echo end"
WHOLE = SIZE + len("end\n")
NOTE = re.compile(r"\n\[\.\.\. ([0-9,]+) bytes omitted; full output in (\S+)\]\n")


def published(messages: list[JsonValue]) -> tuple[str, int, set[str]]:
    """Return what was published of `call-1`: the text, how many bytes were omitted, their files."""
    text = streamed(messages)
    omitted = sum(int(match[1].replace(",", "")) for match in NOTE.finditer(text))
    return NOTE.sub("", text), omitted, {match[2] for match in NOTE.finditer(text)}


def outputs(b: Bench) -> list[Path]:
    return sorted((b.stage.home / "outputs").glob("*/*.log"))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec_command", {"cmd": FLOOD, "yield_time_ms": 30_000}),
        ("shell_command", {"command": FLOOD, "timeout_ms": 30_000}),
    ],
)
async def test_deltas_are_bounded_and_the_notes_account_for_the_rest(
    home: Path, tool: str, arguments: JsonValue
) -> None:
    async with bench(home, **FREE) as b:
        if tool == "shell_command":
            b.stage.configure("[features]\nunified_exec = false\n")
        messages, output = await b.call(tool, arguments)
        (path,) = outputs(b)
        stored = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)

    text, omitted, files = published(messages)
    assert len(text) <= TOTAL_BYTES
    assert len(text) + omitted == WHOLE
    assert files == {str(path)}
    assert len(stored) == WHOLE
    assert stored.endswith(b"end\n")
    assert mode == 0o600
    assert str(path) in output
    (ended,) = commands(messages)
    assert f"bytes omitted; full output in {path} ..." in ended["aggregatedOutput"]
    assert ended["aggregatedOutput"].endswith("end\n")


async def test_shell_commands_of_the_user_are_bounded_too(home: Path) -> None:
    async with bench(home, **FREE) as b:
        await b.client.request("thread/shellCommand", {"threadId": b.thread_id, "command": FLOOD})
        messages = await b.client.until("turn/completed")
        (item,) = commands(messages)
        deltas = params_of(messages, "item/commandExecution/outputDelta")
        (path,) = outputs(b)

        assert sum(len(delta["delta"]) for delta in deltas) < TOTAL_BYTES + 10_000
        assert item["id"] in path.name
        assert path.stat().st_size == WHOLE


async def test_requests_are_answered_while_a_background_terminal_floods(home: Path) -> None:
    async with bench(home, '[sandbox.limits]\noutput_file = "8MiB"\n', **FREE) as b:
        _, output = await b.call("exec_command", {"cmd": "yes", "yield_time_ms": 250})
        number = session_of(output)
        for _ in range(20):
            answer = await b.client.request("command/exec", {"command": ["echo", "answered"]})
            assert answer["stdout"] == "answered\n"
        (path,) = outputs(b)
        await b.client.request(
            "thread/backgroundTerminals/terminate",
            {"threadId": b.thread_id, "processId": str(number)},
        )
        messages = await b.client.until("item/completed")

        assert sum(len(each["delta"]) for each in deltas_of(messages)) <= TOTAL_BYTES
        assert path.read_bytes()[:4] == b"y\ny\n"
        assert path.stat().st_size < 9 * 1024**2


def deltas_of(messages: list[JsonValue]) -> list[JsonValue]:
    return params_of(messages, "item/commandExecution/outputDelta")


async def test_output_that_fits_has_no_file_and_no_note(home: Path) -> None:
    async with bench(home, **FREE) as b:
        script = f"yes 0123456789012345678 | head -c {BURST_BYTES}"
        messages, _ = await b.call("exec_command", {"cmd": script, "yield_time_ms": 30_000})

        assert len(streamed(messages)) == BURST_BYTES
        assert outputs(b) == []


async def test_model_can_read_the_file_from_its_sandbox_and_not_change_it(home: Path) -> None:
    params: JsonValue = {"approvalPolicy": "never", "sandbox": "workspace-write"}
    async with bench(home, **params) as b:
        await b.call("exec_command", {"cmd": FLOOD, "yield_time_ms": 30_000})
        (path,) = outputs(b)
        messages, _ = await b.call("exec_command", {"cmd": f"tail -n 1 {path}"}, "call-2")
        denied, _ = await b.call("exec_command", {"cmd": f"echo more >> {path}"}, "call-3")
        folders = [path.parent.parent, path.parent]
        modes = [stat.S_IMODE(folder.stat().st_mode) for folder in folders]

        assert path.stat().st_size == WHOLE
    assert commands(messages)[-1]["aggregatedOutput"] == "end\n"
    assert commands(denied)[-1]["exitCode"] != 0
    assert modes == [0o700, 0o700]


@pytest.mark.parametrize("is_ephemeral", [False, True])
async def test_files_are_deleted_with_their_thread(home: Path, is_ephemeral: bool) -> None:
    async with bench(home, ephemeral=is_ephemeral, **FREE) as b:
        await b.call("exec_command", {"cmd": FLOOD, "yield_time_ms": 30_000})
        assert len(outputs(b)) == 1
        await b.client.request("thread/delete", {"threadId": b.thread_id})

        assert outputs(b) == []


async def test_name_that_the_model_chose_stays_in_the_folder(home: Path) -> None:
    async with bench(home, **FREE) as b:
        name = "../../../escaped/" + "x" * 300
        await b.call("exec_command", {"cmd": FLOOD, "yield_time_ms": 30_000}, name)
        (path,) = outputs(b)

    assert path.parent.name == b.thread_id
    assert len(path.name) < 100


async def test_full_disk_loses_the_file_and_nothing_else(home: Path) -> None:
    async with bench(home, '[sandbox.limits]\ndisk_reserve = "100%"\n', **FREE) as b:
        messages, _ = await b.call("exec_command", {"cmd": FLOOD, "yield_time_ms": 30_000})
        assert outputs(b) == []

    (ended,) = commands(messages)
    assert (ended["exitCode"], ended["status"]) == (0, "completed")
    assert "bytes omitted]" in streamed(messages)


async def test_answer_of_command_exec_is_bounded_without_a_cap(home: Path) -> None:
    async with bench(home, **FREE) as b:
        answer = await b.client.request(
            "command/exec",
            {
                "command": ["sh", "-c", FLOOD],
                "disableOutputCap": True,
                "sandboxPolicy": {"type": "dangerFullAccess"},
            },
        )

    assert answer["exitCode"] == 0
    head, _, note = answer["stdout"].rpartition("\n[... ")
    assert len(head) == MAX_ANSWER
    assert note == f"{WHOLE - len(head):,} bytes omitted]\n"


def test_many_tiny_writes_do_not_take_many_times_their_size() -> None:
    """An object per byte would take forty times the memory."""
    buffer = OutputBuffer(64_000)
    tracemalloc.start()
    try:
        for _ in range(60_000):
            buffer.add(b"x")
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert buffer.kept() == b"x" * 60_000
    assert used < 200_000
