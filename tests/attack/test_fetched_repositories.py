"""Where a repository is fetched, how large it becomes, and what its server learns clients say."""

from __future__ import annotations

import asyncio
import os
import re
from base64 import b64encode
from pathlib import Path

import pytest

from tests.attack.test_plugins import ADD, _command_lines, answering, fetcher
from tests.harness.plugins import commit_all, git_server
from tests.harness.repositories import git
from tests.server.serving import configuration, result, serving
from treadle.engine.plugins import git as fetching
from treadle.engine.plugins.copying import CopyLimits, copy_folder
from treadle.engine.plugins.git import FetchFailed
from treadle.engine.plugins.sources import GitSource
from treadle.protocol.base import JsonValue

_STORE = re.compile(rb"--git-dir=([^\0]+)")


async def test_a_command_cannot_change_what_is_being_fetched(home: Path, tmp_path: Path) -> None:
    """A plugin in it would be installed, and its MCP servers run outside the sandbox."""
    connected = asyncio.Event()

    def hang(_head: bytes) -> None:
        connected.set()

    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    async with (
        answering(hang) as (url, _),
        serving(configuration(home, environ=environ)) as peer,
    ):
        await peer.send({"id": 7, "method": ADD, "params": {"source": f"{url}/x.git"}})
        await connected.wait()
        stores = [found[1] for line in _command_lines() if (found := _STORE.search(line))]
        folders = [Path(os.fsdecode(store)).parent for store in stores]
        (folder,) = {each for each in folders if each.is_relative_to(tmp_path)}
        policy: JsonValue = {
            "type": "workspaceWrite",
            "writableRoots": [str(tmp_path), str(home), str(folder)],
        }
        script = f"touch {folder}/x {folder}/store/config {folder}/tree/x; ls -d {folder}/tree"
        params = {"command": ["sh", "-c", script], "cwd": str(tmp_path)}
        done = await result(peer, "command/exec", {**params, "sandboxPolicy": policy})

    assert folder.is_relative_to(home)
    # The folder exists, and the command could not touch anything in it.
    assert done["stdout"].strip() == f"{folder}/tree"
    assert done["stderr"].count("cannot touch") == 3


async def test_a_long_listing_hides_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of a file that is listed after the limit would not count."""
    monkeypatch.setattr(fetching, "MAX_OUTPUT", 4000)
    shop = tmp_path / "repositories" / "shop"
    folder = shop / ("0" * 200)
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / str(number)).touch()
    (shop / "z").write_bytes(bytes(4_000_000))
    commit_all(shop)
    work = fetcher(tmp_path / "work", limit=1_000_000)
    with git_server(shop.parent) as (url, _), pytest.raises(FetchFailed, match="more than 4000"):
        await work.fetch(GitSource(f"{url}/shop/.git"))


async def test_files_are_written_as_large_as_they_are_stored(tmp_path: Path) -> None:
    """Attributes of a repository could make them eight times larger after the check."""
    shop = tmp_path / "repositories" / "shop"
    shop.mkdir(parents=True)
    (shop / ".gitattributes").write_text("* text eol=crlf working-tree-encoding=UTF-32 ident\n")
    (shop / "a").write_text("\n$Id$" * 200)
    git(shop, "init", "--quiet", "--initial-branch=main")
    for name in ("a", ".gitattributes"):
        blob = git(shop, "hash-object", "-w", "--no-filters", name)
        git(shop, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    git(shop, "commit", "--quiet", "-m", "files")
    with git_server(shop.parent) as (url, _):
        fetched = await fetcher(tmp_path / "work").fetch(GitSource(f"{url}/shop/.git"))

    assert (fetched.tree / "a").read_bytes() == b"\n$Id$" * 200
    await fetched.remove()


@pytest.mark.parametrize("login", ["user:hunter2secret", "hunter2secret"])
async def test_a_server_that_quotes_a_password_gets_it_into_no_error(
    tmp_path: Path, login: str
) -> None:
    """Git prints what a server answers with a refusal."""

    def answer(head: bytes) -> bytes:
        (line,) = [each for each in head.split(b"\r\n") if each.startswith(b"Authorization")]
        text = line + b" hunter2secret"
        fields = b"content-type: text/plain\r\nconnection: close\r\ncontent-length: %d" % len(text)
        return b"HTTP/1.1 403 No\r\n%s\r\n\r\n%s" % (fields, text)

    async with answering(answer) as (url, heads):
        source = GitSource(f"{url.replace('://', f'://{login}@')}/x.git")
        errors = []
        for use in (fetcher(tmp_path / "a").fetch, fetcher(tmp_path / "b").revision):
            with pytest.raises(FetchFailed, match="redacted") as error:
                await use(source)
            errors.append(str(error.value))

    encoded = b64encode((login if ":" in login else f"{login}:").encode())
    assert encoded in heads[0]
    assert "hunter2secret" not in str(errors)
    assert encoded.decode().rstrip("=") not in str(errors)


def test_links_that_leave_through_other_links_are_not_copied(tmp_path: Path) -> None:
    """By its text, `a/b/up/../x` stays inside."""
    source = tmp_path / "source"
    (source / "a" / "b").mkdir(parents=True)
    (source / "file").touch()
    for name, text in {"a/b/up": "../..", "out": "a/b/up/../x", "in": "a/b/up/file"}.items():
        (source / name).symlink_to(text)
    copy_folder(source, tmp_path / "copy", CopyLimits(), root=source, keeps=lambda _path: True)

    assert (tmp_path / "copy" / "a" / "b" / "up").is_symlink()
    assert (tmp_path / "copy" / "in").is_symlink()
    assert not (tmp_path / "copy" / "out").is_symlink()


def test_folders_of_killed_servers_are_removed(tmp_path: Path) -> None:
    """Others may be in use by another server of the home."""
    folder = tmp_path / "fetched"
    old, new = folder / "git-old", folder / "git-new"
    for each in (old, new):
        each.mkdir(parents=True)
    os.utime(old, (0, 0))
    made = fetching.make_temporary(folder)

    assert {each.name for each in folder.iterdir()} == {"git-new", made.name}
