"""`fs/watch`, `fs/unwatch` and `fs/changed`, where the kernel tells of changes and where not."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from treadle.server.files.watch import Watcher
from treadle.server.server import Server

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's inotify")


@pytest.fixture
async def server(home: Path) -> AsyncIterator[Server]:
    async with playing(home, []) as server:
        yield server


@pytest.fixture(
    params=[pytest.param("notified", marks=on_linux), "polled"],
)
async def client(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of a server that is told of changes, or has to look for them."""
    server.watcher = Watcher(polls=request.param == "polled")
    async with client_of(server) as client:
        yield client


@pytest.fixture
async def notified(server: Server) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    write(folder / "f")
    return folder


async def watch(client: Client, path: Path, watch_id: str = "w") -> None:
    params = {"path": str(path), "watchId": watch_id}
    answer = {"path": str(path), "watchId": watch_id}
    assert await client.ask("fs/watch", params) == answer


async def changed(client: Client, *wanted: Path, watch_id: str = "w") -> set[str]:
    """Wait until these paths were told, and give all that were told until then."""
    missing = {str(path) for path in wanted}
    seen: set[str] = set()
    async with asyncio.timeout(20):
        while not seen >= missing:
            told = (await client.until("fs/changed"))[-1]["params"]
            if told["watchId"] == watch_id:
                assert told["changedPaths"] == sorted(set(told["changedPaths"]))
                seen.update(told["changedPaths"])
    return seen


def queues() -> int:
    """How many of the kernel's queues for such news this process has."""
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return links.count("anon_inode:inotify")


def make_folder(path: Path) -> None:
    path.mkdir()


def write(path: Path, text: str = "1") -> None:
    path.write_text(text)


async def test_what_happens_in_a_folder_is_told(client: Client, folder: Path) -> None:
    await watch(client, folder)
    write(folder / "a")
    (folder / "b").mkdir()
    write(folder / "f", "other")
    expected = [folder / "a", folder / "b", folder / "f"]
    assert await changed(client, *expected) == {str(path) for path in expected}
    (folder / "a").rename(folder / "c")
    expected = [folder / "a", folder / "c"]
    assert await changed(client, *expected) == {str(path) for path in expected}


@on_linux
async def test_what_happens_at_once_is_told_at_once(notified: Client, folder: Path) -> None:
    await watch(notified, folder)
    for number in range(50):
        write(folder / f"{number:02}")
        write(folder / f"{number:02}", "2")
    told = (await notified.until("fs/changed"))[-1]
    assert told["params"] == {
        "watchId": "w",
        "changedPaths": [str(folder / f"{number:02}") for number in range(50)],
    }


async def test_what_happens_below_is_not_told(client: Client, folder: Path) -> None:
    """Upstream: a folder's children, not theirs."""
    await watch(client, folder)
    write(folder / "sub" / "deep")
    write(folder / "near")
    assert await changed(client, folder / "near") == {str(folder / "near")}


async def test_changed_rights_are_told(client: Client, folder: Path) -> None:
    await watch(client, folder)
    (folder / "f").chmod(0o600)
    assert await changed(client, folder / "f") == {str(folder / "f")}


async def test_a_file_is_told_whichever_way_it_changes(client: Client, folder: Path) -> None:
    """Upstream hears nothing more of a file that was once replaced."""
    path = folder / "f"
    await watch(client, path)
    write(path, "longer")
    assert await changed(client, path) == {str(path)}
    write(folder / "new", "replacement")
    (folder / "new").rename(path)
    assert await changed(client, path) == {str(path)}
    path.unlink()
    assert await changed(client, path) == {str(path)}
    write(path, "again")
    assert await changed(client, path) == {str(path)}


async def test_other_files_of_the_folder_are_not_told(client: Client, folder: Path) -> None:
    await watch(client, folder / "f")
    write(folder / "other")
    write(folder / "f", "longer")
    assert await changed(client, folder / "f") == {str(folder / "f")}


async def test_a_folder_that_is_made_again_is_told_again(client: Client, folder: Path) -> None:
    await watch(client, folder)
    shutil.rmtree(folder)
    await changed(client, folder)
    make_folder(folder)
    assert await changed(client, folder) == {str(folder)}
    write(folder / "new")
    assert await changed(client, folder / "new") == {str(folder / "new")}


async def test_a_folder_that_is_moved_away_is_not_followed(client: Client, folder: Path) -> None:
    await watch(client, folder / "f")
    shutil.move(folder, folder.with_name("elsewhere"))
    assert await changed(client, folder / "f") == {str(folder / "f")}
    shutil.move(folder.with_name("elsewhere"), folder)
    assert await changed(client, folder / "f") == {str(folder / "f")}


async def test_a_path_can_be_watched_before_it_is_there(client: Client, folder: Path) -> None:
    path = folder / "x" / "y" / "z"
    await watch(client, path)
    path.mkdir(parents=True)
    assert await changed(client, path) == {str(path)}
    write(path / "new")
    assert await changed(client, path / "new") == {str(path / "new")}


async def test_a_path_that_grows_step_by_step_is_told(client: Client, folder: Path) -> None:
    path = folder / "x" / "y"
    await watch(client, path)
    await watch(client, folder, "steps")
    path.parent.mkdir()
    await changed(client, folder / "x", watch_id="steps")
    write(path)
    assert await changed(client, path) == {str(path)}


async def test_changes_behind_a_link_are_told_by_the_path_that_was_asked_for(
    client: Client, folder: Path
) -> None:
    to_folder, to_file = folder.with_name("to-folder"), folder.with_name("to-file")
    to_folder.symlink_to(folder)
    to_file.symlink_to(folder / "f")
    await watch(client, to_folder, "folder")
    await watch(client, to_file, "file")
    await watch(client, to_folder / "f", "through")
    write(folder / "f", "longer")
    assert await changed(client, to_folder / "f", watch_id="folder") == {str(to_folder / "f")}
    write(folder / "f", "longer still")
    assert await changed(client, to_file, watch_id="file") == {str(to_file)}
    write(folder / "f", "longer than that")
    assert await changed(client, to_folder / "f", watch_id="through") == {str(to_folder / "f")}


async def test_a_link_is_told_when_it_leads_elsewhere(client: Client, folder: Path) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder / "missing")
    await watch(client, link)
    write(folder / "missing", "there now")
    assert await changed(client, link) == {str(link)}
    link.unlink()
    link.symlink_to(folder)
    assert str(link) in await changed(client, link)
    write(folder / "new")
    assert await changed(client, link / "new") == {str(link / "new")}


async def test_a_file_that_the_server_writes_is_told_alone(client: Client, folder: Path) -> None:
    """What is beside it while it is being written is nobody's business."""
    await watch(client, folder)
    for data in ("Mg==", "MzM="):
        params = {"path": str(folder / "f"), "dataBase64": data}
        await client.ask("fs/writeFile", params)
        assert await changed(client, folder / "f") == {str(folder / "f")}


async def test_names_that_are_no_text_are_told_as_well_as_can_be(
    client: Client, folder: Path
) -> None:
    await watch(client, folder)
    write(folder / os.fsdecode(b"\xff"))
    assert await changed(client, folder / "\ufffd") == {str(folder / "\ufffd")}


async def test_the_server_makes_up_an_id_if_none_is_given(client: Client, folder: Path) -> None:
    """As in 0.118: the answer names it."""
    answer = await client.ask("fs/watch", {"path": f"{folder}/sub/.."})
    watch_id = answer.pop("watchId")
    assert answer == {"path": str(folder)}
    write(folder / "new")
    assert await changed(client, folder / "new", watch_id=watch_id) == {str(folder / "new")}


async def test_an_id_is_taken_until_its_watch_ends(client: Client, folder: Path) -> None:
    await watch(client, folder)
    error = await client.refusal("fs/watch", {"path": str(folder / "sub"), "watchId": "w"})
    assert (error.code, error.message) == (-32600, "watchId already exists: w")
    assert error.data == {"kind": "watchExists"}
    assert await client.ask("fs/unwatch", {"watchId": "w"}) == {}
    await watch(client, folder / "sub")


async def test_a_watch_that_ended_tells_no_more(client: Client, folder: Path) -> None:
    await watch(client, folder, "ended")
    await watch(client, folder)
    assert await client.ask("fs/unwatch", {"watchId": "ended"}) == {}
    for name in ("a", "b"):
        write(folder / name)
        await changed(client, folder / name)
    told = [each["params"] for each in client.heard if each.get("method") == "fs/changed"]
    assert {each["watchId"] for each in told} == {"w"}


async def test_ending_a_watch_that_is_not_there_does_nothing(client: Client) -> None:
    assert await client.ask("fs/unwatch", {"watchId": "never"}) == {}


async def test_each_client_has_its_own_watches(
    client: Client, server: Server, folder: Path
) -> None:
    await watch(client, folder)
    async with client_of(server) as other:
        await watch(other, folder / "sub")
        write(folder / "sub" / "a")
        assert await changed(other, folder / "sub" / "a") == {str(folder / "sub" / "a")}
    write(folder / "b")
    assert await changed(client, folder / "b") == {str(folder / "b")}


async def test_nothing_is_left_of_the_watches_of_a_client_that_is_gone(
    server: Server, folder: Path
) -> None:
    before = asyncio.all_tasks()
    async with client_of(server) as client:
        await watch(client, folder, "a")
        await watch(client, folder / "f", "b")
        await watch(client, folder / "missing" / "x", "c")
        write(folder / "f", "longer")
        await changed(client, folder / "f", watch_id="a")
    assert asyncio.all_tasks() <= before
    if sys.platform == "linux":
        assert queues() == 0


@on_linux
async def test_any_number_of_watches_takes_one_queue(notified: Client, folder: Path) -> None:
    """A user has few of them, and every program takes some."""
    for number in range(200):
        await watch(notified, folder / "sub" / str(number), str(number))
    assert queues() == 1
    write(folder / "sub" / "199")
    await changed(notified, folder / "sub" / "199", watch_id="199")
    for number in range(200):
        await notified.ask("fs/unwatch", {"watchId": str(number)})
    await notified.settled()
    assert queues() == 0


@on_linux
async def test_where_the_kernel_watches_no_more_the_path_is_looked_at(
    notified: Client, folder: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        await watch(notified, folder / "f")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert queues() == 0
    write(folder / "f", "longer")
    assert await changed(notified, folder / "f") == {str(folder / "f")}


@on_linux
async def test_changes_that_are_too_many_to_tell_are_told_as_one(
    notified: Client, folder: Path
) -> None:
    """What the kernel drops is lost for the names, not for the client."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())  # noqa: ASYNC240
    if limit > 100_000:
        pytest.skip("the queue is too long to be filled")
    await watch(notified, folder)
    write(folder / "g")
    for number in range(limit):
        (folder / "fg"[number % 2]).chmod(0o600)
    write(folder / "unheard")
    assert str(folder) in await changed(notified, folder)
