"""Items of tools stay in the thread as they were published: read, restarted, resumed, forked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import params_of
from treadle.model.scripted.script import AnyStep, calls, custom_call, says, searches
from treadle.protocol.base import JsonValue

PATCH = "*** Begin Patch\n*** Add File: new\n+new\n*** Delete File: gone\n*** End Patch\n"
STEPS: list[list[AnyStep]] = [
    [
        calls("exec_command", {"cmd": "echo out; exit 3", "login": False}, call_id="call-1"),
        custom_call("apply_patch", PATCH, call_id="call-2"),
        calls("exec_command", {"cmd": "rm -rf new", "login": False}, call_id="call-3"),
        searches("what is a treadle", id_="search-1"),
    ],
    [calls("view_image", {"path": "dot.png"}, call_id="call-4")],
    [says("done")],
]
KINDS = ["commandExecution", "fileChange", "webSearch", "imageView"]
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082"
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "gone").write_text("gone\n")
    (folder / "dot.png").write_bytes(DOT)
    return folder


def deeds(turns: list[JsonValue]) -> dict[str, JsonValue]:
    """The items of tools in the first turn, by id."""
    return {item["id"]: item for item in turns[0]["items"] if item["type"] in KINDS}


async def test_items_of_tools_are_the_same_wherever_they_are_shown(home: Path, work: Path) -> None:
    async with playing(home, STEPS) as server, client_of(server) as client:
        thread_id = await client.start(
            cwd=str(work), approvalPolicy="never", sandbox="workspace-write", model="gpt-5.5"
        )
        messages = await client.run(thread_id)
        completed = [params["item"] for params in params_of(messages, "item/completed")]
        expected = {item["id"]: item for item in completed if item["type"] in KINDS}
        read = await client.read(thread_id)
    async with playing(home, [[says("more")]]) as server, client_of(server) as client:
        unloaded = await client.read(thread_id)
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        forked = await client.request("thread/fork", {"threadId": thread_id})
        fork_read = await client.read(forked["thread"]["id"])

    statuses = {id_: item.get("status") for id_, item in expected.items()}
    assert statuses == {
        "call-1": "failed",
        "call-2": "completed",
        "call-3": "declined",
        "search-1": None,
        "call-4": None,
    }
    for thread in (read, unloaded, resumed["thread"], forked["thread"], fork_read):
        assert deeds(thread["turns"]) == expected
