"""Damage in one stored file stays there: every other thread is listed, read and resumed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.harness.model_server import Reply, calls, created, done, says
from tests.harness.sandbox import SANDBOX
from tests.harness.scripted import client_of
from tests.harness.threads import Client, Stage, words
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.store.rollout import loader as loading
from treadle.store.rollout import reading
from treadle.store.store import Store
from treadle.store.stored_thread import ThreadQuery
from treadle.support.ids import uuid7

SECONDS = 20


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def folder_of(stage: Stage) -> Path:
    folder = stage.home / "sessions/2026/01/02"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def rollout(stage: Stage) -> Path:
    return folder_of(stage) / f"rollout-2026-01-02T03-04-05-{uuid7()}.jsonl"


async def listed(client: Client, **params: JsonValue) -> list[str]:
    async with asyncio.timeout(SECONDS):
        answer = await client.request("thread/list", params)
    return [thread["id"] for thread in answer["data"]]


async def start_conversation(stage: Stage, client: Client, text: str = "hello") -> tuple[str, Path]:
    """Start a thread with one turn; return its id and its rollout."""
    stage.model.plays(says("hi"))
    thread_id = await client.start()
    await client.run(thread_id, text)
    thread = await client.read(thread_id)
    return thread_id, Path(thread["path"])


# -- odd files in the place of a rollout


def make_directory(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def make_link_loop(path: Path) -> None:
    path.symlink_to(path)


def make_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def make_unreadable(path: Path) -> None:
    path.write_bytes(b"{}\n")
    path.chmod(0)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 33)


def holding(content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


ODD_FILES: dict[str, Callable[[Path], None]] = {
    "directory": make_directory,
    "pipe": make_pipe,
    "socket": make_socket,
    "link loop": make_link_loop,
    "link to a device": make_link_to_device,
    "link to nothing": make_link_to_nothing,
    "unreadable": make_unreadable,
    "sparse": make_sparse,
    "empty": holding(b""),
    "blank": holding(b" \n\t\r\n  "),
    "NUL bytes": holding(bytes(5000)),
    "no UTF-8": holding(b"\xff\xfe" * 5000),
    "only deep": holding(deep(100_000) + b"\n"),
    "deep first line": holding(b'{"type":"session_meta","payload":' + deep(20_000) + b"}\n"),
    "endless line": holding(b'{"type":"session_meta","payload":"' + b"x" * 5_000_000),
    "huge numbers": holding(b'{"type":"session_meta","timestamp":1e999}\n' + b"9" * 5000 + b"\n"),
}


@pytest.mark.parametrize("kind", ODD_FILES)
async def test_odd_files_hide_no_thread(stage: Stage, kind: str) -> None:
    client = await stage.client()
    thread_id, _ = await start_conversation(stage, client)
    ODD_FILES[kind](rollout(stage))

    assert await listed(client) == [thread_id]
    await stage.restart()
    client = await stage.client()
    assert await listed(client) == [thread_id]
    assert words(await client.read(thread_id)) == [["hello", "hi"]]


@pytest.mark.parametrize("kind", ["directory", "pipe", "link loop", "link to a device"])
async def test_odd_files_cannot_be_resumed_by_path(stage: Stage, kind: str) -> None:
    client = await stage.client()
    path = rollout(stage)
    ODD_FILES[kind](path)

    for method in ("thread/resume", "thread/fork"):
        async with asyncio.timeout(SECONDS):
            refused = await client.refusal(method, {"threadId": uuid7(), "path": str(path)})
        assert refused.kind in ("threadNotFound", "threadCorrupt")


@pytest.mark.parametrize(
    "place", ["sessions", "sessions/2026", "sessions/2026/01", "archived_sessions"]
)
@pytest.mark.parametrize("kind", ["pipe", "link loop", "link to a device", "unreadable"])
async def test_odd_folders_do_not_break_a_list(stage: Stage, place: str, kind: str) -> None:
    client = await stage.client()
    path = stage.home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    ODD_FILES[kind](path)

    assert await listed(client) == []


# -- lines of one thread

EVENT = b'{"timestamp":"2026-01-02T03:04:05.000Z","type":"event_msg","payload":%b}\n'
ODD_LINES = {
    "deep": EVENT % deep(20_000),
    "deep enough to be decoded but not to be sent": EVENT % deep(9_990),
    "deep objects": EVENT % (b'{"a":' * 3000 + b"1" + b"}" * 3000),
    "deep mark": b'{"type":"treadle","treadle":' + deep(20_000) + b"}\n",
    "never closed": b'{"type":"event_msg","payload":' + b"[" * 50_000 + b"\n",
    "NUL": b'{"type":"event_msg\x00"}\n\x00\x00\n',
    "no UTF-8": b'{"type":"event_msg","payload":{"type":"\xff\xfe"}}\n',
    "lone surrogate": EVENT % b'{"type":"agent_message","message":5,"x":"\\ud800"}',
    "huge float": EVENT % b'{"type":"token_count","info":1e999}',
    "huge number": EVENT % (b'{"type":"task_complete","completed_at":' + b"9" * 5000 + b"}"),
    "large number": b'{"type":"event_msg","ordinal":' + b"9" * 300 + b"}\n",
    "duplicate keys": b'{"type":"event_msg","type":"event_msg","payload":{},"payload":{}}\n',
    "byte order mark": b"\xef\xbb\xbf" + EVENT % b"{}",
    "CRLF": EVENT[:-1] % b"{}" + b"\r\n",
    "wrong types": EVENT % b'{"type":"task_complete","turn_id":[[]],"error":{"message":[]}}',
    "wrong record": b'{"type":"treadle","treadle":{"record":"askOpened","id":[]}}\n',
    "wrong event": b'{"type":"treadle","treadle":{"record":"event","seq":1,"at_ms":1,'
    b'"method":"item/started","params":{"item":{"id":"x"},"startedAtMs":1,"turnId":"t"}}}\n',
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD_LINES)
async def test_a_bad_line_loses_only_itself(stage: Stage, kind: str) -> None:
    client = await stage.client()
    other, _ = await start_conversation(stage, client, "other")
    thread_id, path = await start_conversation(stage, client)
    await stage.restart()
    with path.open("ab") as file:
        file.write(ODD_LINES[kind])
    client = await stage.client()

    assert set(await listed(client)) == {thread_id, other}
    assert words(await client.read(thread_id)) == [["hello", "hi"]]
    answer = await client.request("thread/search", {"searchTerm": "hello"})
    assert [found["thread"]["id"] for found in answer["data"]] == [thread_id]
    resumed = await client.request("thread/resume", {"threadId": thread_id})
    assert words(resumed["thread"]) == [["hello", "hi"]]
    stage.model.plays(says("good"))
    await client.run(thread_id, "still there?")
    assert words(await client.read(thread_id)) == [["hello", "hi"], ["still there?", "good"]]


async def test_a_line_that_is_too_long_is_skipped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 200_000)
    client = await stage.client()
    thread_id, path = await start_conversation(stage, client)
    await stage.restart()
    with path.open("ab") as file:
        file.write(EVENT % (b'{"type":"agent_message","message":"' + b"x" * 300_000 + b'"}'))
        file.write(EVENT % b'{"type":"agent_message","message":"after it"}')
    client = await stage.client()

    assert await listed(client) == [thread_id]
    assert words(await client.read(thread_id))[-1] == ["after it"]


async def test_a_rollout_that_is_too_large_is_refused_by_size(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MAX_ROLLOUT_BYTES", 100_000)
    client = await stage.client()
    thread_id, path = await start_conversation(stage, client)
    await stage.restart()
    with path.open("ab") as file:
        file.write(EVENT % (b'"' + b"x" * 100_000 + b'"'))
    client = await stage.client()

    assert await listed(client) == [thread_id]
    for method in ("thread/resume", "thread/fork", "thread/turns/list"):
        refused = await client.refusal(method, {"threadId": thread_id})
        assert refused.kind == "threadTooLarge"
        assert (refused.data["size"], refused.data["limit"]) == (path.stat().st_size, 100_000)


# -- whatever is stored can be read again


def nested(levels: int) -> JsonValue:
    value: JsonValue = "bottom"
    for _ in range(levels):
        value = [value]
    return value


async def test_deep_params_are_refused(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    for method, params in {
        "thread/start": {"config": {"x": nested(500)}},
        "turn/start": {"threadId": thread_id, "input": [], "outputSchema": nested(5000)},
        "thread/inject_items": {"threadId": thread_id, "items": [{"type": "x", "y": nested(150)}]},
    }.items():
        refused = await client.refusal(method, params)
        assert "nested deeper than 128 levels" in refused.message


async def test_a_deep_call_of_a_client_tool_leaves_its_thread_readable(stage: Stage) -> None:
    client = await stage.client()
    tool = {
        "type": "function",
        "name": "probe",
        "description": "",
        "inputSchema": {"type": "object"},
    }
    thread_id = await client.start(dynamicTools=[tool])
    levels = 9_990
    arguments = '{"a":' * levels + "1" + "}" * levels
    stage.model.plays(calls("probe", arguments), says("refused"))
    messages = await client.run(thread_id)

    assert [message for message in messages if message.get("method") == "item/tool/call"] == []
    outputs = (await stage.model.wait_for_request(2)).outputs()
    assert "nested deeper than 128 levels" in json.dumps(outputs)
    await stage.restart()
    client = await stage.client()
    assert words(await client.read(thread_id)) == [["hi", "refused"]]


async def test_a_deep_item_of_the_model_leaves_its_thread_readable(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    item = {"type": "web_search_call", "id": "w", "status": "completed", "action": nested(900)}
    stage.model.plays(Reply([created(), done(item), *says("done").steps]))
    await client.run(thread_id)
    await stage.restart()
    client = await stage.client()

    assert words(await client.read(thread_id)) == [["hi", "done"]]


# -- the index


def overwrite(path: Path, data: bytes, offset: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def zero_pages(path: Path) -> None:
    """Zero every page but the first, which has the schema."""
    overwrite(path, bytes(path.stat().st_size - 4096), 4096)


def fill_pages(path: Path) -> None:
    overwrite(path, b"\xa5" * (path.stat().st_size - 4096), 4096)


def replace_by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def drop_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("drop table threads")
        connection.execute("drop table folders")
    connection.close()


def spoil_rows(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("update threads set meta = x'00ff', path = 5")
    connection.close()


def spoil_log(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"\xa5" * 100_000)
    path.with_name(path.name + "-shm").write_bytes(b"\xa5" * 32_768)


def put_folders_beside(path: Path) -> None:
    for suffix in ("-wal", "-shm", ".lock"):
        beside = path.with_name(path.name + suffix)
        beside.unlink(missing_ok=True)
        beside.mkdir()
        (beside / "full").touch()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"no database" * 1000),
    "empty": lambda path: path.write_bytes(b""),
    "header": lambda path: overwrite(path, b"\xff" * 100),
    "cut": lambda path: os.truncate(path, 5000),
    "zeroed pages": zero_pages,
    "filled pages": fill_pages,
    "tables": drop_tables,
    "rows": spoil_rows,
    "log": spoil_log,
    "folders beside": put_folders_beside,
    "directory": replace_by(make_directory),
    "pipe": replace_by(make_pipe),
    "link loop": replace_by(make_link_loop),
    "link to a device": replace_by(make_link_to_device),
    "unreadable": lambda path: path.chmod(0),
}


@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_damaged_index_is_rebuilt(stage: Stage, kind: str) -> None:
    client = await stage.client()
    first, _ = await start_conversation(stage, client, "one")
    second, _ = await start_conversation(stage, client, "two")
    await client.request("thread/name/set", {"threadId": first, "name": "named"})
    await client.request("thread/archive", {"threadId": second})
    assert await listed(client) == [first]
    await stage.close()
    DAMAGES[kind](stage.home / "treadle.sqlite")

    await stage.restart()
    client = await stage.client()
    assert await listed(client) == [first]
    assert await listed(client, archived=True) == [second]
    assert await listed(client, searchTerm="named") == [first]
    answer = await client.request("thread/search", {"searchTerm": "one"})
    assert [found["thread"]["id"] for found in answer["data"]] == [first]
    third, _ = await start_conversation(stage, client, "three")
    assert set(await listed(client)) == {first, third}


@pytest.mark.parametrize("kind", ["garbage", "zeroed pages", "filled pages", "tables", "rows"])
async def test_an_index_that_is_damaged_in_use_is_rebuilt(stage: Stage, kind: str) -> None:
    client = await stage.client()
    threads = {(await start_conversation(stage, client, f"word{number}"))[0] for number in range(3)}
    assert set(await listed(client)) == threads
    DAMAGES[kind](stage.home / "treadle.sqlite")

    # Another server finds the damage first and replaces the file.
    other = Server(sandbox=SANDBOX, configuration=Configuration(stage.home))
    async with client_of(other) as beside:
        assert set(await listed(beside)) == threads
    await other.close()
    assert set(await listed(client)) == threads
    added, _ = await start_conversation(stage, client, "after it")
    assert set(await listed(client)) == threads | {added}
    answer = await client.request("thread/search", {"searchTerm": "word1"})
    assert len(answer["data"]) == 1


async def test_damage_to_any_page_of_the_index_is_survived(stage: Stage) -> None:
    client = await stage.client()
    threads = {(await start_conversation(stage, client, f"word{number}"))[0] for number in range(3)}
    await listed(client)
    await client.request("thread/search", {"searchTerm": "word"})
    await stage.close()
    path = stage.home / "treadle.sqlite"
    whole = await asyncio.to_thread(path.read_bytes)

    for page in range(0, len(whole), 4096):
        await asyncio.to_thread(path.write_bytes, whole)
        await asyncio.to_thread(overwrite, path, b"\xa5" * 4096, page)
        store = Store(stage.home)
        found = await store.run(partial(store.list, ThreadQuery()))
        store.close()
        assert {meta.id for meta in found.data} == threads, page // 4096
