"""`fs/*` for folders, metadata, removing and copying, and the state of the disk afterwards."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.files import (
    EXISTS,
    IS_A_DIRECTORY,
    NO_SUCH_FILE,
    NOT_A_DIRECTORY,
    Refusal,
    furnish,
    refused,
    tree,
)
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from treadle.protocol.base import JsonValue
from treadle.server.files import copying


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    async with playing(home, []) as server, client_of(server) as client:
        yield client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return furnish(tmp_path / "root")


async def copy(client: Client, source: Path, destination: Path, **options: JsonValue) -> None:
    params = {"sourcePath": str(source), "destinationPath": str(destination), **options}
    assert await client.request("fs/copy", params) == {}


# -- folders


async def test_a_folder_is_created_with_its_parents(client: Client, root: Path) -> None:
    path = root / "x" / "y" / "z"
    for _ in range(2):
        assert await client.request("fs/createDirectory", {"path": str(path)}) == {}
    assert path.is_dir()


@pytest.mark.parametrize(
    ("name", "recursive", "expected"),
    [
        ("x/y", False, NO_SUCH_FILE),
        ("d", False, EXISTS),
        ("f", True, EXISTS),
        ("nowhere", True, EXISTS),
        ("f/x", True, NOT_A_DIRECTORY),
    ],
)
async def test_a_folder_that_cannot_be_created_is_refused_with_a_reason(
    client: Client, root: Path, name: str, recursive: bool, expected: Refusal
) -> None:
    path = str(root / name)
    answer = await refused(client, "createDirectory", path=path, recursive=recursive)
    assert answer == expected


async def test_a_folder_is_listed_by_name(client: Client, root: Path) -> None:
    """Upstream follows links, and omits dangling ones."""
    (root / os.fsdecode(b"\xff")).write_text("")
    answer = await client.request("fs/readDirectory", {"path": str(root)})
    assert answer == {
        "entries": [
            {"fileName": name, "isDirectory": is_folder, "isFile": is_file}
            for name, is_folder, is_file in [
                ("d", True, False),
                ("f", False, True),
                ("folder-link", True, False),
                ("link", False, True),
                ("pipe", False, False),
                ("\ufffd", False, True),
            ]
        ]
    }


@pytest.mark.parametrize(("name", "expected"), [("missing", NO_SUCH_FILE), ("f", NOT_A_DIRECTORY)])
async def test_only_folders_are_listed(
    client: Client, root: Path, name: str, expected: Refusal
) -> None:
    assert await refused(client, "readDirectory", path=str(root / name)) == expected


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("d", (True, False, False)),
        ("f", (False, True, False)),
        ("link", (False, True, True)),
        ("folder-link", (True, False, True)),
        ("pipe", (False, False, False)),
    ],
)
async def test_metadata_describes_the_target_of_a_path(
    client: Client, root: Path, name: str, kinds: tuple[bool, bool, bool]
) -> None:
    os.utime(root / name, ns=(1, 1_700_000_000_123_456_789))
    answer = await client.request("fs/getMetadata", {"path": str(root / name)})
    assert answer.pop("createdAtMs") == born(root / name)
    assert answer == {
        **dict(zip(("isDirectory", "isFile", "isSymlink"), kinds, strict=True)),
        "modifiedAtMs": 1_700_000_000_123,
    }


def born(path: Path) -> int:
    """When a file was created, as another program reads it; 0 if the file system does not know."""
    command = ["stat", "--dereference", "--format", "%W %w", str(path)]
    seconds, text = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.split(maxsplit=1)
    fraction = text.partition(".")[2][:3] or "0"
    return int(seconds) * 1000 + int(fraction)


async def test_a_dangling_link_has_no_metadata(client: Client, root: Path) -> None:
    assert await refused(client, "getMetadata", path=str(root / "nowhere")) == NO_SUCH_FILE


# -- removing


@pytest.mark.parametrize("name", ["f", "link", "folder-link", "nowhere", "loop", "pipe", "d"])
async def test_a_path_is_removed_without_the_targets_of_its_links(
    client: Client, root: Path, name: str
) -> None:
    before = tree(root)
    assert await client.request("fs/remove", {"path": str(root / name)}) == {}
    kept = {key: value for key, value in before.items() if Path(key).parts[0] != name}
    assert tree(root) == kept


async def test_a_full_folder_is_removed_only_recursively(client: Client, root: Path) -> None:
    answer = await refused(client, "remove", path=str(root / "d"), recursive=False)
    message = f"Directory not empty (os error {errno.ENOTEMPTY})"
    assert answer == (-32603, message, "io", "ENOTEMPTY")
    assert (root / "d" / "e" / "h").exists()


async def test_an_empty_folder_is_removed_without_recursion(client: Client, root: Path) -> None:
    (root / "empty").mkdir()
    params = {"path": str(root / "empty"), "recursive": False}
    assert await client.request("fs/remove", params) == {}
    assert not (root / "empty").exists()


async def test_a_missing_path_is_an_error_only_without_force(client: Client, root: Path) -> None:
    path = str(root / "missing" / "x")
    assert await client.request("fs/remove", {"path": path}) == {}
    assert await refused(client, "remove", path=path, force=False) == NO_SUCH_FILE


@pytest.mark.parametrize("path", ["/", "//", "/usr/.."])
async def test_the_root_is_not_removed(
    client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: upstream would start to remove it."""
    monkeypatch.setattr("treadle.server.files.service.remove_folder", lambda _path: None)
    message = "fs/remove cannot remove the root directory"
    assert await refused(client, "remove", path=path) == (-32600, message, "invalidRequest")


# -- copying


async def test_a_file_is_copied_with_its_mode(client: Client, root: Path) -> None:
    (root / "f").chmod(0o751)
    (root / "old").write_text("longer than the new one")
    for name in ("new", "old"):
        await copy(client, root / "f", root / name)
        assert (root / name).read_text() == "hello"
        assert stat.S_IMODE((root / name).stat().st_mode) == 0o751


@pytest.mark.parametrize("name", ["f", "link", "other-name"])
async def test_a_file_that_is_copied_onto_itself_stays(
    client: Client, root: Path, name: str
) -> None:
    """Ours: upstream truncates it."""
    (root / "other-name").hardlink_to(root / "f")
    await copy(client, root / "f", root / name)
    assert tree(root)["f"] == "hello"


async def test_a_link_is_copied_as_a_link(client: Client, root: Path) -> None:
    await copy(client, root / "folder-link", root / "another")
    assert (root / "another").readlink() == Path("d")
    params = {"sourcePath": str(root / "link"), "destinationPath": str(root / "f")}
    assert await refused(client, "copy", **params) == EXISTS


async def test_a_folder_is_copied_into_an_existing_one(client: Client, root: Path) -> None:
    """Upstream: other content of the destination stays, and special files are skipped."""
    os.mkfifo(root / "d" / "pipe")
    (root / "d" / "e").chmod(0o700)
    (root / "there").mkdir()
    (root / "there" / "g").write_text("old")
    (root / "there" / "mine").write_text("mine")
    await copy(client, root / "d", root / "there", recursive=True)
    await copy(client, root / "d", root / "new" / "deep", recursive=True)
    copied = {"e": "", "e/h": "h", "g": "g", "up": "-> ../f"}
    assert tree(root / "there") == copied | {"mine": "mine"}
    assert tree(root / "new" / "deep") == copied
    assert stat.S_IMODE((root / "there" / "g").stat().st_mode) == 0o640
    assert stat.S_IMODE((root / "there" / "e").stat().st_mode) == 0o700


@pytest.mark.parametrize("destination", ["d", "d/new", "folder-link/new", "folder-link", "d/e/x"])
async def test_a_folder_is_not_copied_into_itself(
    client: Client, root: Path, destination: str
) -> None:
    before = tree(root)
    params = {"sourcePath": str(root / "d"), "destinationPath": str(root / destination)}
    message = "fs/copy cannot copy a directory to itself or one of its descendants"
    answer = await refused(client, "copy", **params, recursive=True)
    assert answer == (-32600, message, "invalidRequest")
    assert tree(root) == before


async def test_a_folder_is_copied_only_recursively(client: Client, root: Path) -> None:
    params = {"sourcePath": str(root / "d"), "destinationPath": str(root / "new")}
    message = "fs/copy requires recursive: true when sourcePath is a directory"
    assert await refused(client, "copy", **params) == (-32600, message, "invalidRequest")
    assert not (root / "new").exists()


async def test_a_special_file_is_not_copied(client: Client, root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        for name in ("pipe", "socket"):
            params = {"sourcePath": str(root / name), "destinationPath": str(root / "new")}
            message = "fs/copy only supports regular files, directories, and symlinks"
            answer = await refused(client, "copy", **params, recursive=True)
            assert answer == (-32600, message, "invalidRequest")


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("missing", "x", NO_SUCH_FILE),
        ("f", "missing/x", NO_SUCH_FILE),
        ("f", "d", IS_A_DIRECTORY),
        ("f", "f/x", NOT_A_DIRECTORY),
        ("d", "f", EXISTS),
        ("d", "nowhere", EXISTS),
    ],
)
async def test_a_path_that_cannot_be_copied_is_refused_with_a_reason(
    client: Client, root: Path, source: str, destination: str, expected: Refusal
) -> None:
    params = {"sourcePath": str(root / source), "destinationPath": str(root / destination)}
    assert await refused(client, "copy", **params, recursive=True) == expected


async def test_a_link_in_the_destination_is_not_followed(client: Client, root: Path) -> None:
    """Ours: a command may have planted it, to write outside of its sandbox through a client."""
    outside, source, destination = (root / name for name in ("outside", "template", "to"))
    for folder in (outside, source / "hooks", destination):
        folder.mkdir(parents=True)
    (source / "hooks" / "run").write_text("new")
    (outside / "file").write_text("precious")
    (destination / "hooks").symlink_to(outside)
    params = {"sourcePath": str(source), "destinationPath": str(destination), "recursive": True}
    assert "Not a directory" in str(await refused(client, "copy", **params))

    (destination / "hooks").unlink()
    (destination / "hooks").mkdir()
    (destination / "hooks" / "run").symlink_to(outside / "file")
    assert "symbolic links" in str(await refused(client, "copy", **params))
    assert tree(outside) == {"file": "precious"}


async def test_a_folder_that_becomes_a_link_is_not_copied(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: a command may replace it while it is copied, to have files of its user copied."""
    secret, source, destination = (root / name for name in ("secret", "from", "to"))
    for folder in (secret, source / "inner"):
        folder.mkdir(parents=True)
    (secret / "key").write_text("secret")
    copy_entries = copying._copy_entries  # noqa: SLF001 - the moment between list and entry

    def swapping(pair: copying._Pair) -> copying._Level:
        level = copy_entries(pair)
        (source / "inner").rmdir()
        (source / "inner").symlink_to(secret)
        return level

    monkeypatch.setattr(copying, "_copy_entries", swapping)
    params = {"sourcePath": str(source), "destinationPath": str(destination), "recursive": True}
    answer = str(await refused(client, "copy", **params))
    assert not (destination / "inner" / "key").exists()
    assert "Not a directory" in answer
