"""Watches of files: a limited number, a limited report, and requests are answered in between.

A program that changes files decides how many changes there are, and a client how many
watches there are and whether it reads. No test measures time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from treadle.connection.connection import Connection
from treadle.server.files.shared_path import MAX_CHANGES
from treadle.server.files.watch import NotifiedSource, Watcher
from treadle.server.folder_limits import MAX_COMPONENTS
from treadle.server.handlers.fs import MAX_WATCHES
from treadle.server.server import Server

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's inotify")
both = pytest.mark.parametrize("polls", [pytest.param(False, marks=on_linux), True])

FILES = 2000
# Up to 256 changes are processed at once, and an answer takes a few rounds of the event loop.
MAX_STEP = 1000
MAX_NOTIFICATIONS = 20


@pytest.fixture
async def server(home: Path) -> AsyncIterator[Server]:
    async with playing(home, []) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def make_files(folder: Path, count: int, prefix: str = "f") -> None:
    for number in range(count):
        (folder / f"{prefix}{number}").touch()


async def test_a_client_has_a_limited_number_of_watches(server: Server, folder: Path) -> None:
    params = {"path": str(folder)}
    async with client_of(server) as client, client_of(server) as other:
        for number in range(MAX_WATCHES):
            await client.request("fs/watch", {**params, "watchId": f"{number}"})
        error = await client.refusal("fs/watch", params)
        assert error.message == f"too many watches: a client may have at most {MAX_WATCHES}"
        assert error.data == {"kind": "tooManyWatches", "limit": MAX_WATCHES}

        await other.request("fs/watch", params)
        await client.request("fs/unwatch", {"watchId": "0"})
        await client.refusal("fs/watch", {**params, "watchId": "1"})
        await client.refusal("fs/watch", {"path": f"{folder}/{'x' * 300}/..\0", "watchId": "w"})
        await client.request("fs/watch", {**params, "watchId": "w"})


async def test_the_path_of_a_watch_has_a_limited_depth(server: Server) -> None:
    async with client_of(server) as client:
        error = await client.refusal("fs/watch", {"path": "/a" * (MAX_COMPONENTS + 1)})
    assert error.data == {"kind": "invalidParams", "path": "path"}


@on_linux
async def test_requests_are_answered_while_many_changes_are_reported_to_many_watches(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 new files in a folder with 500 watches once delayed an answer by ten seconds."""
    steps = {"changes": 0, "notifications": 0}
    on_change, notify = NotifiedSource.on_change, Connection.notify

    def counted_change(source: NotifiedSource, number: int, name: str) -> None:
        steps["changes"] += 1
        on_change(source, number, name)

    async def counted_notify(*args: object, **kwargs: object) -> None:
        steps["notifications"] += 1
        await notify(*args, **kwargs)  # type: ignore[arg-type] # passed on as they are

    monkeypatch.setattr(NotifiedSource, "on_change", counted_change)
    monkeypatch.setattr(Connection, "notify", counted_notify)
    answered_at: list[dict[str, int]] = []
    async with client_of(server) as client, client_of(server) as other:
        for number in range(MAX_WATCHES):
            await client.request("fs/watch", {"path": str(folder), "watchId": f"{number}"})

        async def keep_asking() -> None:
            while True:
                await other.request("thread/loaded/list", {})
                answered_at.append(dict(steps))

        async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
            asking = tasks.create_task(keep_asking())
            make_files(folder, FILES)
            notified: set[str] = set()
            while len(notified) < MAX_WATCHES:
                change = (await client.until("fs/changed"))[-1]["params"]
                assert change["changedPaths"] == [str(folder)]
                notified.add(change["watchId"])
            asking.cancel()

    for kind, limit in {"changes": MAX_STEP, "notifications": MAX_NOTIFICATIONS}.items():
        counts = [each[kind] for each in answered_at]
        assert max(later - earlier for earlier, later in pairwise(counts)) <= limit


@both
async def test_too_many_changes_are_reported_by_the_watched_path(folder: Path, polls: bool) -> None:
    watch = await Watcher(polls=polls).watch(str(folder))
    try:
        make_files(folder, MAX_CHANGES + 1)
        assert list(await changes_of(watch)) == [str(folder)]
        (folder / "later").touch()
        assert str(folder / "later") in await changes_of(watch)
    finally:
        watch.end()


@both
async def test_changes_that_a_client_does_not_read_are_limited(folder: Path, polls: bool) -> None:
    """34,000 short-lived names once took 270 MB."""
    watcher = Watcher(polls=polls)
    slow, fast = await watcher.watch(str(folder)), await watcher.watch(str(folder))
    try:
        count = MAX_CHANGES // 2 + 1
        for prefix in "ab":
            make_files(folder, count, prefix)
            last = str(folder / f"{prefix}{count - 1}")
            while last not in await changes_of(fast):
                pass
        assert list(await changes_of(slow)) == [str(folder)]
    finally:
        slow.end()
        fast.end()


async def changes_of(watch: object) -> list[str]:
    async with asyncio.timeout(20):
        while not (changes := await watch.changes()):  # type: ignore[attr-defined] # also older ones
            pass
    return list(changes)


@on_linux
async def test_watches_of_one_path_share_its_changes(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that ends while it collects for the others leaves that to the next one."""
    async with client_of(server) as client, client_of(server) as other:
        for each in (client, other):
            await each.request("fs/watch", {"path": str(folder), "watchId": "first"})
            await each.request("fs/watch", {"path": str(folder), "watchId": "second"})
        (folder / "a").touch()
        await client.request("fs/unwatch", {"watchId": "first"})
        for each, watch_id in ((client, "second"), (other, "first"), (other, "second")):
            while True:
                change = (await each.until("fs/changed"))[-1]["params"]
                if change["watchId"] == watch_id:
                    break
            assert change["changedPaths"] == [str(folder / "a")]
