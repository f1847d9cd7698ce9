"""`fs/*` but for watches: results, refusals, and what is on disk afterwards."""

from __future__ import annotations

import base64
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from treadle.protocol.base import JsonValue
from treadle.server.handlers.fs import MAX_READ_BYTES

NO_SUCH_FILE = (-32603, "No such file or directory (os error 2)", "io", "ENOENT")
EXISTS = (-32603, "File exists (os error 17)", "io", "EEXIST")
IS_A_DIRECTORY = (-32603, "Is a directory (os error 21)", "io", "EISDIR")
NOT_A_DIRECTORY = (-32603, "Not a directory (os error 20)", "io", "ENOTDIR")
as_ordinary_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    async with playing(home, []) as server, client_of(server) as client:
        yield client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of files, links and other things."""
    root = tmp_path / "root"
    (root / "d" / "e").mkdir(parents=True)
    (root / "f").write_text("hello")
    (root / "d" / "g").write_text("g")
    (root / "d" / "g").chmod(0o640)
    (root / "d" / "e" / "h").write_text("h")
    (root / "d" / "up").symlink_to("../f")
    (root / "link").symlink_to("f")
    (root / "folder-link").symlink_to("d")
    (root / "nowhere").symlink_to("missing")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    return root


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def refused(client: Client, method: str, **params: JsonValue) -> tuple[JsonValue, ...]:
    """How a request is refused: code, message and kind, and the error of the system if any."""
    error = await client.refusal(f"fs/{method}", params)
    system = [error.data["errno"]] if "errno" in error.data else []
    return (error.code, error.message, error.kind, *system)


async def write(client: Client, path: Path, data: bytes) -> None:
    params = {"path": str(path), "dataBase64": b64(data)}
    assert await client.ask("fs/writeFile", params) == {}


async def copy(client: Client, source: Path, destination: Path, **options: JsonValue) -> None:
    params = {"sourcePath": str(source), "destinationPath": str(destination), **options}
    assert await client.ask("fs/copy", params) == {}


def tree(folder: Path) -> dict[str, str]:
    """What a folder holds: the text of files, where links lead, and nothing for folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_text() if path.is_file() else ""
    return found


# -- paths


@pytest.mark.parametrize("path", ["", "f", "./f", "~/f", "file:///f", "C:\\f"])
async def test_a_path_that_is_not_absolute_is_refused(client: Client, path: str) -> None:
    error = await client.refusal("fs/readFile", {"path": path})
    message = f"Invalid request: path must be an absolute path, not {path!r}"
    assert (error.code, error.message) == (-32600, message)
    assert error.data == {"kind": "invalidParams", "path": "path"}


async def test_the_refusal_names_which_of_two_paths_is_meant(client: Client) -> None:
    params = {"sourcePath": "/a", "destinationPath": "b"}
    error = await client.refusal("fs/copy", params)
    assert error.message == "Invalid request: destinationPath must be an absolute path, not 'b'"
    assert error.data == {"kind": "invalidParams", "path": "destinationPath"}


async def test_a_path_with_a_null_in_it_is_refused(client: Client) -> None:
    message = "file name contained an unexpected NUL byte"
    assert await refused(client, "readFile", path="/a\0b") == (-32600, message, "invalidParams")


@pytest.mark.parametrize("path", ["d/../f", "missing/../f", "./f", "f/", "//f", "link"])
async def test_a_path_is_read_as_it_is_spelled(client: Client, root: Path, path: str) -> None:
    """Upstream: `..` takes a name away, even one that is not there."""
    result = await client.ask("fs/readFile", {"path": f"/{root}/{path}"})
    assert result == {"dataBase64": b64(b"hello")}


# -- reading


async def test_a_file_is_read_as_the_bytes_that_it_is(client: Client, root: Path) -> None:
    data = bytes(range(256)) * 100
    (root / "binary").write_bytes(data)
    result = await client.ask("fs/readFile", {"path": str(root / "binary")})
    assert base64.b64decode(result["dataBase64"]) == data


@pytest.mark.parametrize("name", ["missing", "nowhere"])
async def test_reading_what_is_not_there_is_refused(client: Client, root: Path, name: str) -> None:
    assert await refused(client, "readFile", path=str(root / name)) == NO_SUCH_FILE


@pytest.mark.parametrize("name", ["d", "folder-link", "pipe"])
async def test_only_files_are_read(client: Client, root: Path, name: str) -> None:
    """A pipe that nobody writes to would otherwise be waited for."""
    message = f"path `{root / name}` is not a file"
    expected = (-32600, message, "invalidRequest")
    assert await refused(client, "readFile", path=str(root / name)) == expected


async def test_the_largest_file_that_fits_a_message_is_read(client: Client, root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(MAX_READ_BYTES)
    result = await client.ask("fs/readFile", {"path": str(root / "big")})
    assert len(base64.b64decode(result["dataBase64"])) == MAX_READ_BYTES


async def test_a_file_that_fits_no_message_is_refused(client: Client, root: Path) -> None:
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


async def test_whoever_has_the_old_file_open_reads_it_to_its_end(
    client: Client, root: Path
) -> None:
    """Ours: upstream empties the file first, so a reader may find half of it."""
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


async def test_all_names_of_a_file_see_what_is_written(client: Client, root: Path) -> None:
    (root / "other-name").hardlink_to(root / "f")
    await write(client, root / "f", b"n")
    assert (root / "other-name").read_bytes() == b"n"


async def test_a_device_is_written_to(client: Client) -> None:
    await write(client, Path("/dev/null"), b"gone")
    found = await client.ask("fs/getMetadata", {"path": "/dev/null"})
    assert (found["isFile"], found["isDirectory"]) == (False, False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("missing/x", NO_SUCH_FILE), ("d", IS_A_DIRECTORY), ("f/x", NOT_A_DIRECTORY)],
)
async def test_what_cannot_be_written_says_why(
    client: Client, root: Path, name: str, expected: tuple[JsonValue, ...]
) -> None:
    before = tree(root)
    assert await refused(client, "writeFile", path=str(root / name), dataBase64="") == expected
    assert tree(root) == before


async def test_a_pipe_that_somebody_reads_is_not_written_to(client: Client, root: Path) -> None:
    """Ours: a reader that takes nothing would hold a thread of the server."""
    reader = os.open(root / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        answer = await refused(client, "writeFile", path=str(root / "pipe"), dataBase64="YQ==")
    finally:
        os.close(reader)
    assert answer == (-32600, f"path `{root / 'pipe'}` is not a file", "invalidRequest")


@as_ordinary_user
async def test_a_file_that_may_not_be_written_is_not_replaced(client: Client, root: Path) -> None:
    (root / "f").chmod(0o444)
    expected = (-32603, "Permission denied (os error 13)", "io", "EACCES")
    assert await refused(client, "writeFile", path=str(root / "f"), dataBase64="") == expected
    assert (root / "f").read_text() == "hello"


@as_ordinary_user
async def test_a_file_in_a_folder_that_takes_no_others_is_written(
    client: Client, root: Path
) -> None:
    (root / "d").chmod(0o555)
    await write(client, root / "d" / "g", b"new")
    (root / "d").chmod(0o755)
    assert (root / "d" / "g").read_text() == "new"


async def test_bad_base64_is_refused_before_anything_is_written(client: Client, root: Path) -> None:
    error = await client.refusal("fs/writeFile", {"path": str(root / "f"), "dataBase64": "!!"})
    reason = "Invalid symbol 33, offset 0."
    message = f"fs/writeFile requires valid base64 dataBase64: {reason}"
    assert (error.code, error.message) == (-32600, message)
    assert error.data == {"kind": "invalidParams", "path": "dataBase64"}
    assert (root / "f").read_text() == "hello"


# -- folders


async def test_a_folder_is_made_with_its_parents(client: Client, root: Path) -> None:
    path = root / "x" / "y" / "z"
    for _ in range(2):
        assert await client.ask("fs/createDirectory", {"path": str(path)}) == {}
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
async def test_a_folder_that_cannot_be_made_says_why(
    client: Client, root: Path, name: str, recursive: bool, expected: tuple[JsonValue, ...]
) -> None:
    path = str(root / name)
    answer = await refused(client, "createDirectory", path=path, recursive=recursive)
    assert answer == expected


async def test_a_folder_is_listed_by_name(client: Client, root: Path) -> None:
    """Upstream follows links, and leaves out those that lead nowhere."""
    (root / os.fsdecode(b"\xff")).write_text("")
    answer = await client.ask("fs/readDirectory", {"path": str(root)})
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
    client: Client, root: Path, name: str, expected: tuple[JsonValue, ...]
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
async def test_metadata_tells_what_a_path_leads_to(
    client: Client, root: Path, name: str, kinds: tuple[bool, bool, bool]
) -> None:
    os.utime(root / name, ns=(1, 1_700_000_000_123_456_789))
    answer = await client.ask("fs/getMetadata", {"path": str(root / name)})
    made = answer.pop("createdAtMs")
    assert made >= 0
    assert answer == {
        **dict(zip(("isDirectory", "isFile", "isSymlink"), kinds, strict=True)),
        "modifiedAtMs": 1_700_000_000_123,
    }


async def test_a_link_to_nothing_has_no_metadata(client: Client, root: Path) -> None:
    assert await refused(client, "getMetadata", path=str(root / "nowhere")) == NO_SUCH_FILE


# -- removing


@pytest.mark.parametrize("name", ["f", "link", "folder-link", "nowhere", "loop", "pipe", "d"])
async def test_a_path_is_removed_and_nothing_that_it_links_to(
    client: Client, root: Path, name: str
) -> None:
    before = tree(root)
    assert await client.ask("fs/remove", {"path": str(root / name)}) == {}
    kept = {key: value for key, value in before.items() if Path(key).parts[0] != name}
    assert tree(root) == kept


async def test_a_full_folder_is_removed_only_with_all_it_holds(client: Client, root: Path) -> None:
    answer = await refused(client, "remove", path=str(root / "d"), recursive=False)
    message = f"Directory not empty (os error {errno.ENOTEMPTY})"
    assert answer == (-32603, message, "io", "ENOTEMPTY")
    assert (root / "d" / "e" / "h").exists()


async def test_an_empty_folder_is_removed_alone(client: Client, root: Path) -> None:
    (root / "empty").mkdir()
    params = {"path": str(root / "empty"), "recursive": False}
    assert await client.ask("fs/remove", params) == {}
    assert not (root / "empty").exists()


async def test_a_missing_path_is_an_error_only_without_force(client: Client, root: Path) -> None:
    path = str(root / "missing" / "x")
    assert await client.ask("fs/remove", {"path": path}) == {}
    assert await refused(client, "remove", path=path, force=False) == NO_SUCH_FILE


@pytest.mark.parametrize("path", ["/", "//", "/usr/.."])
async def test_the_root_is_not_removed(
    client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: upstream would begin."""
    monkeypatch.setattr("treadle.server.files.shutil.rmtree", lambda _path: None)
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
    """Ours: upstream empties it."""
    (root / "other-name").hardlink_to(root / "f")
    await copy(client, root / "f", root / name)
    assert tree(root)["f"] == "hello"


async def test_a_link_is_copied_as_a_link(client: Client, root: Path) -> None:
    await copy(client, root / "folder-link", root / "another")
    assert (root / "another").readlink() == Path("d")
    params = {"sourcePath": str(root / "link"), "destinationPath": str(root / "f")}
    assert await refused(client, "copy", **params) == EXISTS


async def test_a_folder_is_copied_into_what_is_there(client: Client, root: Path) -> None:
    """Upstream: what the destination has beside stays, and what is no file is passed over."""
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


async def test_a_folder_is_copied_only_when_that_was_meant(client: Client, root: Path) -> None:
    params = {"sourcePath": str(root / "d"), "destinationPath": str(root / "new")}
    message = "fs/copy requires recursive: true when sourcePath is a directory"
    assert await refused(client, "copy", **params) == (-32600, message, "invalidRequest")
    assert not (root / "new").exists()


async def test_what_is_no_file_is_not_copied(client: Client, root: Path) -> None:
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
async def test_what_cannot_be_copied_says_why(
    client: Client, root: Path, source: str, destination: str, expected: tuple[JsonValue, ...]
) -> None:
    params = {"sourcePath": str(root / source), "destinationPath": str(root / destination)}
    assert await refused(client, "copy", **params, recursive=True) == expected
