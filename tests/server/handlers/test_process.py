"""`process/spawn` and its related methods; the texts are the reference's."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.commands import wait_until_gone
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, params_of
from tests.server.serving import configuration, refusal, serving
from treadle.protocol.base import JsonValue


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    async with playing(home, []) as server, client_of(server) as client:
        yield client


def process(*command: str, handle: str = "p", **options: JsonValue) -> JsonValue:
    return {"command": list(command), "cwd": "/", "processHandle": handle, **options}


def shell(script: str, **options: JsonValue) -> JsonValue:
    return process("sh", "-c", script, **options)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def exited(code: int, stdout: str = "", stderr: str = "", **more: JsonValue) -> JsonValue:
    return {
        "processHandle": "p",
        "exitCode": code,
        "stdout": stdout,
        "stdoutCapReached": False,
        "stderr": stderr,
        "stderrCapReached": False,
        **more,
    }


async def end_of(client: Client) -> tuple[list[JsonValue], JsonValue]:
    """Return the deltas until a process has ended, and the report of its end."""
    messages = await client.until("process/exited")
    return params_of(messages, "process/outputDelta"), messages[-1]["params"]


async def run(client: Client, params: JsonValue) -> tuple[list[JsonValue], JsonValue]:
    assert await client.request("process/spawn", params) == {}
    return await end_of(client)


def text_of(deltas: list[JsonValue], stream: str = "stdout") -> str:
    parts = [base64.b64decode(each["deltaBase64"]) for each in deltas if each["stream"] == stream]
    return b"".join(parts).decode()


async def test_the_exit_follows_with_both_streams(client: Client) -> None:
    assert await run(client, shell("echo out; echo err >&2; exit 3")) == (
        [],
        exited(3, "out\n", "err\n"),
    )


async def test_streamed_output_is_not_repeated_at_the_end(client: Client) -> None:
    deltas, end = await run(client, shell("echo out; echo err >&2", streamStdoutStderr=True))
    assert (text_of(deltas), text_of(deltas, "stderr")) == ("out\n", "err\n")
    assert end == exited(0)


async def test_a_terminal_is_resized_and_written_to(client: Client) -> None:
    script = "stty size; read word; echo got $word; stty size"
    params = shell(script, tty=True, size={"rows": 40, "cols": 120})
    await client.request("process/spawn", params)
    first = (await client.until("process/outputDelta"))[-1]
    size = {"processHandle": "p", "size": {"rows": 48, "cols": 160}}
    assert await client.request("process/resizePty", size) == {}
    line = {"processHandle": "p", "deltaBase64": b64("hey\n")}
    assert await client.request("process/writeStdin", line) == {}
    deltas, end = await end_of(client)
    assert text_of([first["params"], *deltas]) == "40 120\r\nhey\r\ngot hey\r\n48 160\r\n"
    assert end == exited(0)


async def test_input_is_written_and_closed(client: Client) -> None:
    await client.request("process/spawn", process("cat", streamStdin=True))
    written = {"processHandle": "p", "deltaBase64": b64("hey"), "closeStdin": True}
    assert await client.request("process/writeStdin", written) == {}
    assert await end_of(client) == ([], exited(0, "hey"))


async def test_a_killed_process_and_its_children_end(client: Client) -> None:
    await client.request(
        "process/spawn", shell("sleep 600 & echo $!; wait", streamStdoutStderr=True)
    )
    started = (await client.until("process/outputDelta"))[-1]
    child = int(text_of([started["params"]]))
    assert await client.request("process/kill", {"processHandle": "p"}) == {}
    assert await end_of(client) == ([], exited(137))
    await asyncio.to_thread(wait_until_gone, child)


@pytest.mark.parametrize(
    ("params", "end"),
    [
        (process("sleep", "600", timeoutMs=1), exited(124)),
        (process("true", timeoutMs=None), exited(0)),
        (shell("kill -TERM $$"), exited(143)),
        (
            shell("echo 123456789; echo abcdefgh >&2", outputBytesCap=4),
            exited(0, "1234", "abcd", stdoutCapReached=True, stderrCapReached=True),
        ),
        (shell("echo 123456789", outputBytesCap=0), exited(0, stdoutCapReached=True)),
        (
            shell("echo $TREADLE_X-${HOME-unset}", env={"TREADLE_X": "x", "HOME": None}),
            exited(0, "x-unset\n"),
        ),
        (
            shell("head -c 1048577 /dev/zero | tr '\\0' x"),
            exited(0, "x" * 1048576, stdoutCapReached=True),
        ),
        (
            shell("head -c 1048577 /dev/zero | tr '\\0' x", outputBytesCap=None),
            exited(0, "x" * 1048577),
        ),
    ],
    ids=["timeout", "no timeout", "signal", "cap", "no output", "env", "default cap", "no cap"],
)
async def test_limits_and_variables_are_as_requested(
    client: Client, params: JsonValue, end: JsonValue
) -> None:
    assert await run(client, params) == ([], end)


async def test_a_capped_stream_says_so_in_its_last_delta(client: Client) -> None:
    params = shell("echo 123456789; echo more", streamStdoutStderr=True, outputBytesCap=4)
    deltas, end = await run(client, params)
    assert (text_of(deltas), deltas[-1]["capReached"]) == ("1234", True)
    assert end == exited(0, stdoutCapReached=True)


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        (process(), -32600, "command must not be empty"),
        (process("true", handle=""), -32600, "processHandle must not be empty"),
        (process("true", cwd="rel"), -32600, "path must be absolute: 'rel'"),
        (
            process("/no/such/program"),
            -32603,
            "failed to spawn process: No such file or directory (os error 2)",
        ),
        (
            process("true", cwd="/no/such/folder"),
            -32603,
            "failed to spawn process: No such file or directory (os error 2)",
        ),
        (process("true", "\0"), -32603, "failed to spawn process: embedded null byte"),
        (
            process("true", timeoutMs=-5),
            -32602,
            "process/spawn timeoutMs must be non-negative, got -5",
        ),
        (
            process("true", size={"rows": 1, "cols": 1}),
            -32602,
            "process/spawn size requires tty: true",
        ),
        (
            process("true", tty=True, size={"rows": 0, "cols": 1}),
            -32602,
            "process size rows and cols must be greater than 0",
        ),
    ],
)
async def test_an_invalid_start_is_refused_and_frees_the_handle(
    client: Client, params: JsonValue, code: int, message: str
) -> None:
    error = await client.refusal("process/spawn", params)
    assert (error.code, error.message) == (code, message)
    assert await run(client, process("true")) == ([], exited(0))


@pytest.mark.parametrize(
    ("method", "params", "code", "message"),
    [
        ("process/spawn", process("true"), -32600, 'duplicate active process handle: "p"'),
        (
            "process/writeStdin",
            {"processHandle": "p", "deltaBase64": ""},
            -32600,
            "stdin streaming is not enabled for this process",
        ),
        (
            "process/writeStdin",
            {"processHandle": "p"},
            -32602,
            "process/writeStdin requires deltaBase64 or closeStdin",
        ),
        (
            "process/resizePty",
            {"processHandle": "p", "size": {"rows": 1, "cols": 1}},
            -32600,
            "failed to resize PTY: process is not attached to a PTY",
        ),
        (
            "process/resizePty",
            {"processHandle": "p", "size": {"rows": 1, "cols": 0}},
            -32602,
            "process size rows and cols must be greater than 0",
        ),
        *(
            (
                method,
                {"processHandle": "x", **more},
                -32600,
                'no active process for process handle "x"',
            )
            for method, more in (
                ("process/kill", {}),
                ("process/writeStdin", {"closeStdin": True}),
                ("process/resizePty", {"size": {"rows": 1, "cols": 1}}),
            )
        ),
    ],
)
async def test_a_refused_request_leaves_the_process_running(
    client: Client, method: str, params: JsonValue, code: int, message: str
) -> None:
    await client.request("process/spawn", process("sleep", "600"))
    error = await client.refusal(method, params)
    assert (error.code, error.message) == (code, message)
    await client.request("process/kill", {"processHandle": "p"})
    assert await end_of(client) == ([], exited(137))


async def test_invalid_base64_writes_nothing(client: Client) -> None:
    await client.request("process/spawn", process("cat", streamStdin=True))
    error = await client.refusal("process/writeStdin", {"processHandle": "p", "deltaBase64": "%"})
    assert error.code == -32602
    await client.request("process/writeStdin", {"processHandle": "p", "closeStdin": True})
    assert await end_of(client) == ([], exited(0))


async def test_a_process_ends_with_the_connection(home: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pids"
    os.mkfifo(pipe)
    async with playing(home, []) as server:
        async with client_of(server) as client:
            script = f"sleep 600 & echo $$ $! > {pipe}; wait"
            await client.request("process/spawn", shell(script, timeoutMs=None))
            with pipe.open() as pids:
                found = [int(each) for each in pids.read().split()]
        for pid in found:
            await asyncio.to_thread(wait_until_gone, pid)


async def test_a_client_has_a_limited_number_of_processes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.server.handlers.process.MAX_PROCESSES", 1)
    await client.request("process/spawn", process("sleep", "600"))
    error = await client.refusal("process/spawn", process("true", handle="q"))
    assert error.message == "a client may have 1 processes"


async def test_an_administrator_can_forbid_processes_outside_the_sandbox(home: Path) -> None:
    """Ours: the reference starts them regardless of its requirements."""
    text = 'allowed_sandbox_modes = ["read-only", "workspace-write"]\n'
    async with serving(configuration(home, requirements=text)) as peer:
        error = await refusal(peer, "process/spawn", process("true"))
    assert "sandbox_mode" in error["message"]
