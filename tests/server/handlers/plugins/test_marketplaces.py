"""`marketplace/add`, `marketplace/upgrade` and `marketplace/remove`: folders and repositories."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.peer import Peer
from tests.harness.placeholders import placeholders
from tests.harness.plugins import (
    MANIFEST,
    SAMPLE,
    commit_all,
    git_server,
    write_json,
    write_marketplace,
    write_plugin,
    write_sample,
)
from tests.harness.repositories import git
from tests.harness.threads import spawned
from tests.server.serving import client_of, configuration, refusal, result, running
from treadle.protocol.base import JsonValue

ADD, UPGRADE, REMOVE = "marketplace/add", "marketplace/upgrade", "marketplace/remove"


# The history, which only the reference keeps, and what it leaves of refused marketplaces.
_IGNORED = re.compile(r"/\.git/|^\.staging/")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a marketplace: the tag `v1`, the branch `next`, and `main`."""
    folder = tmp_path / "repositories" / "shop"
    write_sample(folder)
    commit_all(folder)
    git(folder, "tag", "v1")
    git(folder, "checkout", "--quiet", "-b", "next")
    write_json(folder / "next", "x")
    commit_all(folder)
    git(folder, "checkout", "--quiet", "main")
    return folder


@pytest.fixture
def url(repository: Path) -> Iterator[str]:
    """Return the address of the repository."""
    with git_server(repository.parent) as (address, _):
        yield f"{address}/shop/.git"


@asynccontextmanager
async def client(home: Path, text: str = "", **environ: str) -> AsyncIterator[Peer]:
    """Run a server that finds git, and yield a client of it."""
    there = configuration(home, text, environ={**os.environ, **environ})
    options = {"optOutNotificationMethods": ["skills/changed"]}
    async with running(there) as server, client_of(server, **options) as peer:
        yield peer


def files(folder: Path) -> list[str]:
    """Return the files below a folder, without the history of a repository."""
    found = (each.relative_to(folder) for each in folder.rglob("*") if each.is_file())
    return sorted(str(each) for each in found if each.parts[0] != ".git")


def fetched(home: Path) -> Path:
    return home / ".tmp" / "marketplaces"


def entry(home: Path) -> str:
    return (home / "config.toml").read_text()


async def test_marketplaces_come_and_go_as_with_the_reference(
    golden: Golden, home: Path, repository: Path, url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    write_plugin(folder / "plugins" / "one")
    write_marketplace(folder, ["one"], "local-shop")
    sparse = {"source": f"{url}#v1", "sparsePaths": [".agents", "plugins/sample/skills"]}
    steps: list[tuple[str, JsonValue]] = [
        (ADD, {"source": str(folder)}),
        (ADD, {"source": str(folder)}),
        (ADD, {"source": url}),
        (ADD, {"source": url}),
        (UPGRADE, {}),
        (UPGRADE, {"marketplaceName": "shop"}),
        (REMOVE, {"marketplaceName": "local-shop"}),
        (REMOVE, {"marketplaceName": "shop"}),
        (ADD, sparse),
        (ADD, {"source": url, "refName": "next"}),
        (REMOVE, {"marketplaceName": "shop"}),
        (REMOVE, {"marketplaceName": "shop"}),
        (REMOVE, {"marketplaceName": "../x"}),
        (UPGRADE, {"marketplaceName": "shop"}),
        *((ADD, each) for each in refused_sources(folder)),
    ]
    seen: list[JsonValue] = []
    write_json(home / "config.toml", "")
    async with spawned([golden.program, "app-server"], home) as peer:
        for method, params in steps:
            if method == UPGRADE:
                commit_all(repository)
            answer = await answer_of(peer.peer, method, params)
            kept: dict[str, JsonValue] = {
                "config": tomllib.loads(entry(home)),
                "files": files(fetched(home)),
            }
            kept["files"] = [each for each in kept["files"] if not _IGNORED.search(each)]
            fault = answer.get("error")
            said = fault and [fault["code"], fault["message"].removesuffix(" (os error 2)")]
            seen.append([method, params, answer.get("result", said), kept])

    names = {str(folder): "<folder>", str(home): "<home>", url: "<url>"}
    golden.check("marketplaces", placeholders(seen, names), _alike)


async def answer_of(peer: Peer, method: str, params: JsonValue) -> JsonValue:
    """Return the answer to a request; notifications are left out."""
    await peer.send({"id": "x", "method": method, "params": params})
    while (message := await peer.receive()).get("id") != "x":
        pass
    return message


def _alike(recorded: JsonValue, ours: JsonValue) -> None:
    """Compare, but for a record that the reference writes only when it updates a marketplace."""
    for step in (*recorded, *ours):
        step[3]["files"] = [each for each in step[3]["files"] if not each.endswith("-install.json")]
    for mine, theirs in zip(ours, recorded, strict=True):
        assert mine == theirs


def refused_sources(folder: Path) -> list[JsonValue]:
    return [
        {"source": " "},
        {"source": "a/b/c"},
        {"source": "word"},
        {"source": "file:///tmp/x"},
        {"source": "ext::sh -c touch% /tmp/x"},
        {"source": "--upload-pack=touch"},
        {"source": "/none"},
        {"source": str(folder / ".agents" / "plugins" / "marketplace.json")},
        {"source": str(folder / "plugins")},
        {"source": str(folder), "refName": "x"},
        {"source": str(folder), "sparsePaths": ["x"]},
    ]


@pytest.mark.parametrize(
    ("ref", "has_next"), [(None, False), ("v1", False), ("next", True), ("commit", True)]
)
async def test_a_branch_a_tag_or_a_commit_is_fetched(
    home: Path, repository: Path, url: str, ref: str | None, has_next: bool
) -> None:
    """Upstream. A server hands out a commit by itself only if it is configured to."""
    if ref == "commit":
        ref = git(repository, "rev-parse", "next")
    async with client(home) as peer:
        answer = await result(peer, ADD, {"source": url, "refName": ref})
        listed = await result(peer, "plugin/list")

    root = fetched(home) / "shop"
    assert answer == {
        "alreadyAdded": False,
        "installedRoot": str(root),
        "marketplaceName": "shop",
    }
    assert (root / "next").exists() == has_next
    assert [each["name"] for each in listed["marketplaces"]] == ["shop"]
    assert (root.stat().st_mode & 0o777, fetched(home).stat().st_mode & 0o777) == (0o700, 0o700)
    assert not (root / ".git").exists()


async def test_an_update_installs_the_installed_plugins_again(
    home: Path, repository: Path, url: str
) -> None:
    """Upstream."""
    async with client(home) as peer:
        await result(peer, ADD, {"source": url})
        path = str(fetched(home) / "shop" / ".agents" / "plugins" / "marketplace.json")
        install = {"marketplacePath": path, "pluginName": "sample"}
        await result(peer, "plugin/install", install)
        same = await result(peer, UPGRADE)
        write_json(repository / "plugins" / "sample" / MANIFEST, {**SAMPLE, "version": "2.0.0"})
        commit = commit_all(repository)
        changed = await result(peer, UPGRADE, {"marketplaceName": "shop"})
        again = await result(peer, UPGRADE)

    root = str(fetched(home) / "shop")
    nothing = {"errors": [], "selectedMarketplaces": ["shop"], "upgradedRoots": []}
    assert (same, again) == (nothing, nothing)
    assert changed == {**nothing, "upgradedRoots": [root]}
    versions = [each.name for each in (home / "plugins" / "cache" / "shop" / "sample").iterdir()]
    assert versions == ["2.0.0"]
    record = json.loads((fetched(home) / "shop" / ".codex-marketplace-install.json").read_text())
    assert record == {
        "source_type": "git",
        "source": url,
        "ref_name": None,
        "sparse_paths": [],
        "revision": commit,
    }


async def test_a_failed_update_names_the_marketplace_and_keeps_the_files(
    home: Path, repository: Path, url: str
) -> None:
    other = f'[marketplaces.other]\nsource_type = "git"\nsource = "{url}"\nref = "none"\n'
    async with client(home, other) as peer:
        await result(peer, ADD, {"source": url})
        before = files(fetched(home))
        write_marketplace(repository, ["sample"], "renamed")
        commit_all(repository)
        answer = await result(peer, UPGRADE)

    assert answer == {
        "errors": [
            {
                "marketplaceName": "other",
                "message": "git ls-remote: no branch or tag 'none'",
            },
            {
                "marketplaceName": "shop",
                "message": "upgraded marketplace name `renamed` does not match"
                " configured marketplace `shop`",
            },
        ],
        "selectedMarketplaces": ["other", "shop"],
        "upgradedRoots": [],
    }
    assert files(fetched(home)) == before


async def test_an_update_that_brings_a_bad_plugin_keeps_the_installed_one(
    home: Path, repository: Path, url: str
) -> None:
    async with client(home) as peer:
        await result(peer, ADD, {"source": url})
        path = str(fetched(home) / "shop" / ".agents" / "plugins" / "marketplace.json")
        await result(peer, "plugin/install", {"marketplacePath": path, "pluginName": "sample"})
        write_json(repository / "plugins" / "sample" / MANIFEST, "{")
        commit_all(repository)
        answer = await result(peer, UPGRADE)

    reason = "failed to parse plugin.json: Input data was truncated at line 1 column 1"
    assert answer["errors"] == [
        {"marketplaceName": "shop", "message": f"plugin `sample`: {reason}"}
    ]
    assert (home / "plugins" / "cache" / "shop" / "sample" / "1.2.0" / MANIFEST).exists()


@pytest.mark.parametrize(
    "source",
    [
        {"source": "url", "ref": "main"},
        {"source": "url", "path": "./"},
        {"source": "git-subdir", "path": "plugins/sample"},
    ],
)
async def test_a_plugin_in_another_repository_is_fetched_to_be_installed(
    home: Path, tmp_path: Path, repository: Path, url: str, source: dict[str, str]
) -> None:
    """Upstream: from the repository, or from a folder in it."""
    if "path" not in source:
        write_json(repository / MANIFEST, SAMPLE)
        commit_all(repository)
    path = write_marketplace(
        tmp_path / "local", [{"name": "sample", "source": {**source, "url": url}}], "shop"
    )
    params = {"marketplacePath": str(path), "pluginName": "sample"}
    async with client(home, TMPDIR=str(tmp_path / "temporary")) as peer:
        (tmp_path / "temporary").mkdir()
        if source.get("path") == "./":
            error = await refusal(peer, "plugin/install", params)
            assert error["message"] == "plugin `sample` was not found in marketplace `shop`"
            return
        await result(peer, "plugin/install", params)
        detail = (await result(peer, "plugin/read", params))["plugin"]

    assert detail["summary"]["installed"] is True
    assert detail["summary"]["localVersion"] == "1.2.0"
    assert detail["description"] == "A sample"
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("none", "git fetch failed: fatal: couldn't find remote ref none"),
        ("f" * 40, None),
    ],
)
async def test_an_unknown_branch_leaves_nothing(
    home: Path, url: str, ref: str, message: str | None
) -> None:
    async with client(home) as peer:
        error = await refusal(peer, ADD, {"source": url, "refName": ref})

    assert (error["code"], error["data"]["kind"]) == (-32603, "fetchFailed")
    assert message is None or error["message"] == message
    assert files(home) == ["config.toml"]
    assert entry(home) == ""


@pytest.mark.parametrize("ref", ["--upload-pack=x", "-x", "a..b", "a b", "a\nb", "x" * 2000, ":x"])
async def test_a_ref_that_is_none_is_refused(home: Path, url: str, ref: str) -> None:
    async with client(home) as peer:
        error = await refusal(peer, ADD, {"source": url, "refName": ref})

    assert error["code"] == -32600
    assert error["message"].startswith("invalid git ref ")


@pytest.mark.parametrize("paths", [["../x"], ["/etc"], ["-x"], [""], ["a\0b"], ["x"] * 101])
async def test_sparse_paths_outside_are_refused(home: Path, url: str, paths: list[str]) -> None:
    async with client(home) as peer:
        error = await refusal(peer, ADD, {"source": url, "sparsePaths": paths})

    assert error["code"] == -32600
    assert "parse" in error["message"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("openai-curated", "is reserved and cannot be added from this source"),
        ("bad name", "invalid marketplace name"),
        ("..", "invalid marketplace name"),
        ("", "invalid marketplace name"),
    ],
)
async def test_a_marketplace_cannot_take_every_name(
    home: Path, tmp_path: Path, name: str, problem: str
) -> None:
    write_plugin(tmp_path / "x" / "plugins" / "one")
    write_marketplace(tmp_path / "x", ["one"], name)
    async with client(home) as peer:
        error = await refusal(peer, ADD, {"source": str(tmp_path / "x")})

    assert error["code"] == -32600
    assert problem in error["message"]
    assert entry(home) == ""


async def test_a_repository_cannot_replace_another_marketplace(
    home: Path, repository: Path, url: str
) -> None:
    async with client(home) as peer:
        await result(peer, ADD, {"source": str(repository)})
        error = await refusal(peer, ADD, {"source": url})

    assert error["message"] == (
        "marketplace 'shop' is already added from a different source; "
        "remove it before adding this source"
    )
    assert files(fetched(home)) == []


async def test_lists_are_answered_while_a_repository_is_fetched(home: Path) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()
        ended.set()

    connected, ended = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    there = configuration(home, environ=dict(os.environ))
    async with running(there) as ours, client_of(ours) as one, client_of(ours) as other:
        source = {"source": f"http://127.0.0.1:{port}/x.git"}
        await one.send({"id": 77, "method": ADD, "params": source})
        await connected.wait()
        await result(other, "plugin/list")
    # The end of the server ends git.
    async with asyncio.timeout(20):
        await ended.wait()
    server.close()


@pytest.mark.parametrize("edit", ["[marketplaces.shop\n", "marketplaces = 5\n"])
async def test_a_user_file_that_cannot_be_written_keeps_the_old_state(
    home: Path, url: str, edit: str
) -> None:
    async with client(home) as peer:
        (home / "config.toml").write_text(edit)
        error = await refusal(peer, ADD, {"source": url})

    assert error["data"]["kind"] == "invalidConfig"
    assert entry(home) == edit
    assert files(fetched(home)) == []


async def test_damaged_tables_of_marketplaces_do_not_hide_the_others(
    home: Path, tmp_path: Path
) -> None:
    write_sample(tmp_path / "shop")
    text = (
        "[marketplaces]\nnumber = 5\nempty = {}\n"
        'relative = { source_type = "local", source = "x" }\n'
        '"../up" = { source_type = "git", source = "x" }\n'
        f'good = {{ source_type = "local", source = "{tmp_path / "shop"}" }}\n'
        '[plugins]\nword = 5\n"a@b" = 5\n"c@d" = { enabled = "x" }\n'
    )
    async with client(home, text) as peer:
        answer = await result(peer, "plugin/list")
        upgraded = await result(peer, UPGRADE)

    assert [each["name"] for each in answer["marketplaces"]] == ["shop"]
    assert upgraded["selectedMarketplaces"] == []
