"""The home: its permissions, what a kill leaves in it, and names that are not UTF-8."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.model_server import says
from tests.harness.processes import spawn_server
from tests.harness.scripted import over
from tests.harness.threads import Client, Stage, words
from treadle.store.lease import Lease
from treadle.support.ids import uuid7


def modes(folder: Path) -> dict[str, int]:
    found = [folder, *folder.rglob("*")]
    return {
        str(path.relative_to(folder.parent)): stat.S_IMODE(path.stat().st_mode) for path in found
    }


async def start_conversation(stage: Stage, client: Client, text: str = "hello") -> str:
    stage.model.plays(says("hi"))
    thread_id = await client.start()
    await client.run(thread_id, text)
    return thread_id


async def test_only_the_owner_may_read_sessions(stage: Stage) -> None:
    before = os.umask(0)
    try:
        client = await stage.client()
        kept, archived = (
            await start_conversation(stage, client),
            await start_conversation(stage, client),
        )
        await client.request("thread/archive", {"threadId": archived})
        await client.request("thread/name/set", {"threadId": kept, "name": "named"})
    finally:
        os.umask(before)

    found = modes(stage.home / "sessions") | modes(stage.home / "archived_sessions")
    assert len(found) == 7
    assert {mode for name, mode in found.items() if not name.endswith(".jsonl")} == {0o700}
    assert {mode for name, mode in found.items() if name.endswith(".jsonl")} == {0o600}
    index = stage.home / "session_index.jsonl"
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    assert {stat.S_IMODE(path.stat().st_mode) for path in stage.home.glob("treadle.sqlite*")} == {
        0o600
    }


async def test_existing_folders_that_others_can_read_become_private(stage: Stage) -> None:
    for name in ("sessions", "archived_sessions"):
        (stage.home / name).mkdir(mode=0o755)
    client = await stage.client()
    await start_conversation(stage, client)

    for name in ("sessions", "archived_sessions"):
        assert stat.S_IMODE((stage.home / name).stat().st_mode) == 0o700


async def test_an_unfinished_new_rollout_that_a_kill_left_is_removed(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await start_conversation(stage, client)
    (rollout,) = stage.home.rglob("rollout-*")
    orphan, in_work = uuid7(), uuid7()
    left = rollout.with_name(f".rollout-2026-01-01T00-00-00-{orphan}.jsonl")
    kept = rollout.with_name(f".rollout-2026-01-01T00-00-00-{in_work}.jsonl")
    for path in (left, kept):
        path.write_bytes(b'{"type":"session_meta"')
    lease = Lease.acquire(stage.home, in_work, 0)

    listing = await client.request("thread/list", {})
    assert [thread["id"] for thread in listing["data"]] == [thread_id]
    assert (left.exists(), kept.exists()) == (False, True)
    lease.release()


# -- names that are not UTF-8


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Client]:
    script = home / "script.json"
    answers = {"responses": [[{"type": "says", "text": "ok"}]], "then": "repeat"}
    script.write_text(json.dumps(answers), "utf-8")
    async with over(spawn_server(home, TREADLE_SCRIPT=str(script))) as client:
        yield client


async def test_a_home_whose_name_is_not_utf8_works(tmp_path: Path) -> None:
    """Clients see the bytes that are not UTF-8 as replacement characters, consistently."""
    name = os.fsencode(tmp_path) + b"/h\xff\xfe"
    os.mkdir(name)  # noqa: PTH102  a name in bytes
    home = Path(os.fsdecode(name))
    shown = f"{tmp_path}/h\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    async with serving(home) as client:
        thread_id = await client.start(cwd=str(tmp_path))
        await client.run(thread_id, "hello")
        archived = await client.start()
        await client.run(archived, "bye")
        await client.request("thread/name/set", {"threadId": thread_id, "name": "named"})
        await client.request("thread/archive", {"threadId": archived})
    async with serving(home) as client:
        about = client.received[0]["result"]
        assert about["codexHome"] == shown
        (listed,) = (await client.request("thread/list", {}))["data"]
        assert (listed["id"], listed["name"]) == (thread_id, "named")
        assert listed["path"].startswith(f"{shown}/sessions/")
        found = await client.request("thread/search", {"searchTerm": "hello"})
        assert [hit["thread"]["id"] for hit in found["data"]] == [thread_id]
        assert words(await client.read(thread_id)) == [["hello", "ok"]]
        resumed = await client.request("thread/resume", {"threadId": thread_id})
        assert words(resumed["thread"]) == [["hello", "ok"]]
        await client.run(thread_id, "again")
        forked = await client.request("thread/fork", {"threadId": thread_id})
        assert words(forked["thread"]) == [["hello", "ok"], ["again", "ok"]]
        await client.request("thread/unarchive", {"threadId": archived})
        await client.request("thread/delete", {"threadId": archived})
        listing = await client.request("thread/list", {})
        assert {each["id"] for each in listing["data"]} == {thread_id, forked["thread"]["id"]}


async def test_a_rollout_whose_name_is_not_utf8_hides_no_thread(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await start_conversation(stage, client)
    (rollout,) = stage.home.rglob("rollout-*")
    folder = os.fsencode(rollout.parent)
    for name in (b"/rollout-2026-01-02T03-04-05-\xff\xfe.jsonl", b"/.rollout-\xff.jsonl"):
        os.close(os.open(folder + name, os.O_CREAT | os.O_WRONLY))
    copy = folder + b"/rollout-2026-01-02T03-04-05-\xff.jsonl"
    data = rollout.read_bytes().replace(thread_id.encode(), uuid7().encode())
    descriptor = os.open(copy, os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, data)
    os.close(descriptor)
    os.mkdir(os.fsencode(stage.home) + b"/sessions/\xff")  # noqa: PTH102  a name in bytes

    listing = await client.request("thread/list", {})
    assert thread_id in [thread["id"] for thread in listing["data"]]
    other = next(each for each in listing["data"] if each["id"] != thread_id)
    assert "\N{REPLACEMENT CHARACTER}" in other["path"]
    assert words(await client.read(other["id"])) == [["hello", "hi"]]
