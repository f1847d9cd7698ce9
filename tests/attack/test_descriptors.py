"""A server that runs out of file descriptors answers every request, and recovers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.descriptors import (
    descriptor_limits,
    no_descriptors,
    open_descriptors,
    with_limit,
)
from tests.harness.peer import Peer
from tests.harness.processes import TREADLE, environment
from tests.harness.questions import answer, question
from tests.harness.sandbox import findings
from tests.harness.threads import UNKNOWN_THREAD, Client, Refused, params_of
from treadle.accounts.credentials import CredentialStore
from treadle.engine.commands.rules import RulesCache
from treadle.engine.threads import MIN_LOADED
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import SubprocessTransport, spawn

SECONDS = 40
# One method of every handler file, none of which needs more than a server that has just started.
METHODS: list[tuple[str, JsonValue]] = [
    ("account/read", {}),
    ("collaborationMode/list", {}),
    ("command/exec", {"command": ["true"], "sandboxPolicy": {"type": "dangerFullAccess"}}),
    ("config/read", {}),
    ("config/value/write", {"keyPath": "model", "value": "m", "mergeStrategy": "replace"}),
    ("fs/readFile", {"path": "/etc/passwd"}),
    ("thread/goal/get", {"threadId": UNKNOWN_THREAD}),
    ("thread/turns/list", {"threadId": UNKNOWN_THREAD}),
    ("mcpServerStatus/list", {}),
    ("model/list", {}),
    ("review/start", {"threadId": UNKNOWN_THREAD, "target": {"type": "uncommittedChanges"}}),
    ("thread/rollback", {"threadId": UNKNOWN_THREAD, "numTurns": 1}),
    ("skills/list", {}),
    ("thread/backgroundTerminals/list", {"threadId": UNKNOWN_THREAD}),
    ("thread/list", {}),
    ("thread/start", {}),
    ("turn/interrupt", {"threadId": UNKNOWN_THREAD, "turnId": UNKNOWN_THREAD}),
]
SHORTAGES = ("Too many open files", "unable to open database file")


@asynccontextmanager
async def server(
    home: Path, responses: Sequence[JsonValue] = (), *, soft: int = 1024, hard: int = 4096
) -> AsyncIterator[tuple[SubprocessTransport, Client]]:
    """Run a real server on pipes whose model plays these responses, and an initialized client."""
    command = with_limit(soft, hard, [TREADLE, "app-server"])
    env = environment(home, TREADLE_SCRIPT=json.dumps(list(responses)))
    transport = spawn(command, cwd=home, env=env)
    try:
        async with asyncio.timeout(SECONDS):
            client = Client(Peer(transport))
            await client.initialize()
            yield transport, client
    finally:
        await transport.close()


def runs(command: str) -> JsonValue:
    """Return a response that runs a command."""
    return {"type": "calls", "tool": "exec_command", "arguments": {"cmd": command}}


def completed_commands(messages: Sequence[JsonValue]) -> list[JsonValue]:
    """Return the commands that these notifications report as completed."""
    items = [params["item"] for params in params_of(messages, "item/completed")]
    return [item for item in items if item["type"] == "commandExecution"]


async def outcome(client: Client, method: str, params: JsonValue) -> str:
    """Return the error of a request, or "ok"."""
    try:
        await client.request(method, params)
    except Refused as refused:
        return refused.message
    return "ok"


async def test_every_request_is_answered_without_descriptors_and_works_later(home: Path) -> None:
    """Handlers are imported at their first use, which needs a descriptor."""
    async with server(home) as (transport, client):
        assert "unknown variant" in await outcome(client, "none", {}), "the server is up"
        with no_descriptors(transport.pid):
            starved = [await outcome(client, *each) for each in METHODS]
        fed = [await outcome(client, *each) for each in METHODS]

    assert all(any(word in text for word in SHORTAGES) for text in starved), starved
    assert not any(word in text for text in fed for word in (*SHORTAGES, "internal error")), fed
    assert not any("not implemented" in text for text in fed), fed
    lines = transport.stderr_tail.splitlines()
    assert len([line for line in lines if "used up" in line]) == 1, lines
    assert "Traceback" not in transport.stderr_tail


async def test_turn_continues_when_a_command_cannot_be_started(home: Path) -> None:
    responses = [[runs("touch x; echo 1")], [runs("echo 2")], "done", [runs("echo 3")], "done"]
    async with server(home, responses) as (transport, client):
        thread = await client.start(sandbox="danger-full-access", approvalPolicy="untrusted")
        await client.start_turn(thread)
        approval = await question(client, "item/commandExecution/requestApproval")
        with no_descriptors(transport.pid):
            await answer(client, approval, {"decision": "accept"})
            starved = await client.until("turn/completed")
        fed = await client.run(thread)

        assert starved[-1]["params"]["turn"]["status"] == "completed"
        (failed,) = completed_commands(starved)
        assert (failed["status"], failed["exitCode"]) == ("failed", -1)
        assert "Too many open files" in failed["aggregatedOutput"]
        assert fed[-1]["params"]["turn"]["status"] == "completed"
        assert [item["aggregatedOutput"] for item in completed_commands(fed)] == ["3\n"]
        # The failure path leaks nothing; descriptors of workers are closed soon after.
        while len(open_descriptors(transport.pid)) >= 20:
            await client.request("thread/loaded/list", {})


async def test_threads_of_one_client_leave_descriptors_for_commands(home: Path) -> None:
    """Ours: as long as one client had a thousand threads, no command of another one started."""
    exec_ = {"command": ["echo", "hi"], "sandboxPolicy": {"type": "dangerFullAccess"}}
    async with server(home, soft=256, hard=256) as (_transport, client):
        while (refused := await outcome(client, "thread/start", {})) == "ok":
            pass
        done = await client.request("command/exec", exec_)
        threads = (await client.request("thread/loaded/list", {}))["data"]
        await client.request("thread/unsubscribe", {"threadId": threads[0]})
        await client.start()

    assert done["stdout"] == "hi\n"
    assert refused == "too many threads are loaded: at most 64; unsubscribe from others first"
    assert len(threads) == 64


async def test_idle_thread_holds_one_descriptor_and_an_unloaded_one_none(home: Path) -> None:
    async with server(home, ["hi", "hi"]) as (transport, client):
        first = await client.start()
        threads = [await client.start() for _ in range(5)]
        await client.run(threads[0])
        await client.run(threads[1])
        assert await _held_when_idle(transport, client) == {first, *threads}
        for thread in threads:
            await client.request("thread/delete", {"threadId": thread})
        assert await _held_when_idle(transport, client) == {first}


async def _held_when_idle(transport: SubprocessTransport, client: Client) -> set[str]:
    """Return the threads whose lock is open, after workers have synced and closed all rollouts."""
    while any(name.endswith(".jsonl") for name in open_descriptors(transport.pid)):
        await client.request("thread/loaded/list", {})
    names = open_descriptors(transport.pid)
    locks = [Path(name).stem for name in names if name.endswith(".lock")]
    assert len(locks) == len(set(locks))
    return set(locks)


async def test_server_works_within_128_descriptors(home: Path) -> None:
    responses = [step for number in range(6) for step in ([runs(f"echo {number}")], "done")]
    async with server(home, responses, soft=128, hard=128) as (transport, client):
        for number in range(6):
            thread = await client.start(approvalPolicy="never")
            published = await client.run(thread)
            (command,) = completed_commands(published)
            assert (command["exitCode"], command["aggregatedOutput"]) == (0, f"{number}\n")
        assert len(open_descriptors(transport.pid)) < 40


async def test_command_waits_while_too_many_descriptors_are_in_flight(
    home: Path,
) -> None:
    """The kernel counts in-flight descriptors over all processes of an ordinary user."""
    near, far = socket.socketpair()
    responses = [[runs("echo first")], "done", [runs("echo ran")], "done"]
    async with server(home, responses, soft=128, hard=128) as (_, client):
        thread = await client.start(approvalPolicy="never")
        await client.run(thread)
        for _ in range(2):
            socket.send_fds(near, [b"!"], [near.fileno()] * 100)
        turn = await client.start_turn(thread)
        # Long enough for the server to try it once.
        for _ in range(50):
            await client.request("thread/loaded/list", {})
        near.close()
        far.close()
        published = await client.end_of(turn)
        (command,) = completed_commands(published)
        assert (command["exitCode"], command["aggregatedOutput"]) == (0, "ran\n")


async def test_threads_beyond_the_limit_are_refused_and_the_others_keep_working(home: Path) -> None:
    async with server(home, ["hi"] * 4, soft=64, hard=64) as (_, client):
        while "too many threads" not in await outcome(client, "thread/start", {}):
            pass
        threads = (await client.request("thread/loaded/list", {}))["data"]
        assert len(threads) == MIN_LOADED
        for thread in threads[:10]:
            await client.request("thread/delete", {"threadId": thread})
        last = await client.run(threads[-1])
        assert last[-1]["params"]["turn"]["status"] == "completed"
        await client.run(await client.start())


async def test_idle_threads_without_subscribers_are_unloaded_when_descriptors_run_short(
    home: Path,
) -> None:
    async with server(home, soft=64, hard=64) as (_, client):
        for _ in range(100):
            thread = await client.start()
            await client.request("thread/unsubscribe", {"threadId": thread})
        started = [await outcome(client, "thread/start", {}) for _ in range(30)]
        assert started.count("ok") >= 28


async def test_commands_get_the_soft_limit_that_the_server_was_started_with(home: Path) -> None:
    """Programs that use `select` fail with descriptors from 1024 on."""
    async with server(home, soft=300) as (transport, client):
        command = ["sh", "-c", "ulimit -S -n; ulimit -H -n"]
        params = {"command": command, "sandboxPolicy": {"type": "dangerFullAccess"}}
        answer = await client.request("command/exec", params)
        limits = descriptor_limits(transport.pid)

    assert answer["stdout"].split()[0] == "300"
    assert limits == (4096, 4096)


def test_forbidding_rule_is_not_lost_when_its_file_cannot_be_opened(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    text = 'prefix_rule(pattern=["curl"], decision="forbidden")\n'
    (folder / "default.rules").write_text(text)
    rules = RulesCache()
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        rules.load([folder])

    verdict = rules.load([folder]).check(["curl", "x"])
    assert verdict is not None
    assert verdict.decision == "forbidden"


async def test_shortage_does_not_choose_a_weaker_sandbox() -> None:
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        await anext(findings())


def test_stored_key_is_found_again_after_a_shortage(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text('{"OPENAI_API_KEY": "sk-stored"}')
    credentials = CredentialStore(tmp_path, {})
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        _ = credentials.api_key

    assert credentials.api_key == "sk-stored"
