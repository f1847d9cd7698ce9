"""`command/exec` and its related methods (upstream's own steps)."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.commands import wait_until_gone
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, params_of
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

FREE: JsonValue = {"sandboxPolicy": {"type": "dangerFullAccess"}}


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[tuple[Server, Client]]:
    async with playing(home, []) as server, client_of(server) as client:
        yield server, client


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    async with serving(home) as (_, client):
        yield client


def run(*command: str, **options: JsonValue) -> JsonValue:
    return {"command": list(command), **FREE, **options}


async def send(client: Client, id_: int, params: JsonValue) -> None:
    """Start a command whose answer comes later."""
    await client.peer.send({"id": id_, "method": "command/exec", "params": params})


async def result_of(client: Client, id_: int) -> JsonValue:
    """Wait for the answer to an earlier request; messages before it are kept."""
    for place, message in enumerate(client.unread):
        if message.get("id") == id_:
            return client.unread.pop(place)["result"]
    while (message := await client.peer.receive()).get("id") != id_:
        client.unread.append(message)
    return message["result"]


def streamed(client: Client, process_id: str, stream: str = "stdout") -> bytes:
    deltas = params_of(client.unread, "command/exec/outputDelta")
    return b"".join(
        base64.b64decode(delta["deltaBase64"])
        for delta in deltas
        if (delta["processId"], delta["stream"]) == (process_id, stream)
    )


async def wait_for_output(client: Client, process_id: str, expected: bytes) -> None:
    """Wait until a command has printed this."""
    while expected not in streamed(client, process_id):
        client.unread.append(await client.peer.receive())


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_the_answer_has_the_exit_code_and_both_streams(client: Client) -> None:
    params = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert await client.request("command/exec", params) == {
        "exitCode": 3,
        "stdout": "out\n",
        "stderr": "err\n",
    }


async def test_folder_and_variables_are_as_requested(client: Client, tmp_path: Path) -> None:
    script = "pwd; echo $FOO; echo [${HOME-unset}]"
    params = run("sh", "-c", script, cwd=str(tmp_path), env={"FOO": "bar", "HOME": None})
    answer = await client.request("command/exec", params)
    assert answer["stdout"] == f"{tmp_path}\nbar\n[unset]\n"


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"command": []}, -32600, "command must not be empty"),
        (
            {"command": ["/no/such/prog"], **FREE},
            -32603,
            "failed to spawn command: No such file or directory (os error 2)",
        ),
        (
            {"command": ["true"], "cwd": "/no/such/dir", **FREE},
            -32603,
            "failed to spawn command: No such file or directory (os error 2)",
        ),
        *(
            ({**params, **FREE}, -32603, "failed to spawn command: embedded null byte")
            for params in (
                {"command": ["true", "\0"]},
                {"command": ["true"], "env": {"A": "\0"}},
                {"command": ["true"], "env": {"\0": "a"}},
            )
        ),
        (
            {"command": ["true"], "timeoutMs": 5, "disableTimeout": True},
            -32602,
            "command/exec cannot set both timeoutMs and disableTimeout",
        ),
        (
            {"command": ["true"], "timeoutMs": -1},
            -32602,
            "command/exec timeoutMs must be non-negative, got -1",
        ),
        (
            {"command": ["true"], "outputBytesCap": 5, "disableOutputCap": True},
            -32602,
            "command/exec cannot set both outputBytesCap and disableOutputCap",
        ),
        (
            {"command": ["true"], "size": {"rows": 1, "cols": 1}},
            -32602,
            "command/exec size requires tty: true",
        ),
        (
            {"command": ["true"], "processId": "z", "tty": True, "size": {"rows": 0, "cols": 1}},
            -32602,
            "command/exec size rows and cols must be greater than 0",
        ),
        *(
            (
                {"command": ["true"], option: True},
                -32600,
                "command/exec tty or streaming requires a client-supplied processId",
            )
            for option in ("tty", "streamStdin", "streamStdoutStderr")
        ),
        (
            {
                "command": ["true"],
                "permissionProfile": ":read-only",
                "sandboxPolicy": {"type": "readOnly"},
            },
            -32600,
            "`permissionProfile` cannot be combined with `sandboxPolicy`",
        ),
        (
            {"command": ["true"], "permissionProfile": "nope"},
            -32600,
            "invalid permission profile: no built-in profile is named 'nope'",
        ),
    ],
)
async def test_impossible_requests_are_refused(
    client: Client, params: JsonValue, code: int, message: str
) -> None:
    refused = await client.refusal("command/exec", params)
    assert (refused.code, refused.message) == (code, message)


@pytest.mark.parametrize(
    ("method", "params", "code", "message"),
    [
        (
            "command/exec/write",
            {"processId": "nope", "closeStdin": True},
            -32600,
            'no active command/exec for process id "nope"',
        ),
        (
            "command/exec/terminate",
            {"processId": "nope"},
            -32600,
            'no active command/exec for process id "nope"',
        ),
        (
            "command/exec/resize",
            {"processId": "nope", "size": {"rows": 1, "cols": 1}},
            -32600,
            'no active command/exec for process id "nope"',
        ),
        (
            "command/exec/resize",
            {"processId": "nope", "size": {"rows": 0, "cols": 1}},
            -32602,
            "command/exec size rows and cols must be greater than 0",
        ),
    ],
)
async def test_methods_about_a_command_that_does_not_run_are_refused(
    client: Client, method: str, params: JsonValue, code: int, message: str
) -> None:
    refused = await client.refusal(method, params)
    assert (refused.code, refused.message) == (code, message)


async def test_a_command_that_takes_too_long_is_killed(client: Client) -> None:
    script = "sleep 1000 & echo $!; wait"
    answer = await client.request("command/exec", run("sh", "-c", script, timeoutMs=300))
    assert answer["exitCode"] == 124
    wait_until_gone(int(answer["stdout"]))


async def test_a_command_may_run_without_a_time_limit(client: Client) -> None:
    script = "echo ready; read x"
    params = run("sh", "-c", script, disableTimeout=True, processId="p", streamStdin=True)
    await send(client, 900, params)
    params = {"processId": "p", "deltaBase64": b64("\n")}
    assert await client.request("command/exec/write", params) == {}
    assert (await result_of(client, 900))["stdout"] == "ready\n"


async def test_each_stream_has_a_cap(client: Client) -> None:
    script = "echo 1234567890; echo abcdefghij >&2"
    answer = await client.request("command/exec", run("sh", "-c", script, outputBytesCap=5))
    assert answer == {"exitCode": 0, "stdout": "12345", "stderr": "abcde"}


async def test_without_a_cap_all_output_is_returned(client: Client) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' x"
    capped = await client.request("command/exec", run("sh", "-c", script))
    whole = await client.request("command/exec", run("sh", "-c", script, disableOutputCap=True))
    assert capped["stdout"] == "x" * 2**20
    assert whole["stdout"] == "x" * 3_000_000


async def test_output_in_legacy_encodings_is_decoded(client: Client) -> None:
    answer = await client.request("command/exec", run("printf", r"\377abc"))
    assert answer["stdout"] == "ÿabc"


async def test_output_is_streamed_and_not_repeated(client: Client) -> None:
    script = "echo a; echo b >&2; echo c"
    params = run("sh", "-c", script, processId="s1", streamStdoutStderr=True)
    answer = await client.request("command/exec", params)
    assert answer == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert streamed(client, "s1") == b"a\nc\n"
    assert streamed(client, "s1", "stderr") == b"b\n"


async def test_the_last_chunk_before_the_cap_is_marked(client: Client) -> None:
    script = "echo 1234567890; echo more"
    params = run("sh", "-c", script, processId="s", streamStdoutStderr=True, outputBytesCap=4)
    await client.request("command/exec", params)
    assert params_of(client.unread, "command/exec/outputDelta") == [
        {"processId": "s", "stream": "stdout", "deltaBase64": b64("1234"), "capReached": True}
    ]


async def test_a_flood_is_streamed_without_a_lost_byte(client: Client) -> None:
    script = "head -c 40000000 /dev/zero"
    options = {"processId": "s", "streamStdoutStderr": True, "disableOutputCap": True}
    answer = await client.request("command/exec", run("sh", "-c", script, **options))
    assert answer["exitCode"] == 0
    assert streamed(client, "s") == bytes(40_000_000)


async def test_input_is_forwarded_until_it_is_closed(client: Client) -> None:
    """Upstream: duplicate id, write, empty write, bad base64, resize, write and close."""
    params = run("cat", processId="c1", streamStdin=True, streamStdoutStderr=True)
    await send(client, 900, params)
    refused = await client.refusal("command/exec", run("true", processId="c1"))
    assert refused.message == 'duplicate active command/exec process id: "c1"'
    where = {"processId": "c1"}
    hello = {**where, "deltaBase64": b64("hello\n")}
    assert await client.request("command/exec/write", hello) == {}
    await wait_for_output(client, "c1", b"hello\n")
    refused = await client.refusal("command/exec/write", where)
    assert (refused.code, refused.message) == (
        -32602,
        "command/exec/write requires deltaBase64 or closeStdin",
    )
    refused = await client.refusal("command/exec/write", {**where, "deltaBase64": "!!!"})
    assert refused.code == -32602
    assert refused.message.startswith("invalid deltaBase64: ")
    refused = await client.refusal("command/exec/resize", {**where, "size": {"rows": 5, "cols": 5}})
    assert refused.message == "failed to resize PTY: process is not attached to a PTY"
    last = {**where, "deltaBase64": b64("bye\n"), "closeStdin": True}
    assert await client.request("command/exec/write", last) == {}
    assert await result_of(client, 900) == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert streamed(client, "c1") == b"hello\nbye\n"


async def test_closed_input_accepts_no_more(client: Client) -> None:
    params = run("sh", "-c", "cat; exec sleep 60", processId="p", streamStdin=True)
    await send(client, 900, params)
    await client.request("command/exec/write", {"processId": "p", "closeStdin": True})
    again = {"processId": "p", "deltaBase64": b64("x")}
    refused = await client.refusal("command/exec/write", again)
    assert refused.message == "stdin is already closed"


async def test_a_terminal_has_a_size_that_can_change(client: Client) -> None:
    """Upstream: pty: size, resize, write, terminate; the exit code is that of the signal."""
    script = "stty size; read x; echo got $x; stty size; exec sleep 60"
    size = {"rows": 31, "cols": 77}
    await send(client, 900, run("sh", "-c", script, processId="t1", tty=True, size=size))
    await wait_for_output(client, "t1", b"31 77\r\n")
    where = {"processId": "t1"}
    resized = {**where, "size": {"rows": 40, "cols": 100}}
    assert await client.request("command/exec/resize", resized) == {}
    typed = {**where, "deltaBase64": b64("yo\n")}
    assert await client.request("command/exec/write", typed) == {}
    await wait_for_output(client, "t1", b"yo\r\ngot yo\r\n40 100\r\n")
    assert await client.request("command/exec/terminate", where) == {}
    assert await result_of(client, 900) == {"exitCode": 137, "stdout": "", "stderr": ""}


async def test_a_command_that_ignores_signals_can_be_terminated(client: Client) -> None:
    script = "trap '' TERM INT HUP; sleep 60"
    await send(client, 900, run("sh", "-c", script, processId="k"))
    unwanted = {"processId": "k", "deltaBase64": "AA=="}
    refused = await client.refusal("command/exec/write", unwanted)
    assert refused.message == "stdin streaming is not enabled for this command/exec"
    assert await client.request("command/exec/terminate", {"processId": "k"}) == {}
    assert (await result_of(client, 900))["exitCode"] == 137


async def test_ids_belong_to_a_connection_and_commands_end_with_it(home: Path) -> None:
    async with serving(home) as (server, first):
        async with client_of(server) as second:
            script = "echo $$; sleep 1000; true"
            options = {"processId": "p", "streamStdoutStderr": True, "disableTimeout": True}
            await send(second, 900, run("sh", "-c", script, **options))
            await wait_for_output(second, "p", b"\n")
            pid = int(streamed(second, "p"))
            refused = await first.refusal("command/exec/terminate", {"processId": "p"})
            assert refused.message == 'no active command/exec for process id "p"'
            # Free here, though in use there.
            assert (await first.request("command/exec", run("true", processId="p")))[
                "exitCode"
            ] == 0
        await asyncio.to_thread(wait_until_gone, pid)


@pytest.mark.parametrize(
    ("options", "writes_here", "writes_elsewhere"),
    [
        ({"sandboxPolicy": {"type": "readOnly"}}, False, False),
        (
            {
                "sandboxPolicy": {
                    "type": "workspaceWrite",
                    "excludeSlashTmp": True,
                    "excludeTmpdirEnvVar": True,
                }
            },
            True,
            False,
        ),
        ({"sandboxPolicy": {"type": "dangerFullAccess"}}, True, True),
        ({"sandboxPolicy": {"type": "externalSandbox"}}, True, True),
        ({"permissionProfile": ":read-only"}, False, False),
        ({"permissionProfile": ":danger-full-access"}, True, True),
        ({}, False, False),
    ],
)
async def test_the_requested_sandbox_is_used(
    client: Client, tmp_path: Path, options: JsonValue, writes_here: bool, writes_elsewhere: bool
) -> None:
    """Upstream: sandboxPolicy of each kind; without one, the configuration's own."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    script = f"echo x > f; echo x > {elsewhere}/f; true"
    params = {"command": ["sh", "-c", script], "cwd": str(here), **options}
    await client.request("command/exec", params)
    assert ((here / "f").exists(), (elsewhere / "f").exists()) == (writes_here, writes_elsewhere)


async def test_a_command_is_informed_that_it_has_no_network(client: Client) -> None:
    script = "echo ${CODEX_SANDBOX_NETWORK_DISABLED-open}"
    closed = {"command": ["sh", "-c", script], "sandboxPolicy": {"type": "readOnly"}}
    assert (await client.request("command/exec", closed))["stdout"] == "1\n"
    assert "CODEX_SANDBOX_NETWORK_DISABLED" not in os.environ
    assert (await client.request("command/exec", run("sh", "-c", script)))["stdout"] == "open\n"
