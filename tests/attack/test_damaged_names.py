"""Whatever is stored in the place of thread titles, every thread is listed and resumed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.threads import Stage
from treadle.store.index import names

SECONDS = 20


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


KINDS: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link below a file": lambda path: path.symlink_to("/dev/null/x"),
    "a terabyte": make_sparse,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_unreadable_titles_hide_no_thread(stage: Stage, kind: str) -> None:
    client = await stage.client()
    stage.model.plays(says("hi"))
    thread_id = await client.start()
    await client.run(thread_id)
    await client.request("thread/name/set", {"threadId": thread_id, "name": "title"})
    # The server has read the titles, so it checks for changes behind them.
    await client.request("thread/list", {})
    await stage.restart()
    path = stage.home / names.FILE_NAME
    path.unlink()
    KINDS[kind](path)

    client = await stage.client()
    async with asyncio.timeout(SECONDS):
        listed = await client.request("thread/list", {})
        await client.request("thread/resume", {"threadId": thread_id})
        thread = await client.read(thread_id)
    assert [each["id"] for each in listed["data"]] == [thread_id]
    assert len(thread["turns"]) == 1


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to itself"])
async def test_a_title_that_cannot_be_stored_is_refused(stage: Stage, kind: str) -> None:
    client = await stage.client()
    thread_id = await client.start()
    KINDS[kind](stage.home / names.FILE_NAME)

    async with asyncio.timeout(SECONDS):
        params = {"threadId": thread_id, "name": "title"}
        refusal = await client.refusal("thread/name/set", params)
    assert refusal.kind == "io"


def test_a_long_file_is_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "PIECE_BYTES", 100)
    (tmp_path / names.FILE_NAME).write_bytes(
        b'{"id": "a", "thread_name": "A"}\n' + b"x" * 250 + b'\n{"id": "b", "thread_name": "B"}\n'
    )

    titles: dict[str, str | None] = {}
    offset, before = 0, -1
    while offset != before:
        before = offset
        offset, more = names.read_names(tmp_path, offset)
        titles |= more
    assert titles == {"a": "A", "b": "B"}
