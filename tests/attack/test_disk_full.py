"""A full disk fails one turn: the error is reported, and the thread works afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import pytest

from tests.harness.commands import wait_until_gone
from tests.harness.model_server import Reply, Step, calls, completed, created, done, message, says
from tests.harness.peer import Peer
from tests.harness.processes import spawn_server
from tests.harness.small_disk import SmallDisk, small_disk
from tests.harness.threads import Client, Stage, line_of, params_of, words
from treadle.protocol.base import JsonValue

FREE: JsonValue = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
ASKING: JsonValue = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}
ASK = "item/commandExecution/requestApproval"
# More than the index frees on the full disk when it moves into memory.
LONG = "long " * 100_000
SETTING: JsonValue = {"keyPath": "review_model", "mergeStrategy": "replace"}
FAILED = ["thread/status/changed systemError", "error willRetry=False", "turn/completed failed"]


def input_text(text: str) -> JsonValue:
    """Return a part of a message to the model."""
    return {"type": "input_text", "text": text}


def runs(command: str, call_id: str, *gates: asyncio.Event) -> Reply:
    """Return a long message and a command call, sent when the gates are open."""
    arguments = json.dumps({"cmd": command, "login": False})
    call: JsonValue = {
        "type": "function_call",
        "call_id": call_id,
        "name": "exec_command",
        "arguments": arguments,
    }
    steps: list[Step] = message(LONG, f"msg-{call_id}")
    return Reply([created(), *gates, *steps, done(call), completed()])


def assert_reported(messages: list[JsonValue], disk: SmallDisk) -> None:
    """Require that clients learn what failed, where and why."""
    outline = [line_of(each) for each in messages]
    assert [line for line in outline if line in FAILED] == FAILED
    (error,) = [each["error"] for each in params_of(messages, "error")]
    assert error == messages[-1]["params"]["turn"]["error"]
    assert "No space left on device (ENOSPC)" in error["message"]
    assert "/sessions/" in error["message"]
    assert error["codexErrorInfo"] == "other"


async def restarted(home: Path, thread_id: str) -> JsonValue:
    """Read a thread with another server."""
    transport = spawn_server(home)
    try:
        client = Client(Peer(transport))
        await client.initialize()
        return await client.read(thread_id)
    finally:
        await transport.close()


def numbers(path: Path) -> list[int]:
    """Return the numbers of the stored events; every line of the file must be complete."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    marks = [line.get("treadle") or {} for line in lines]
    return [mark["seq"] for mark in marks if mark.get("record") == "event"]


async def test_a_turn_that_cannot_be_stored_fails_and_the_next_one_works(tmp_path: Path) -> None:
    async with small_disk(tmp_path) as disk:
        client = disk.client
        thread_id = await client.start(cwd=str(disk.workspace), **FREE)
        gate, marker = asyncio.Event(), disk.workspace / "marker"
        disk.model.plays(runs(f"touch {marker}", "call-1", gate))
        turn_id = await client.start_turn(thread_id, "first")
        await disk.model.wait_for_request(1)
        disk.fill()
        gate.set()
        assert_reported(await client.end_of(turn_id), disk)
        refusal = await client.refusal("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        assert refusal.kind == "noActiveTurn"
        assert [turn["status"] for turn in (await client.read(thread_id))["turns"]] == ["failed"]
        assert len(disk.model.requests) == 1
        assert not marker.exists()

        disk.make_room()
        disk.model.plays(says("second answer"))
        messages = await client.run(thread_id, "second")
        assert line_of(messages[-1]) == "turn/completed completed"
        thread = await client.read(thread_id)
        disk.save(tmp_path / "saved")

    assert [turn["status"] for turn in thread["turns"]] == ["failed", "completed"]
    assert words(thread) == [["first", LONG], ["second", "second answer"]]
    (rollout,) = (tmp_path / "saved").glob("sessions/*/*/*/*.jsonl")
    stored = numbers(rollout)
    assert stored == sorted(set(stored))
    again = await restarted(tmp_path / "saved", thread_id)
    assert again["turns"] == thread["turns"]


async def test_a_command_that_runs_when_the_disk_fills_up_is_ended(tmp_path: Path) -> None:
    async with small_disk(tmp_path) as disk:
        client = disk.client
        thread_id = await client.start(cwd=str(disk.workspace), **FREE)
        started = disk.workspace / "pid"
        disk.model.plays(runs(f"echo $$ > {started}; exec sleep 600", "call-1"))
        turn_id = await client.start_turn(thread_id)
        await client.until(
            "item/started", lambda params: params["item"]["type"] == "commandExecution"
        )
        pid = int(await asyncio.to_thread(_content, started))
        disk.fill()
        # A steered message must be stored, and cannot be.
        refusal = await client.refusal(
            "turn/steer",
            {
                "threadId": thread_id,
                "expectedTurnId": turn_id,
                "input": [{"type": "text", "text": LONG}],
            },
        )
        assert (refusal.kind, refusal.data["errno"]) == ("io", "ENOSPC")
        await client.end_of(turn_id)
        wait_until_gone(pid)
        assert len(disk.model.requests) == 1


async def test_an_approval_that_cannot_be_stored_is_a_denial(tmp_path: Path) -> None:
    async with small_disk(tmp_path) as disk:
        client, marker = disk.client, disk.workspace / "marker"
        thread_id = await client.start(cwd=str(disk.workspace), **ASKING)
        disk.model.plays(calls("exec_command", {"cmd": f"touch {marker}", "login": False}))
        turn_id = await client.start_turn(thread_id)
        question = (await client.until(ASK))[-1]
        disk.fill()
        decision = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", LONG]}}
        await client.peer.send({"id": question["id"], "result": {"decision": decision}})
        messages = await client.end_of(turn_id)

        assert "serverRequest/resolved" in [each["method"] for each in messages]
        assert_reported(messages, disk)
        assert not marker.exists()
        assert len(disk.model.requests) == 1


async def test_a_full_disk_refuses_new_threads_and_messages_with_a_reason(tmp_path: Path) -> None:
    async with small_disk(tmp_path) as disk:
        client = disk.client
        thread_id = await client.start(cwd=str(disk.workspace))
        # The index is written in the background; when that fails, its log frees space.
        await client.request("thread/list", {})
        disk.fill()
        start_params = {"threadId": thread_id, "input": [{"type": "text", "text": LONG}]}
        item = {"type": "message", "role": "user", "content": [input_text(LONG)]}
        denied = {"status": "denied", "action": {"type": "command", "command": LONG}}
        for method, params in (
            ("thread/start", {"baseInstructions": LONG}),
            ("turn/start", start_params),
            ("thread/inject_items", {"threadId": thread_id, "items": [item]}),
            ("thread/approveGuardianDeniedAction", {"threadId": thread_id, "event": denied}),
            ("config/value/write", {**SETTING, "value": LONG[:4000]}),
            ("config/batchWrite", {"edits": [{**SETTING, "value": LONG[:4000]}]}),
            ("account/login/start", {"type": "apiKey", "apiKey": "k" * 8000}),
        ):
            refusal = await client.refusal(method, params)
            assert (refusal.kind, refusal.data["errno"]) == ("io", "ENOSPC"), method
            assert disk.home.name in Path(refusal.data["path"]).parts, method
            assert "No space left on device" in refusal.message
        assert len(list(disk.home.glob("sessions/*/*/*/*"))) == 1

        disk.make_room()
        assert line_of((await client.run(thread_id))[-1]) == "turn/completed completed"
        assert len((await client.read(thread_id))["turns"]) == 1


async def test_turns_go_on_after_an_event_between_turns_could_not_be_stored(
    tmp_path: Path,
) -> None:
    async with small_disk(tmp_path) as disk:
        client, gate = disk.client, disk.workspace / "gate"
        os.mkfifo(gate)
        thread_id = await client.start(cwd=str(disk.workspace), **FREE)
        waits: JsonValue = {"cmd": f"cat {gate}", "yield_time_ms": 250, "login": False}
        disk.model.plays(calls("exec_command", waits))
        disk.model.plays(says("it runs"))
        await client.run(thread_id, "wait in the background")
        disk.fill()
        with await asyncio.to_thread(gate.open, "w") as file:
            file.write(LONG)
        await client.until(
            "thread/status/changed", lambda params: params["status"]["type"] == "systemError"
        )

        compact: JsonValue = {"threadId": thread_id}
        assert (await client.refusal("thread/compact/start", compact)).kind == "io"
        disk.make_room()
        disk.model.plays(says("a summary"))
        await client.request("thread/compact/start", compact)
        ended = (await client.until("turn/completed"))[-1]
        assert line_of(ended) == "turn/completed completed"
        stamps = [each["seq"] for each in client.received if "seq" in each]
        assert stamps == sorted(set(stamps))


async def test_threads_are_listed_read_archived_and_deleted_on_a_full_disk(tmp_path: Path) -> None:
    async with small_disk(tmp_path) as disk:
        client = disk.client
        ids = [await client.start(cwd=str(disk.workspace)) for _ in range(4)]
        for id_ in ids:
            await client.run(id_, f"hello from {id_}")
        kept, closed, archived, deleted = ids
        disk.fill()

        answer = await client.request("thread/unsubscribe", {"threadId": closed})
        assert answer["status"] == "unsubscribed"
        await client.until("thread/closed")
        await client.request("thread/archive", {"threadId": archived})
        await client.request("thread/delete", {"threadId": closed})
        assert len((await client.read(kept))["turns"]) == 1
        listed = await client.request("thread/list", {})
        assert {thread["id"] for thread in listed["data"]} == {kept, deleted}
        await client.request("thread/delete", {"threadId": deleted})
        listed = await client.request("thread/list", {})
        assert {thread["id"] for thread in listed["data"]} == {kept}


def _content(path: Path) -> str:
    """Wait until a command has written a file; there is no event for this."""
    while not path.exists() or not (text := path.read_text()):
        time.sleep(0.005)
    return text


async def test_a_slow_disk_delays_its_own_answers_and_nothing_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = await stage.client(), await stage.client()
    thread_id = await slow.start(cwd=str(stage.workspace))
    gate, began = threading.Event(), threading.Event()
    sync = os.fdatasync

    def waits(descriptor: int) -> None:
        began.set()
        assert gate.wait(20)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", waits)
    turn = asyncio.ensure_future(slow.start_turn(thread_id))  # noqa: TID251  it has to wait meanwhile
    assert await asyncio.to_thread(began.wait, 20)
    # The message is written but not synced: it is not acknowledged, and other requests continue.
    assert len((await other.request("thread/list", {}))["data"]) == 1
    assert (await other.read(thread_id))["id"] == thread_id
    assert not turn.done()
    gate.set()
    await slow.end_of(await turn)


async def test_turns_without_input_are_refused_while_earlier_events_wait(tmp_path: Path) -> None:
    """Each of them would add its events to those in memory, for as long as the disk is full."""
    review: JsonValue = {"type": "custom", "instructions": "Look."}
    async with small_disk(tmp_path) as disk:
        thread_id = await disk.client.start(cwd=str(disk.workspace), **FREE)
        disk.model.plays(says("hello"))
        await disk.client.run(thread_id)
        disk.fill()
        params = {"threadId": thread_id, "target": review}
        await disk.client.request("review/start", params)
        await disk.client.until("turn/completed")
        refused = [
            await disk.client.refusal("review/start", params),
            await disk.client.refusal("thread/compact/start", {"threadId": thread_id}),
            await disk.client.refusal(
                "thread/shellCommand", {"threadId": thread_id, "command": "true"}
            ),
        ]
        disk.make_room()
        disk.model.plays(says("fine"))
        await disk.client.request("review/start", params)
        ended = await disk.client.until("turn/completed")

    assert [(each.kind, each.data["errno"]) for each in refused] == [("io", "ENOSPC")] * 3
    assert ended[-1]["params"]["turn"]["status"] == "completed"
