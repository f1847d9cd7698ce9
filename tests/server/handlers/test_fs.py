"""`fs/readFile` and `fs/writeFile`: results, refusals, and what is on disk afterwards."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.harness.files import (
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
from treadle.server.handlers.fs import MAX_READ_BYTES

OTHER_USER = 65534


@pytest.fixture
def modest(short_folder: Path) -> Iterator[Path]:
    """Return a furnished folder, for a server without root's rights: root becomes another user."""
    root = furnish(short_folder / "root")
    if os.geteuid() != 0:
        yield root
        return
    for path in (short_folder, root, *root.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)
    os.seteuid(OTHER_USER)
    try:
        yield root
    finally:
        os.seteuid(0)


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    async with playing(home, []) as server, client_of(server) as client:
        yield client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return furnish(tmp_path / "root")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def write(client: Client, path: Path, data: bytes) -> None:
    params = {"path": str(path), "dataBase64": b64(data)}
    assert await client.request("fs/writeFile", params) == {}


# -- paths


@pytest.mark.parametrize("path", ["", "f", "./f", "~/f", "file:///f", "C:\\f"])
async def test_a_path_that_is_not_absolute_is_refused(client: Client, path: str) -> None:
    error = await client.refusal("fs/readFile", {"path": path})
    message = f"Invalid request: path must be an absolute path, not {path!r}"
    assert (error.code, error.message) == (-32600, message)
    assert error.data == {"kind": "invalidParams", "path": "path"}


async def test_the_refusal_names_which_of_two_paths_is_wrong(client: Client) -> None:
    params = {"sourcePath": "/a", "destinationPath": "b"}
    error = await client.refusal("fs/copy", params)
    assert error.message == "Invalid request: destinationPath must be an absolute path, not 'b'"
    assert error.data == {"kind": "invalidParams", "path": "destinationPath"}


async def test_a_path_with_a_null_byte_is_refused(client: Client) -> None:
    message = "file name contained an unexpected NUL byte"
    assert await refused(client, "readFile", path="/a\0b") == (-32600, message, "invalidParams")


@pytest.mark.parametrize("path", ["d/../f", "missing/../f", "./f", "f/", "//f", "link"])
async def test_a_path_is_normalized_as_text(client: Client, root: Path, path: str) -> None:
    """Upstream: `..` removes a name, even one that does not exist."""
    result = await client.request("fs/readFile", {"path": f"/{root}/{path}"})
    assert result == {"dataBase64": b64(b"hello")}


# -- reading


async def test_a_file_is_read_as_bytes(client: Client, root: Path) -> None:
    data = bytes(range(256)) * 100
    (root / "binary").write_bytes(data)
    result = await client.request("fs/readFile", {"path": str(root / "binary")})
    assert base64.b64decode(result["dataBase64"]) == data


@pytest.mark.parametrize("name", ["missing", "nowhere"])
async def test_reading_a_missing_file_is_refused(client: Client, root: Path, name: str) -> None:
    assert await refused(client, "readFile", path=str(root / name)) == NO_SUCH_FILE


@pytest.mark.parametrize("name", ["d", "folder-link", "pipe"])
async def test_only_regular_files_are_read(client: Client, root: Path, name: str) -> None:
    """A pipe without a writer would otherwise block."""
    message = f"path `{root / name}` is not a file"
    expected = (-32600, message, "invalidRequest")
    assert await refused(client, "readFile", path=str(root / name)) == expected


async def test_the_largest_file_that_fits_a_message_is_read(client: Client, root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(MAX_READ_BYTES)
    result = await client.request("fs/readFile", {"path": str(root / "big")})
    assert len(base64.b64decode(result["dataBase64"])) == MAX_READ_BYTES


async def test_a_file_that_does_not_fit_into_a_message_is_refused(
    client: Client, root: Path
) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(MAX_READ_BYTES + 1)
    error = await client.refusal("fs/readFile", {"path": str(root / "big")})
    message = f"file is too large to read: limit is {MAX_READ_BYTES} bytes"
    assert (error.code, error.message) == (-32600, message)
    assert error.data == {"kind": "fileTooLarge", "limit": MAX_READ_BYTES}


# -- writing


async def test_a_file_is_created_and_replaced(client: Client, root: Path) -> None:
    await write(client, root / "new", b"\x00\xff")
    assert (root / "new").read_bytes() == b"\x00\xff"
    assert not (root / "new").stat().st_mode & stat.S_IXUSR
    await write(client, root / "new", b"")
    assert (root / "new").read_bytes() == b""


async def test_a_replaced_file_keeps_its_mode_and_not_its_time(client: Client, root: Path) -> None:
    (root / "f").chmod(0o751)
    os.utime(root / "f", (1, 1))
    await write(client, root / "f", b"")
    found = (root / "f").stat()
    assert stat.S_IMODE(found.st_mode) == 0o751
    assert found.st_mtime > 1


async def test_a_reader_of_the_old_file_can_read_it_to_its_end(client: Client, root: Path) -> None:
    """Ours: upstream truncates the file first, so a reader may see half of it."""
    with (root / "f").open() as reader:
        await write(client, root / "f", b"new")
        assert reader.read() == "hello"


async def test_nothing_is_left_beside_a_written_file(client: Client, root: Path) -> None:
    before = tree(root)
    await write(client, root / "f", b"new")
    assert tree(root) == before | {"f": "new", "link": "-> f"}


async def test_a_link_is_written_through(client: Client, root: Path) -> None:
    await write(client, root / "link", b"through")
    await write(client, root / "nowhere", b"made")
    assert tree(root)["f"] == "through"
    assert tree(root)["missing"] == "made"
    assert tree(root)["link"] == "-> f"


async def test_all_hard_links_of_a_file_see_what_is_written(client: Client, root: Path) -> None:
    (root / "other-name").hardlink_to(root / "f")
    await write(client, root / "f", b"n")
    assert (root / "other-name").read_bytes() == b"n"


async def test_a_device_is_written_to(client: Client) -> None:
    await write(client, Path("/dev/null"), b"gone")
    found = await client.request("fs/getMetadata", {"path": "/dev/null"})
    assert (found["isFile"], found["isDirectory"]) == (False, False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("missing/x", NO_SUCH_FILE), ("d", IS_A_DIRECTORY), ("f/x", NOT_A_DIRECTORY)],
)
async def test_a_path_that_cannot_be_written_is_refused_with_a_reason(
    client: Client, root: Path, name: str, expected: Refusal
) -> None:
    before = tree(root)
    assert await refused(client, "writeFile", path=str(root / name), dataBase64="") == expected
    assert tree(root) == before


async def test_a_pipe_with_a_reader_is_not_written_to(client: Client, root: Path) -> None:
    """Ours: a reader that reads nothing would block a thread of the server."""
    reader = os.open(root / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        answer = await refused(client, "writeFile", path=str(root / "pipe"), dataBase64="YQ==")
    finally:
        os.close(reader)
    assert answer == (-32600, f"path `{root / 'pipe'}` is not a file", "invalidRequest")


async def test_a_read_only_file_is_not_replaced(client: Client, modest: Path) -> None:
    (modest / "f").chmod(0o444)
    expected = (-32603, "Permission denied (os error 13)", "io", "EACCES")
    assert await refused(client, "writeFile", path=str(modest / "f"), dataBase64="") == expected
    assert (modest / "f").read_text() == "hello"


async def test_a_file_in_a_read_only_folder_is_written(client: Client, modest: Path) -> None:
    (modest / "d").chmod(0o555)
    await write(client, modest / "d" / "g", b"new")
    (modest / "d").chmod(0o755)
    assert (modest / "d" / "g").read_text() == "new"


async def test_bad_base64_is_refused_before_anything_is_written(client: Client, root: Path) -> None:
    error = await client.refusal("fs/writeFile", {"path": str(root / "f"), "dataBase64": "!!"})
    reason = "Invalid symbol 33, offset 0."
    message = f"fs/writeFile requires valid base64 dataBase64: {reason}"
    assert (error.code, error.message) == (-32600, message)
    assert error.data == {"kind": "invalidParams", "path": "dataBase64"}
    assert (root / "f").read_text() == "hello"
