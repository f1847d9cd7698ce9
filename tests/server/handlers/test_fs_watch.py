"""`fs/watch`, `fs/unwatch` and `fs/changed`, with and without notifications of the kernel."""

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
    """Return a client of a server that uses inotify, or one that polls."""
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


def canonical(path: Path) -> Path:
    return path.resolve() if path.exists() else path


async def watch(client: Client, path: Path, watch_id: str = "w") -> None:
    params = {"path": str(path), "watchId": watch_id}
    answer = {"path": str(canonical(path)), "watchId": watch_id}
    assert await client.request("fs/watch", params) == answer


async def wait_for_changes(client: Client, *expected_paths: Path, watch_id: str = "w") -> set[str]:
    """Wait until these paths were reported, and return all that were reported until then."""
    missing = {str(path) for path in expected_paths}
    seen: set[str] = set()
    async with asyncio.timeout(20):
        while not seen >= missing:
            notification = (await client.until("fs/changed"))[-1]["params"]
            if notification["watchId"] == watch_id:
                assert notification["changedPaths"] == sorted(set(notification["changedPaths"]))
                seen.update(notification["changedPaths"])
    return seen


def queues() -> int:
    """Return how many inotify queues this process has."""
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return links.count("anon_inode:inotify")


def make_folder(path: Path) -> None:
    path.mkdir()


def write(path: Path, text: str = "1") -> None:
    path.write_text(text)


async def test_changes_in_a_folder_are_reported(client: Client, folder: Path) -> None:
    await watch(client, folder)
    write(folder / "a")
    (folder / "b").mkdir()
    write(folder / "f", "other")
    expected = [folder / "a", folder / "b", folder / "f"]
    assert await wait_for_changes(client, *expected) == {str(path) for path in expected}
    (folder / "a").rename(folder / "c")
    expected = [folder / "a", folder / "c"]
    assert await wait_for_changes(client, *expected) == {str(path) for path in expected}


@on_linux
async def test_simultaneous_changes_are_reported_together(notified: Client, folder: Path) -> None:
    await watch(notified, folder)
    for number in range(50):
        write(folder / f"{number:02}")
        write(folder / f"{number:02}", "2")
    notification = (await notified.until("fs/changed"))[-1]
    assert notification["params"] == {
        "watchId": "w",
        "changedPaths": [str(folder / f"{number:02}") for number in range(50)],
    }


async def test_changes_in_subfolders_are_not_reported(client: Client, folder: Path) -> None:
    """Upstream: a folder's children, not their children."""
    await watch(client, folder)
    write(folder / "sub" / "deep")
    write(folder / "near")
    assert await wait_for_changes(client, folder / "near") == {str(folder / "near")}


async def test_changed_permissions_are_reported(client: Client, folder: Path) -> None:
    await watch(client, folder)
    (folder / "f").chmod(0o600)
    assert await wait_for_changes(client, folder / "f") == {str(folder / "f")}


async def test_every_kind_of_change_to_a_file_is_reported(client: Client, folder: Path) -> None:
    """Upstream reports nothing more about a file that was once replaced."""
    path = folder / "f"
    await watch(client, path)
    write(path, "longer")
    assert await wait_for_changes(client, path) == {str(path)}
    write(folder / "new", "replacement")
    (folder / "new").rename(path)
    assert await wait_for_changes(client, path) == {str(path)}
    path.unlink()
    assert await wait_for_changes(client, path) == {str(path)}
    write(path, "again")
    assert await wait_for_changes(client, path) == {str(path)}


async def test_other_files_of_the_folder_are_not_reported(client: Client, folder: Path) -> None:
    await watch(client, folder / "f")
    write(folder / "other")
    write(folder / "f", "longer")
    assert await wait_for_changes(client, folder / "f") == {str(folder / "f")}


async def test_a_folder_that_is_created_again_is_reported_again(
    client: Client, folder: Path
) -> None:
    await watch(client, folder)
    shutil.rmtree(folder)
    await wait_for_changes(client, folder)
    make_folder(folder)
    assert await wait_for_changes(client, folder) == {str(folder)}
    write(folder / "new")
    assert await wait_for_changes(client, folder / "new") == {str(folder / "new")}


async def test_a_folder_that_is_moved_away_is_not_followed(client: Client, folder: Path) -> None:
    await watch(client, folder / "f")
    shutil.move(folder, folder.with_name("elsewhere"))
    assert await wait_for_changes(client, folder / "f") == {str(folder / "f")}
    shutil.move(folder.with_name("elsewhere"), folder)
    assert await wait_for_changes(client, folder / "f") == {str(folder / "f")}


async def test_a_path_can_be_watched_before_it_exists(client: Client, folder: Path) -> None:
    path = folder / "x" / "y" / "z"
    await watch(client, path)
    path.mkdir(parents=True)
    assert await wait_for_changes(client, path) == {str(path)}
    write(path / "new")
    assert await wait_for_changes(client, path / "new") == {str(path / "new")}


async def test_a_path_that_is_created_step_by_step_is_reported(
    client: Client, folder: Path
) -> None:
    path = folder / "x" / "y"
    await watch(client, path)
    await watch(client, folder, "steps")
    path.parent.mkdir()
    await wait_for_changes(client, folder / "x", watch_id="steps")
    write(path)
    assert await wait_for_changes(client, path) == {str(path)}


async def test_changes_behind_a_link_are_reported_by_the_path_of_the_answer(
    client: Client, folder: Path
) -> None:
    to_folder, to_file = folder.with_name("to-folder"), folder.with_name("to-file")
    to_folder.symlink_to(folder)
    to_file.symlink_to(folder / "f")
    await watch(client, to_folder, "folder")
    await watch(client, to_file, "file")
    await watch(client, to_folder / "f", "through")
    write(folder / "f", "longer")
    for watch_id in ("folder", "file", "through"):
        changed = await wait_for_changes(client, folder / "f", watch_id=watch_id)
        assert changed == {str(folder / "f")}
        write(folder / "f", f"longer than {watch_id}")


async def test_a_redirected_link_is_reported(client: Client, folder: Path) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder / "missing")
    await watch(client, link)
    write(folder / "missing", "there now")
    assert await wait_for_changes(client, link) == {str(link)}
    link.unlink()
    link.symlink_to(folder)
    assert str(link) in await wait_for_changes(client, link)
    write(folder / "new")
    assert await wait_for_changes(client, link / "new") == {str(link / "new")}


async def test_a_file_that_the_server_writes_is_reported_alone(
    client: Client, folder: Path
) -> None:
    """The temporary file beside it is not reported."""
    await watch(client, folder)
    for data in ("Mg==", "MzM="):
        params = {"path": str(folder / "f"), "dataBase64": data}
        await client.request("fs/writeFile", params)
        assert await wait_for_changes(client, folder / "f") == {str(folder / "f")}


async def test_names_that_are_not_utf_8_are_reported_approximately(
    client: Client, folder: Path
) -> None:
    await watch(client, folder)
    write(folder / os.fsdecode(b"\xff"))
    assert await wait_for_changes(client, folder / "\ufffd") == {str(folder / "\ufffd")}


async def test_the_server_generates_an_id_if_none_is_given(client: Client, folder: Path) -> None:
    """As in 0.118: the answer names it."""
    answer = await client.request("fs/watch", {"path": f"{folder}/sub/.."})
    watch_id = answer.pop("watchId")
    assert answer == {"path": str(folder)}
    write(folder / "new")
    assert await wait_for_changes(client, folder / "new", watch_id=watch_id) == {
        str(folder / "new")
    }


async def test_an_id_is_in_use_until_its_watch_ends(client: Client, folder: Path) -> None:
    await watch(client, folder)
    error = await client.refusal("fs/watch", {"path": str(folder / "sub"), "watchId": "w"})
    assert (error.code, error.message) == (-32600, "watchId already exists: w")
    assert error.data == {"kind": "watchExists"}
    assert await client.request("fs/unwatch", {"watchId": "w"}) == {}
    await watch(client, folder / "sub")


async def test_a_watch_that_ended_reports_no_more(client: Client, folder: Path) -> None:
    await watch(client, folder, "ended")
    await watch(client, folder)
    assert await client.request("fs/unwatch", {"watchId": "ended"}) == {}
    for name in ("a", "b"):
        write(folder / name)
        await wait_for_changes(client, folder / name)
    notification = [
        each["params"] for each in client.received if each.get("method") == "fs/changed"
    ]
    assert {each["watchId"] for each in notification} == {"w"}


async def test_ending_an_unknown_watch_does_nothing(client: Client) -> None:
    assert await client.request("fs/unwatch", {"watchId": "never"}) == {}


async def test_each_client_has_its_own_watches(
    client: Client, server: Server, folder: Path
) -> None:
    await watch(client, folder)
    async with client_of(server) as other:
        await watch(other, folder / "sub")
        write(folder / "sub" / "a")
        assert await wait_for_changes(other, folder / "sub" / "a") == {str(folder / "sub" / "a")}
    write(folder / "b")
    assert await wait_for_changes(client, folder / "b") == {str(folder / "b")}


async def test_nothing_remains_of_the_watches_of_a_disconnected_client(
    server: Server, folder: Path
) -> None:
    before = asyncio.all_tasks()
    async with client_of(server) as client:
        await watch(client, folder, "a")
        await watch(client, folder / "f", "b")
        await watch(client, folder / "missing" / "x", "c")
        write(folder / "f", "longer")
        await wait_for_changes(client, folder / "f", watch_id="a")
    assert asyncio.all_tasks() <= before
    if sys.platform == "linux":
        assert queues() == 0


@on_linux
async def test_any_number_of_watches_uses_one_queue(notified: Client, folder: Path) -> None:
    """A user has a limited number of queues, shared by all programs."""
    for number in range(200):
        await watch(notified, folder / "sub" / str(number), str(number))
    assert queues() == 1
    write(folder / "sub" / "199")
    await wait_for_changes(notified, folder / "sub" / "199", watch_id="199")
    for number in range(200):
        await notified.request("fs/unwatch", {"watchId": str(number)})
    await notified.settled()
    assert queues() == 0


@on_linux
async def test_a_path_that_the_kernel_cannot_watch_is_polled(
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
    assert await wait_for_changes(notified, folder / "f") == {str(folder / "f")}


@on_linux
async def test_too_many_changes_are_reported_as_one(notified: Client, folder: Path) -> None:
    """Events that the kernel drops lose the names, not the notification."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())  # noqa: ASYNC240
    if limit > 100_000:
        pytest.skip("the queue is too long to be filled")
    await watch(notified, folder)
    write(folder / "g")
    for number in range(limit):
        (folder / "fg"[number % 2]).chmod(0o600)
    write(folder / "unheard")
    assert str(folder) in await wait_for_changes(notified, folder)


async def test_paths_are_reported_without_links_on_the_way(client: Client, folder: Path) -> None:
    """Upstream documents a canonical path in the answer; ours also has one in the changes."""
    link = folder.parent / "link"
    link.symlink_to(folder)
    params = {"path": str(link / "sub" / ".." / "f"), "watchId": "w"}
    answer = await client.request("fs/watch", params)
    write(folder / "f", "changed")

    assert answer == {"path": str(folder / "f"), "watchId": "w"}
    assert await wait_for_changes(client, folder / "f") == {str(folder / "f")}


async def test_changes_below_a_link_have_the_path_of_the_answer(
    client: Client, folder: Path
) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    answer = await client.request("fs/watch", {"path": str(link), "watchId": "w"})
    write(folder / "new")

    assert answer["path"] == str(folder)
    assert str(folder / "new") in await wait_for_changes(client, folder / "new")
