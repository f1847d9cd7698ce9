"""Everything that a server has acknowledged is on disk: tested by a power cut at each answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.power_cut import Recording, compile_recorder
from tests.harness.processes import spawn_server
from tests.harness.scripted import client_of, over, playing, write_script
from tests.harness.threads import Client, text_input
from treadle.protocol.base import JsonValue
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread

ASK = "item/commandExecution/requestApproval"
POLICY: JsonValue = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}
AMENDMENT: JsonValue = {
    "acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "made"]}
}


def runs(command: str, call_id: str) -> list[JsonValue]:
    """Return a response that runs a command."""
    arguments = {"cmd": command, "login": False}
    call: JsonValue = {"type": "calls", "tool": "exec_command", "call_id": call_id}
    return [{**call, "arguments": arguments}]


def answers(method_id: int) -> Callable[[JsonValue], bool]:
    """Match the answer to the request with this id."""
    return lambda message: message.get("id") == method_id and "result" in message


def notifies(method: str) -> Callable[[JsonValue], bool]:
    """Match the first notification of this method."""
    return lambda message: message.get("method") == method


class Conversation:
    """A client that records the ids of its requests, and what each answer promises."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.last_id = 1

    async def request(self, method: str, params: JsonValue) -> tuple[int, JsonValue]:
        """Send a request; return its id and its result."""
        self.last_id += 1
        return self.last_id, await self.client.request(method, params)


async def read_after(disk: Path, thread_id: str) -> JsonValue:
    """Read a thread with a server that starts after the power cut, and continue it."""
    async with playing(disk / "home", []) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        return await client.read(thread_id)


def stored_after(disk: Path, thread_id: str) -> StoredThread:
    """Read a thread as it is stored after the power cut."""
    store = Store(disk / "home")
    try:
        return store.read(thread_id)
    finally:
        store.close()


def texts(thread: JsonValue) -> list[str]:
    """Return what the user said in a thread."""
    items = [item for turn in thread["turns"] for item in turn["items"]]
    return [item["content"][0]["text"] for item in items if item["type"] == "userMessage"]


@pytest.mark.timeout(120)
async def test_whatever_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    library = compile_recorder(tmp_path)
    root = tmp_path / "disk"
    home, work = root / "home", root / "work"
    work.mkdir(parents=True)
    home.mkdir()
    script = write_script(
        tmp_path / "script.json",
        [runs("touch made", "call-1"), *[[{"type": "says", "text": "done"}]] * 2],
        then="repeat",
    )
    recording = Recording(tmp_path / "recording", root)
    extra = recording.environment(library)
    async with over(spawn_server(home, TREADLE_SCRIPT=str(script), **extra)) as client:
        talk = Conversation(client)
        started, answer = await talk.request("thread/start", {"cwd": str(work), **POLICY})
        thread_id = answer["thread"]["id"]
        given = {"threadId": thread_id, "input": [text_input("first message")]}
        first, answer = await talk.request("turn/start", given)
        turn_id = answer["turn"]["id"]
        question = (await client.until(ASK))[-1]
        steer = {**given, "input": [text_input("steered message")], "expectedTurnId": turn_id}
        steered, _ = await talk.request("turn/steer", steer)
        await client.peer.send({"id": question["id"], "result": {"decision": AMENDMENT}})
        await client.end_of(turn_id)
        written, _ = await talk.request(
            "config/value/write", {"keyPath": "model", "value": "m", "mergeStrategy": "replace"}
        )
        stored, _ = await talk.request(
            "fs/writeFile", {"path": str(work / "file"), "dataBase64": "bmV3"}
        )
        signed_in, _ = await talk.request(
            "account/login/start", {"type": "apiKey", "apiKey": "sk-kept"}
        )

    after = recording.disk_after
    assert (await read_after(after(answers(started), tmp_path / "1"), thread_id))["turns"] == []
    thread = await read_after(after(answers(first), tmp_path / "2"), thread_id)
    assert texts(thread) == ["first message"]
    # The turn waits for the approval, and processes the message afterwards.
    known = stored_after(after(answers(steered), tmp_path / "3"), thread_id)
    assert [given.items[-1]["content"][0]["text"] for given in known.inputs.values()] == [
        "steered message"
    ]
    assert len(known.open_requests) == 1
    disk = after(notifies("serverRequest/resolved"), tmp_path / "4")
    known = stored_after(disk, thread_id)
    assert (known.open_requests, list(known.answers)) == ({}, ["call-1"])
    disk = after(notifies("turn/completed"), tmp_path / "5")
    assert 'pattern=["touch", "made"]' in (disk / "home/rules/default.rules").read_text()
    thread = await read_after(disk, thread_id)
    assert thread["turns"][0]["status"] == "completed"
    assert texts(thread) == ["first message", "steered message"]
    disk = after(answers(written), tmp_path / "6")
    assert 'model = "m"' in (disk / "home/config.toml").read_text()
    assert (after(answers(stored), tmp_path / "7") / "work/file").read_bytes() == b"new"
    kept = json.loads((after(answers(signed_in), tmp_path / "8") / "home/auth.json").read_text())
    assert kept["OPENAI_API_KEY"] == "sk-kept"


async def test_the_recorder_leaves_out_what_was_not_synced(tmp_path: Path) -> None:
    """The test above would prove nothing if the recorder counted every write as synced."""
    library = compile_recorder(tmp_path)
    root = tmp_path / "disk"
    (root / "home").mkdir(parents=True)
    (root / "work").mkdir()
    recording = Recording(tmp_path / "recording", root)
    extra = recording.environment(library)
    async with over(spawn_server(root / "home", **extra)) as client:
        talk = Conversation(client)
        made, _ = await talk.request("fs/createDirectory", {"path": str(root / "work/folder")})

    assert (root / "work/folder").is_dir()
    assert list((recording.disk_after(answers(made), tmp_path / "1") / "work").iterdir()) == []
