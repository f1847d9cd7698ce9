"""`plugin/install` and `plugin/uninstall`: the cache, the configuration, and what threads get."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.hooks import Hooks
from tests.harness.mcp import PLAIN
from tests.harness.model_server import model_server
from tests.harness.peer import Peer
from tests.harness.placeholders import placeholders
from tests.harness.plugins import (
    MANIFEST,
    MARKETPLACE,
    write_json,
    write_marketplace,
    write_plugin,
    write_sample,
    write_skill,
)
from tests.harness.threads import Client, configure, spawned, staged
from tests.server.serving import client_of, configuration, refusal, result, running
from treadle.config.configuration import Configuration
from treadle.engine.plugins import cache as cache_module
from treadle.engine.plugins import copying
from treadle.engine.plugins.cache import PluginCache
from treadle.engine.plugins.ids import PluginId
from treadle.protocol.base import JsonValue

PLUGIN = "sample@shop"


def install(path: Path, name: str = "sample") -> JsonValue:
    return {"marketplacePath": str(path), "pluginName": name}


def cache(home: Path) -> Path:
    return home / "plugins" / "cache" / "shop"


def tree(folder: Path) -> list[str]:
    """Return the files below a folder."""
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@asynccontextmanager
async def quiet(there: Configuration) -> AsyncIterator[Peer]:
    """Run a server, and yield a client that wants no notification about skills."""
    async with (
        running(there) as server,
        client_of(server, optOutNotificationMethods=["skills/changed"]) as peer,
    ):
        yield peer


NAMED: JsonValue = {"name": "sample"}


async def test_plugins_are_installed_used_and_removed_as_by_the_reference(
    golden: Golden, home: Path, tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    path = write_sample(shop)
    seen: dict[str, JsonValue] = {}
    async with model_server() as model:
        configure(home, model)
        before = (home / "config.toml").read_text()
        async with spawned([golden.program, "app-server"], home) as client:
            seen["add"] = await client.request("marketplace/add", {"source": str(shop)})
            seen["install"] = await client.request("plugin/install", install(path))
            seen["files"] = tree(home / "plugins")
            seen["config"] = (home / "config.toml").read_text().removeprefix(before)
            listed = await client.request("plugin/list", {})
            seen["listed"] = listed["marketplaces"][0]["plugins"][0]
            (entry,) = (await client.request("skills/list", {"cwds": [str(tmp_path)]}))["data"]
            seen["skills"] = [each for each in entry["skills"] if each["pluginId"]]
            servers = await client.request("mcpServerStatus/list", {})
            seen["servers"] = [(each["name"], each["pluginId"]) for each in servers["data"]]
            seen["hooks"] = await client.request("hooks/list", {"cwds": [str(tmp_path)]})
            await _mention(client, tmp_path)
            seen["uninstall"] = await client.request("plugin/uninstall", {"pluginId": PLUGIN})
            seen["again"] = await client.request("plugin/uninstall", {"pluginId": PLUGIN})
            seen["left"] = tree(home / "plugins")
            gone = {"marketplaceName": "shop"}
            seen["remove"] = await client.request("marketplace/remove", gone)
            seen["after"] = (home / "config.toml").read_text().removeprefix(before)
        items = model.requests[-1].body["input"]
    texts = [part["text"] for item in items if "content" in item for part in item["content"]]
    seen["texts"] = [text for text in texts if text.startswith("Capabilities from")]

    golden.check(
        "installed",
        placeholders(seen, {str(shop): "<shop>", str(home): "<home>", str(tmp_path): "<cwd>"}),
    )


async def _mention(client: Client, folder: Path) -> None:
    """Run a turn whose input mentions the plugin."""
    answer = await client.request("thread/start", {"cwd": str(folder)})
    thread_id = answer["thread"]["id"]
    await client.until(
        "mcpServer/startupStatus/updated", lambda params: params["status"] == "ready"
    )
    mention = {"type": "mention", "name": "Sample Plugin", "path": f"plugin://{PLUGIN}"}
    await client.run(thread_id, input=[{"type": "text", "text": "@sample do it"}, mention])


async def test_loaded_threads_get_the_servers_and_skills_of_a_new_plugin(home: Path) -> None:
    """Upstream: without a restart, until the plugin is removed."""
    async with staged(home) as stage:
        shop = stage.workspace.parent / "shop"
        path = write_sample(shop)
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await client.run(thread_id)
        await client.request("plugin/install", install(path))
        await client.until(
            "mcpServer/startupStatus/updated", lambda params: params["status"] == "ready"
        )
        await client.run(thread_id)
        await client.request("plugin/uninstall", {"pluginId": PLUGIN})
        await client.run(thread_id)
        requests = stage.model.requests

    tools = [{tool.get("name") for tool in each.body["tools"]} for each in requests]
    names = [
        any(str(name).startswith("helper") or "helper" in str(name) for name in each)
        for each in tools
    ]
    assert names == [False, True, False]
    assert ["sample:greet" in json.dumps(each.body["input"][-3:]) for each in requests] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("form", ["mention", "link"])
async def test_a_mentioned_plugin_is_described_after_the_message(home: Path, form: str) -> None:
    """Upstream: a part of the input, or a link in its text; each plugin once."""
    async with staged(home) as stage:
        path = write_sample(stage.workspace.parent / "shop")
        client = await stage.client()
        await client.request("plugin/install", install(path))
        thread_id = await client.start(cwd=str(stage.workspace))
        if form == "mention":
            mention = {"type": "mention", "name": "x", "path": f"plugin://{PLUGIN}"}
            parts = [{"type": "text", "text": "@sample"}, mention, mention]
            others = [{"type": "mention", "name": "x", "path": "plugin://none@shop"}]
        else:
            parts = [{"type": "text", "text": f"use [@Sample](plugin://{PLUGIN}) now"}]
            others = [{"type": "text", "text": "[x](plugin://none@shop)"}]
        await client.run(thread_id, input=[*parts, *others])
        items = stage.model.requests[-1].body["input"]

    at = [item["role"] for item in items].index("user", 2)
    assert at < len(items) - 1
    assert items[-1]["role"] == "developer"
    text = items[-1]["content"][0]["text"]
    assert text.startswith("Capabilities from the `Sample Plugin` plugin:\n")
    assert "- Skills from this plugin are prefixed with `sample:`." in text
    assert json.dumps(items).count("Capabilities from") == 1


async def test_a_thread_may_disable_a_plugin(home: Path) -> None:
    """Upstream: `disabledPluginIds`."""
    async with staged(home) as stage:
        path = write_sample(stage.workspace.parent / "shop")
        client = await stage.client()
        await client.request("plugin/install", install(path))
        thread_id = await client.start(cwd=str(stage.workspace))
        settings = {"threadId": thread_id, "disabledPluginIds": [PLUGIN]}
        await client.request("thread/settings/update", settings)
        mention = {"type": "mention", "name": "x", "path": f"plugin://{PLUGIN}"}
        await client.run(thread_id, input=[{"type": "text", "text": "hi"}, mention])
        items = stage.model.requests[-1].body["input"]

    assert "Capabilities from" not in json.dumps(items)
    assert "sample:greet" not in json.dumps(items)


async def test_a_plugin_of_the_other_program_is_used(home: Path, tmp_path: Path) -> None:
    """Upstream: the layout of cache and configuration."""
    folder = write_plugin(cache(home) / "sample" / "local", NAMED)
    skill = write_skill(folder / "skills" / "greet")
    text = f'[plugins."{PLUGIN}"]\nenabled = true\n'
    async with quiet(configuration(home, text)) as peer:
        (entry,) = (await result(peer, "skills/list", {"cwds": [str(tmp_path)]}))["data"]

    assert [(each["name"], each["path"]) for each in entry["skills"]] == [
        ("sample:greet", str(skill))
    ]


@pytest.mark.parametrize(
    ("versions", "used"),
    [
        (["1.9.0", "1.10.0"], "1.10.0"),
        (["2.0.0", "2.0.0-rc.1"], "2.0.0"),
        (["1.0.0", "local"], "local"),
        (["1.0.0", "a b"], "1.0.0"),
    ],
)
async def test_the_newest_version_in_the_cache_is_used(
    home: Path, tmp_path: Path, versions: list[str], used: str
) -> None:
    """Upstream: `local` comes first, then the highest version."""
    for version in versions:
        write_skill(write_plugin(cache(home) / "sample" / version, NAMED) / "skills" / "greet")
    async with quiet(configuration(home, f'[plugins."{PLUGIN}"]\n')) as peer:
        (entry,) = (await result(peer, "skills/list", {"cwds": [str(tmp_path)]}))["data"]

    assert [each["path"].split("/")[-4] for each in entry["skills"] if "path" in each] == [used]


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("1.0.0", "2.0.0", ["2.0.0"]),
        ("2.0.0", "1.0.0", ["1.0.0"]),
        ("1.0.0", None, ["local"]),
        (None, "1.0.0", ["1.0.0"]),
        ("1.0.0", "1.0.0", ["1.0.0"]),
    ],
)
async def test_installing_again_replaces_every_other_version(
    home: Path, tmp_path: Path, before: str | None, after: str | None, left: list[str]
) -> None:
    folder = tmp_path / "shop" / "plugins" / "sample"
    path = write_marketplace(tmp_path / "shop", ["sample"])
    async with quiet(configuration(home)) as peer:
        for version in (before, after):
            named = {"name": "sample", **({} if version is None else {"version": version})}
            write_plugin(folder, {**named, "description": f"{version}"}, marker=f"{version}")
            await result(peer, "plugin/install", install(path))

    assert names_in(cache(home) / "sample") == left
    assert (cache(home) / "sample" / left[0] / "marker").read_text() == str(after)
    assert names_in(cache(home)) == ["sample"]


BAD_MANIFESTS: list[tuple[JsonValue, str]] = [
    ("{", "failed to parse plugin.json: Input data was truncated at line 1 column 1"),
    ([], "failed to parse plugin.json: expected an object"),
    ({"name": 5}, "failed to parse plugin.json: expected a string at `name`"),
    ({"name": "other"}, "plugin.json name `other` does not match marketplace plugin name `sample`"),
    (
        {"name": "sample", "version": ""},
        "invalid plugin version in plugin.json: must not be blank",
    ),
    (
        {"name": "sample", "version": 5},
        "invalid plugin version in plugin.json: expected string",
    ),
    (
        {"name": "sample", "version": "../x"},
        "invalid plugin version: only ASCII letters, digits, `.`, `+`, `_`, and `-` are allowed",
    ),
    (
        {"name": "sample", "version": ".."},
        "invalid plugin version: path traversal is not allowed",
    ),
]


@pytest.mark.parametrize(("manifest", "problem"), BAD_MANIFESTS)
async def test_a_bad_plugin_is_refused_and_changes_nothing(
    home: Path, tmp_path: Path, manifest: JsonValue, problem: str
) -> None:
    """Upstream: the messages about names and versions."""
    path = write_sample(tmp_path / "shop")
    async with quiet(configuration(home, "# mine\n")) as peer:
        await result(peer, "plugin/install", install(path))
        before = (tree(home / "plugins"), (home / "config.toml").read_text())
        write_json(tmp_path / "shop" / "plugins" / "sample" / MANIFEST, manifest)
        error = await refusal(peer, "plugin/install", install(path))

    assert (error["code"], error["message"]) == (-32600, problem)
    assert (tree(home / "plugins"), (home / "config.toml").read_text()) == before
    assert names_in(cache(home)) == ["sample"]


async def test_what_a_marketplace_does_not_offer_is_refused(home: Path, tmp_path: Path) -> None:
    """Upstream: `NOT_AVAILABLE`, other products, unknown names, packages."""
    shop = tmp_path / "shop"
    write_plugin(shop / "plugins" / "sample")
    policies: dict[str, JsonValue] = {
        "not-here": {"installation": "NOT_AVAILABLE"},
        "other-product": {"products": ["CHATGPT"]},
        "no-product": {"products": []},
    }
    entries: list[JsonValue] = [
        {"name": name, "source": "./plugins/sample", "policy": policy}
        for name, policy in policies.items()
    ]
    npm = {"name": "package", "source": {"source": "npm", "package": "x"}}
    path = write_marketplace(shop, [*entries, npm])
    async with quiet(configuration(home)) as peer:
        messages = [
            (await refusal(peer, "plugin/install", install(path, name)))["message"]
            for name in (*policies, "none", "package")
        ]

    where = "is not available for install in marketplace `shop`"
    assert messages == [
        *(f"plugin `{name}` {where}" for name in policies),
        "plugin `none` was not found in marketplace `shop`",
        "npm plugin sources are not supported: use a git repository or a folder as its source",
    ]
    assert not (home / "plugins").exists()


@pytest.mark.parametrize(
    "plugin_id", ["", "sample", "@shop", "sample@", "../x@shop", "a@b/c", "a@..", "x" * 200 + "@s"]
)
async def test_an_invalid_id_is_refused(home: Path, plugin_id: str) -> None:
    kept = home / "plugins" / "cache" / "shop" / "kept" / "local"
    kept.mkdir(parents=True)
    async with quiet(configuration(home)) as peer:
        error = await refusal(peer, "plugin/uninstall", {"pluginId": plugin_id})

    assert (error["code"], error["data"]["kind"]) == (-32600, "invalidPlugin")
    assert kept.exists()


async def test_a_user_file_that_cannot_be_read_leaves_the_cache_unchanged(
    home: Path, tmp_path: Path
) -> None:
    path = write_sample(tmp_path / "shop")
    async with quiet(configuration(home)) as peer:
        (home / "config.toml").write_text('plugins = "x"\n')
        error = await refusal(peer, "plugin/install", install(path))

    assert (error["code"], error["data"]["kind"]) == (-32603, "invalidConfig")
    assert tree(home / "plugins") == []
    assert (home / "config.toml").read_text() == 'plugins = "x"\n'


async def test_what_is_copied_is_private_and_has_neither_links_nor_history(
    home: Path, tmp_path: Path
) -> None:
    """Upstream: links are left out. Ours: files are private, and there is no history."""
    path = write_sample(tmp_path / "shop")
    folder = tmp_path / "shop" / "plugins" / "sample"
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "links").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    write_json(folder / ".git" / "config", "x")
    program = write_json(folder / "run.sh", "#!/bin/sh\n")
    program.chmod(0o755)
    async with quiet(configuration(home)) as peer:
        await result(peer, "plugin/install", install(path))

    copy = cache(home) / "sample" / "1.2.0"
    assert {"link", "links", "pipe", ".git"}.isdisjoint(names_in(copy))
    modes = {each.stat().st_mode & 0o777 for each in copy.rglob("*") if each.is_file()}
    assert modes == {0o600, 0o700}
    assert (copy / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (home / "plugins").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["entries", "size", "depth"])
async def test_a_huge_plugin_is_refused_and_leaves_nothing(
    home: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_sample(tmp_path / "shop")
    folder = tmp_path / "shop" / "plugins" / "sample"
    match kind:
        case "entries":
            for at in range(10_001):
                (folder / f"{at}").touch()
        case "size":
            with (folder / "sparse").open("wb") as file:
                file.truncate(257 * 1024 * 1024)
        case _:
            deep = folder.joinpath(*(["d"] * (copying.MAX_DEPTH + 2)))
            deep.mkdir(parents=True)
    async with quiet(configuration(home)) as peer:
        error = await refusal(peer, "plugin/install", install(path))

    assert error["message"].startswith("the folder has ")
    assert tree(home / "plugins") == []
    assert names_in(cache(home)) == []


async def test_what_a_killed_server_left_is_removed(home: Path, tmp_path: Path) -> None:
    left = cache(home) / "plugin-install-abc" / "sample" / "new"
    write_plugin(left)
    path = write_sample(tmp_path / "shop")
    async with quiet(configuration(home)) as peer:
        await result(peer, "plugin/install", install(path))

    assert names_in(cache(home)) == ["sample"]


async def test_hooks_of_active_plugins_are_provided(home: Path, tmp_path: Path) -> None:
    """The contract of `ActivePlugins.hook_sources`."""
    path = write_sample(tmp_path / "shop")
    folder = tmp_path / "shop" / "plugins" / "sample"
    inline: JsonValue = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}
    write_json(folder / "hooks" / "broken.json", "{")
    manifest = json.loads((folder / MANIFEST).read_text())
    write_json(
        folder / MANIFEST,
        {
            **manifest,
            "hooks": ["./hooks/hooks.json", "./hooks/broken.json", "./hooks/none.json", inline],
        },
    )
    async with running(configuration(home)) as server:
        plugins = server.plugins
        await plugins.installer.install(path, "sample")
        sources, warnings = server.active_plugins.hook_sources()

    root = cache(home) / "sample" / "1.2.0"
    broken = "Input data was truncated at line 1 column 1"
    assert [(each.label, str(each.path), list(each.hooks)) for each in sources] == [
        ("hooks/hooks.json", str(root / "hooks" / "hooks.json"), ["SessionStart"]),
        ("plugin.json#hooks[3]", str(root / MANIFEST), ["Stop"]),
    ]
    assert {str(each.plugin) for each in sources} == {PLUGIN}
    assert {each.root for each in sources} == {root}
    assert {each.data for each in sources} == {home / "plugins" / "data" / "sample-shop"}
    assert warnings == [
        f"failed to parse plugin hooks config {root / 'hooks' / 'broken.json'}: {broken}",
        (
            f"failed to read plugin hooks config {root / 'hooks' / 'none.json'}: "
            "No such file or directory"
        ),
    ]


async def test_a_hook_of_a_plugin_runs_when_the_user_trusts_it(home: Path) -> None:
    """Upstream: with the plugin's folders in its environment, and in `hooks/list`."""
    command = 'echo "$PLUGIN_ROOT $CLAUDE_PLUGIN_ROOT $PLUGIN_DATA" >> "$PLUGIN_ROOT/ran"'
    hooks: JsonValue = {
        "hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": command}]}]}
    }
    async with staged(home) as stage:
        shop = stage.workspace.parent / "shop"
        path = write_sample(shop)
        write_json(shop / "plugins" / "sample" / "hooks" / "hooks.json", hooks)
        client = await stage.client()
        await client.request("plugin/install", install(path))
        root = cache(home) / "sample" / "1.2.0"
        thread_id = await client.start(cwd=str(stage.workspace))
        await client.run(thread_id)
        assert not (root / "ran").exists()
        await Hooks(home, client).trust(stage.workspace)
        await client.run(thread_id)
        assert (root / "ran").read_text() == f"{root} {root} {home}/plugins/data/sample-shop\n"
        settings = {"threadId": thread_id, "disabledPluginIds": [PLUGIN]}
        await client.request("thread/settings/update", settings)
        await client.run(thread_id)
        listed = await client.request("hooks/list", {"cwds": [str(stage.workspace)]})

    assert len((root / "ran").read_text().splitlines()) == 1
    (hook,) = listed["data"][0]["hooks"]
    assert (hook["source"], hook["pluginId"], hook["trustStatus"]) == ("plugin", PLUGIN, "trusted")
    assert hook["key"] == f"{PLUGIN}:hooks/hooks.json:user_prompt_submit:0:0"


SERVERS: JsonValue = {
    "plain": {"command": "python3", "args": PLAIN},
    "outside": {"command": "python3", "args": PLAIN, "cwd": "../../.."},
    "number": 5,
    "mine": {"command": "none"},
}


async def test_servers_of_plugins_obey_the_user(home: Path, tmp_path: Path) -> None:
    """Upstream: the user's own server of a name counts, and policies per plugin apply.

    Ours: a server whose folder is outside the plugin is left out.
    """
    folder = write_plugin(cache(home) / "sample" / "local", NAMED)
    write_json(folder / ".mcp.json", SERVERS)
    text = (
        f'[plugins."{PLUGIN}".mcp_servers.plain]\nenabled_tools = ["echo"]\n'
        '[mcp_servers.mine]\ncommand = "mine"\nenabled = false\n'
    )
    async with quiet(configuration(home, text, environ=dict(os.environ))) as peer:
        data = (await result(peer, "mcpServerStatus/list"))["data"]

    assert [(each["name"], each["pluginId"]) for each in data] == [
        ("mine", None),
        ("plain", PLUGIN),
    ]
    (tool,) = data[1]["tools"].values()
    assert tool["name"] == "echo"
    assert tool["description"].endswith(". This tool is part of plugin `sample`.")


@pytest.mark.parametrize("place", [MARKETPLACE, ".claude-plugin/marketplace.json"])
@pytest.mark.parametrize("manifest", [".claude-plugin", ".cursor-plugin", ""])
async def test_places_of_other_agents_are_accepted(
    home: Path, tmp_path: Path, place: str, manifest: str
) -> None:
    """Upstream."""
    shop = tmp_path / "shop"
    write_json(shop / "plugins" / "sample" / manifest / "plugin.json", {"name": "sample"})
    write_marketplace(shop, ["sample"])
    if place != MARKETPLACE:
        (shop / MARKETPLACE).parent.rename(shop / Path(place).parent)
    async with quiet(configuration(home)) as peer:
        answer = await result(peer, "plugin/install", install(shop / place))

    assert answer == {"appsNeedingAuth": [], "authPolicy": "ON_INSTALL"}
    assert names_in(cache(home) / "sample") == ["local"]


def test_a_plugin_that_another_server_removes_meanwhile_is_removed(tmp_path: Path) -> None:
    """Two servers of a home may remove it at the same time."""
    plugins, plugin = PluginCache(tmp_path), PluginId.parse(PLUGIN)
    base = plugins.base(plugin)
    base.mkdir(parents=True)

    @contextmanager
    def removed(_folder: Path) -> Iterator[None]:
        base.rmdir()
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "locked", removed)
        plugins.uninstall(plugin)

    assert plugins.active(plugin) is None
