"""What marketplaces, plugins and their repositories could do to the machine that fetches them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.harness.plugins import (
    commit_all,
    git_server,
    write_json,
    write_marketplace,
    write_plugin,
    write_sample,
)
from tests.harness.processes import TREADLE
from tests.harness.repositories import git
from tests.harness.sandbox import SANDBOX
from tests.harness.threads import Client, environment
from tests.server.serving import configuration, refusal, result, serving
from treadle.engine.plugins.git import FetchFailed, GitFetcher
from treadle.engine.plugins.sources import GitSource
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.workers import Workers

ADD = "marketplace/add"


def fetcher(folder: Path, **options: float) -> GitFetcher:
    """Return a fetcher whose temporary files are in a folder."""
    folder.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return GitFetcher(SANDBOX, Workers("git", 4), environ, folder, **options)  # type: ignore[arg-type]  # limits


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@asynccontextmanager
async def answering(
    answer: Callable[[bytes], bytes | None],
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve HTTP with raw answers; `None` hangs. Yields the address and the requests' heads."""
    heads: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        reply = answer(head)
        if reply is None:
            await reader.read()
        else:
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def test_filters_and_submodules_of_a_repository_run_nothing(tmp_path: Path) -> None:
    """A filter runs if the user's configuration has one of its name, as git-lfs adds it."""
    tripped = tmp_path / "tripped"
    home = tmp_path / "home"
    write_json(home / ".gitconfig", f'[filter "trap"]\n\tsmudge = touch {tripped}; tr a-z A-Z\n')
    shop = tmp_path / "repositories" / "shop"
    write_sample(shop)
    write_json(shop / ".gitattributes", "* filter=trap\n")
    module = f'[submodule "m"]\n\tpath = m\n\turl = "ext::sh -c touch% {tripped}"\n'
    write_json(shop / ".gitmodules", module)
    commit = commit_all(shop)
    git(shop, "update-index", "--add", "--cacheinfo", f"160000,{commit},m")
    git(shop, "commit", "--quiet", "-m", "module")
    work = fetcher(home)
    with git_server(shop.parent) as (url, _):
        fetched = await work.fetch(GitSource(f"{url}/shop/.git"))
        # The sandbox alone would only keep the filter from writing elsewhere.
        assert (fetched.tree / ".gitmodules").read_text() == module
        await fetched.remove()
        assert not tripped.exists()
        # The trap works.
        await asyncio.to_thread(_clone, f"{url}/shop/.git", tmp_path / "clone", home)
    assert tripped.exists()


def _clone(url: str, target: Path, home: Path) -> None:
    environ = {**os.environ, "HOME": str(home)}
    subprocess.run(["git", "clone", "--quiet", url, str(target)], check=True, env=environ)


@pytest.mark.parametrize(
    "source",
    [
        "ext::sh -c touch% /tmp/x",
        "-oProxyCommand=x",
        "--upload-pack=x",
        "ssh://-oProxyCommand=x/y",
        "ssh://user@-oProxyCommand=x/y",
        "git@-oProxyCommand=x:y",
        "file:///etc",
        "ftp://host/x",
        "http://host/a b",
        "http://host/a\nb",
        "http://" + "x" * 3000,
    ],
)
async def test_a_source_is_never_an_option_or_a_command(home: Path, source: str) -> None:
    async with serving(configuration(home, environ=dict(os.environ))) as peer:
        error = await refusal(peer, ADD, {"source": source})

    assert error["message"].startswith("invalid marketplace source format")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (
            b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
            "could",
        ),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "not found"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "500"),
        (b"\x00garbage", "unable to access"),
        (b"", "unable to access"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope", "HEAD"),
    ],
)
async def test_a_server_that_answers_garbage_fails_at_once(
    home: Path, tmp_path: Path, reply: bytes, problem: str
) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    async with (
        answering(lambda _head: reply) as (url, _),
        serving(configuration(home, environ=environ)) as peer,
    ):
        error = await refusal(peer, ADD, {"source": f"{url}/x.git"})

    assert error["data"]["kind"] == "fetchFailed"
    assert problem in error["message"]
    assert names(home / ".tmp" / "fetched") == []
    assert (home / "config.toml").read_text() == ""


async def test_a_server_that_hangs_is_given_up(tmp_path: Path) -> None:
    async with answering(lambda _head: None) as (url, heads):
        source = GitSource(f"{url}/x.git")
        work = fetcher(tmp_path / "work", seconds=1.5)
        with pytest.raises(FetchFailed, match=r"git fetch timed out after 1\.5s"):
            await work.fetch(source)
        with pytest.raises(FetchFailed, match=r"git ls-remote timed out after 1\.5s"):
            await work.revision(source)

    assert len(heads) == 2
    assert list((tmp_path / "work").glob("git-*")) == []


@pytest.mark.parametrize("content", ["zeros", "random"])
async def test_a_repository_beyond_the_limit_is_not_written(tmp_path: Path, content: str) -> None:
    """Zeros are small until they are written."""
    shop = tmp_path / "repositories" / "shop"
    write_sample(shop)
    data = bytes(4_000_000) if content == "zeros" else os.urandom(4_000_000)
    (shop / "large").write_bytes(data)
    commit_all(shop)
    work = fetcher(tmp_path / "work", limit=1_000_000)
    with git_server(shop.parent) as (url, _), pytest.raises(FetchFailed) as error:
        await work.fetch(GitSource(f"{url}/shop/.git"))

    assert "expected at most" in str(error.value)
    assert list((tmp_path / "work").glob("git-*")) == []


async def test_a_repository_with_long_names_is_measured_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of its files is longer than what is kept of the output of git."""
    monkeypatch.setattr("treadle.engine.plugins.git.MAX_OUTPUT", 10_000)
    shop = tmp_path / "repositories" / "shop"
    write_sample(shop)
    for number in range(100):
        (shop / f"{number:03}{'n' * 200}").write_text("")
    (shop / "zeros").write_bytes(bytes(4_000_000))
    commit_all(shop)
    work = fetcher(tmp_path / "work", limit=1_000_000)
    with git_server(shop.parent) as (url, _), pytest.raises(FetchFailed) as error:
        await work.fetch(GitSource(f"{url}/shop/.git"))

    assert "git ls-tree failed: it prints more than 10000 bytes" in str(error.value)
    assert list((tmp_path / "work").glob("treadle-git-*")) == []


async def test_a_password_reaches_its_server_and_nothing_else(home: Path, tmp_path: Path) -> None:
    shop = tmp_path / "repositories" / "shop"
    write_sample(shop)
    commit_all(shop)
    secret = "hunter2secret"
    expected = f"Basic {b64encode(f'user:{secret}'.encode()).decode()}"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with git_server(shop.parent, authorization=expected) as (url, seen):
        address = url.removeprefix("http://")
        async with serving(configuration(home, environ=environ)) as peer:
            wrong = {"source": f"http://user:wrong{secret}@{address}/shop/.git"}
            error = await refusal(peer, ADD, wrong)
            right = {"source": f"http://user:{secret}@{address}/shop/.git"}
            await result(peer, ADD, right)

    assert set(seen) <= {
        None,
        expected,
        f"Basic {b64encode(f'user:wrong{secret}'.encode()).decode()}",
    }
    assert expected in seen
    assert secret not in str(error)


async def test_a_password_is_in_no_argument_of_a_process(tmp_path: Path) -> None:
    secret, connected = "hunter2secret", asyncio.Event()

    def hang(_head: bytes) -> None:
        connected.set()

    async with answering(hang) as (url, heads), asyncio.TaskGroup() as tasks:
        address = url.removeprefix("http://")
        source = GitSource(f"http://user:{secret}@{address}/x.git")
        task = tasks.create_task(fetcher(tmp_path / "work").fetch(source))
        await connected.wait()
        lines = _command_lines()
        task.cancel()

    assert any(b"git" in line and address.encode() in line for line in lines)
    assert [line for line in lines if secret.encode() in line] == []
    assert b64encode(f"user:{secret}".encode()) in heads[0]


def _command_lines() -> list[bytes]:
    """Return the arguments of all processes."""
    lines: list[bytes] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):  # it has ended
                lines.append((process / "cmdline").read_bytes())
    return lines


async def test_a_password_does_not_follow_a_redirect(tmp_path: Path) -> None:
    async with answering(lambda _head: b"") as (other, others):
        head = f"HTTP/1.1 302 Go\r\nLocation: {other}/x.git/info/refs\r\nContent-Length: 0\r\n\r\n"
        async with answering(lambda _head: head.encode()) as (url, heads):
            address = url.removeprefix("http://")
            source = GitSource(f"http://user:secret123@{address}/x.git")
            with pytest.raises(FetchFailed):
                await fetcher(tmp_path / "work").fetch(source)

    assert len(heads) == 1
    assert others == []


async def test_links_of_a_repository_stay_inside(home: Path, tmp_path: Path) -> None:
    shop = tmp_path / "repositories" / "shop"
    path = write_sample(shop)
    (shop / ".claude-plugin").mkdir()
    (shop / ".claude-plugin" / "marketplace.json").symlink_to("../.agents/plugins/marketplace.json")
    (shop / "passwd").symlink_to("/etc/passwd")
    (shop / "plugins" / "up").symlink_to("../../../../..")
    (shop / "plugins" / "same").symlink_to("sample")
    write_marketplace(shop, ["sample", "up", "same"])
    assert path.exists()
    commit_all(shop)
    with git_server(shop.parent) as (url, _):
        async with serving(configuration(home, environ=dict(os.environ))) as peer:
            await result(peer, ADD, {"source": f"{url}/shop/.git"})
            listed = await result(peer, "plugin/list")

    root = home / ".tmp" / "marketplaces" / "shop"
    # A link that leads out is not copied, so that its plugin has no folder.
    found = {each["name"]: each["localVersion"] for each in listed["marketplaces"][0]["plugins"]}
    assert found == {"sample": "1.2.0", "up": None, "same": "1.2.0"}
    assert "passwd" not in names(root)
    assert names(root / "plugins") == ["same", "sample"]
    assert (root / ".claude-plugin" / "marketplace.json").is_symlink()


async def test_a_command_cannot_change_an_installed_plugin(home: Path, tmp_path: Path) -> None:
    path = write_sample(tmp_path / "shop")
    async with serving(configuration(home, environ=dict(os.environ))) as peer:
        install = {"marketplacePath": str(path), "pluginName": "sample"}
        await peer.send({"id": 7, "method": "plugin/install", "params": install})
        while (await peer.receive()).get("id") != 7:
            pass
        await peer.receive()  # skills/changed
        cache = home / "plugins" / "cache"
        policy: JsonValue = {"type": "workspaceWrite", "writableRoots": [str(cache), str(home)]}
        script = f"touch {cache}/x; rm -rf {cache}/shop; echo $?"
        params = {"command": ["sh", "-c", script], "cwd": str(tmp_path), "sandboxPolicy": policy}
        answer = await result(peer, "command/exec", params)

    assert answer["stdout"].strip() != "0"
    assert sorted(each.name for each in cache.iterdir()) == ["shop"]
    assert (cache / "shop" / "sample" / "1.2.0" / ".mcp.json").exists()


def test_a_killed_server_leaves_no_half_plugin(home: Path, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "shop" / "plugins" / "sample")
    for at in range(3000):
        (folder / f"{at}").write_text("x")
    path = write_marketplace(tmp_path / "shop", ["sample"])
    cache = home / "plugins" / "cache" / "shop"
    installed = cache / "sample" / "local"
    for files in (1, 500, 2500, None):
        _kill_while_installing(home, path, cache, files)
        assert not installed.exists() or len(list(installed.iterdir())) == 3001

    assert [each.name for each in cache.iterdir()] == ["sample"]


def _kill_while_installing(home: Path, path: Path, cache: Path, files: int | None) -> None:
    """Kill a server when it has copied so many files, or has answered."""
    client = {"clientInfo": {"name": "t", "version": "1"}}
    params = {"marketplacePath": str(path), "pluginName": "sample"}
    lines: list[JsonValue] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "initialized"},
        {"id": 2, "method": "plugin/install", "params": params},
    ]
    with subprocess.Popen(
        [TREADLE, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(home),
        cwd=home,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        process.stdin.flush()
        if files is None:
            assert any(b'"id":2' in line for line in process.stdout)
        else:
            process.stdout.readline()
            staged = "plugin-install-*/sample/new/*"
            while len(list(cache.glob(staged))) < files and not (cache / "sample").exists():
                assert process.poll() is None
        process.kill()


async def test_a_list_of_plugins_with_large_manifests_is_limited(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small repository can have a thousand plugins in one folder, with a manifest of 1 MiB."""
    monkeypatch.setattr("treadle.server.plugins.catalog.MAX_SHOWN", 100_000)
    text = "x" * 4000
    shop = tmp_path / "shop"
    write_plugin(shop / "plugins" / "large", {"name": "large", "keywords": [text] * 9})
    entries = [{"name": f"p{at}", "source": "./plugins/large"} for at in range(50)]
    write_marketplace(shop, entries)
    async with serving(configuration(home)) as peer:
        listed = await result(peer, "plugin/list", {"cwds": [str(shop)]})
        search = await result(peer, "plugin/search", {"searchTerm": "p", "cwds": [str(shop)]})

    plugins = listed["marketplaces"][0]["plugins"]
    assert (len(plugins), len(search["data"])) == (50, 50)
    assert [bool(each["keywords"]) for each in plugins] == [True, *[False] * 49]
    assert len(json.dumps(search)) < 100_000


async def test_the_hooks_that_are_shown_of_a_plugin_are_limited(home: Path, tmp_path: Path) -> None:
    """A file of 1 MiB has half a million of them, and a manifest can name it 64 times."""
    shop = tmp_path / "shop"
    folder = shop / "plugins" / "many"
    write_plugin(folder, {"name": "many", "hooks": ["./h.json"] * 64})
    write_json(folder / "h.json", {"hooks": {"Stop": [{"hooks": [0] * 300}] * 5}})
    path = write_marketplace(shop, ["many"])
    async with serving(configuration(home)) as peer:
        asked = {"marketplacePath": str(path), "pluginName": "many"}
        answer = await result(peer, "plugin/read", asked)

    hooks = [each["key"] for each in answer["plugin"]["hooks"]]
    assert len(hooks) == len(set(hooks)) == 1000


async def test_a_plugin_is_not_copied_from_outside_its_repository(
    home: Path, tmp_path: Path
) -> None:
    """A link of the repository is the folder of the plugin."""
    write_plugin(tmp_path / "private" / "sample", {"name": "sample"})
    other = tmp_path / "repositories" / "other"
    other.mkdir(parents=True)
    (other / "link").symlink_to(tmp_path / "private" / "sample")
    commit_all(other)
    with git_server(other.parent) as (url, _):
        source = {"source": "git-subdir", "url": f"{url}/other/.git", "path": "link"}
        path = write_marketplace(tmp_path / "shop", [{"name": "sample", "source": source}])
        asked = {"marketplacePath": str(path), "pluginName": "sample"}
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        async with serving(configuration(home, environ=environ)) as peer:
            error = await refusal(peer, "plugin/install", asked)

    assert error["message"] == "the path is a link that leads outside"
    assert list((home / "plugins" / "cache").rglob("plugin.json")) == []


async def test_a_link_leads_nowhere_outside_through_another_link(
    home: Path, tmp_path: Path
) -> None:
    """As text, the path stays inside; what it leads through is a link to a folder further up."""
    shop = tmp_path / "repositories" / "shop"
    write_sample(shop)
    (shop / "a" / "b").mkdir(parents=True)
    (shop / "a" / "b" / "up").symlink_to("../..")
    (shop / "out").symlink_to("a/b/up/../../../config.toml")
    (shop / "back").symlink_to("a/b/up/../new/README")
    (shop / "loop").symlink_to("loop")
    commit_all(shop)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    with git_server(shop.parent) as (url, _):
        async with serving(configuration(home, environ=environ)) as peer:
            answer = await result(peer, ADD, {"source": f"{url}/shop/.git"})

    root = Path(answer["installedRoot"])
    assert [each for each in ("out", "back", "loop") if (root / each).is_symlink()] == []
    assert (root / "a" / "b" / "up").is_symlink()


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_repository_does_not_replace_a_plugin_by_the_name_of_its_marketplace(
    home: Path, tmp_path: Path, *, is_own: bool
) -> None:
    """It would inherit the settings of that plugin, and the user's trust in its hooks."""
    theirs = tmp_path / "user" if is_own else tmp_path / "shop"
    table = "" if is_own else f'[marketplaces.shop]\nsource_type = "local"\nsource = "{theirs}"\n'
    path, other = write_sample(theirs), write_sample(tmp_path / "repository")
    environ = {"HOME": str(tmp_path / "user")}
    async with serving(configuration(home, table, environ=environ)) as peer:
        client = Client(peer)  # it is notified of new skills
        asked = {"marketplacePath": str(path), "pluginName": "sample"}
        await client.request("plugin/install", asked)
        refused = await client.refusal("plugin/install", {**asked, "marketplacePath": str(other)})

    assert refused.message == (
        f"marketplace `shop` in {path} is another one, which you have already; "
        "remove that one before"
    )
