"""`plugin/list`, `plugin/read`, `plugin/installed` and `plugin/search`: what marketplaces list."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.placeholders import placeholders
from tests.harness.plugins import (
    MARKETPLACE,
    write_json,
    write_marketplace,
    write_plugin,
    write_sample,
    write_skill,
)
from tests.harness.repositories import repository
from tests.harness.threads import spawned
from tests.server.serving import configuration, refusal, result, serving
from treadle.protocol.base import JsonValue

ODD = [
    {"name": "by-path", "source": "./plugins/plain"},
    {"name": "root", "source": "./"},
    {"name": "broken", "source": "./plugins/broken"},
    {"name": "missing", "source": "./plugins/missing"},
    {"name": "twice", "source": "./plugins/plain"},
    {"name": "twice", "source": "./plugins/broken"},
    {"name": "bad name!", "source": "./plugins/plain"},
    {"name": "outside", "source": "../plain"},
    {"name": "bare", "source": "plugins/plain"},
    {"name": "not-here", "source": "./plugins/plain", "policy": {"installation": "NOT_AVAILABLE"}},
    {
        "name": "default",
        "source": {"source": "local", "path": "./plugins/plain"},
        "policy": {"installation": "INSTALLED_BY_DEFAULT", "authentication": "ON_USE"},
        "category": "Design",
    },
    {"name": "url", "source": {"source": "url", "url": "https://github.com/o/r", "ref": "main"}},
    {"name": "part", "source": {"source": "git-subdir", "url": "o/r", "path": "plugins/x"}},
    {"name": "npm", "source": {"source": "npm", "package": "@x/y", "version": "1.0.0"}},
    {"name": "unknown", "source": {"source": "zip", "path": "x"}},
    {"name": "number", "source": 7},
]


def add(root: Path, name: str = "shop") -> str:
    """Return the table of a marketplace in a folder."""
    return f'[marketplaces.{name}]\nsource_type = "local"\nsource = "{root}"\n'


def write_odd(root: Path) -> Path:
    write_plugin(root / "plugins" / "plain", {"name": "plain", "description": "Plain"})
    write_json(root / "plugins" / "broken" / ".codex-plugin" / "plugin.json", "{broken")
    return write_marketplace(root, ODD)


def names_of(answer: JsonValue) -> dict[str, list[str]]:
    """Return the names of the listed plugins by marketplace."""
    return {
        each["name"]: [plugin["name"] for plugin in each["plugins"]]
        for each in answer["marketplaces"]
    }


async def test_plugins_are_listed_and_read_as_by_the_reference(
    golden: Golden, home: Path, tmp_path: Path
) -> None:
    odd, sample = tmp_path / "odd", tmp_path / "sample"
    odd_path, sample_path = write_odd(odd), write_sample(sample)
    write_json(sample_path, {**_shop("samples", ["sample"]), "interface": {"displayName": "Shop"}})
    write_json(home / "config.toml", add(odd, "shop") + add(sample, "samples"))
    read = [(sample_path, "sample"), *((odd_path, name) for name in ("by-path", "url", "npm"))]
    async with spawned([golden.program, "app-server"], home) as client:
        answers: dict[str, JsonValue] = {"list": await client.request("plugin/list", {})}
        for path, name in read:
            params = {"marketplacePath": str(path), "pluginName": name}
            answers[f"read {name}"] = await client.request("plugin/read", params)
        answers["installed"] = await client.request("plugin/installed", {})
        suggest = {"installSuggestionPluginNames": ["by-path", "none"]}
        answers["suggested"] = await client.request("plugin/installed", suggest)
    answers["list"].pop("remoteSyncError", None)  # of 0.118

    names = {str(odd): "<odd>", str(sample): "<sample>"}
    golden.check("listing", placeholders(answers, names))


def _shop(name: str, plugins: list[str]) -> dict[str, JsonValue]:
    entries = [{"name": each, "source": f"./plugins/{each}"} for each in plugins]
    return {"name": name, "plugins": entries}


async def test_marketplaces_of_the_user_the_configuration_and_the_folders_are_found(
    home: Path, tmp_path: Path
) -> None:
    """Upstream: in this order; an empty one is not listed."""
    project = repository(tmp_path / "project")
    claude, cursor = tmp_path / "claude", tmp_path / "cursor"
    for root, name in ((home, "own"), (project, "project"), (claude, "claude"), (cursor, "cursor")):
        write_plugin(root / "plugins" / "one")
        write_marketplace(root, ["one"], name)
    for root, place in ((claude, ".claude-plugin"), (cursor, ".cursor-plugin")):
        (root / MARKETPLACE).parent.rename(root / place)
    write_marketplace(tmp_path / "empty", [], "empty")
    (project / "src").mkdir()
    text = add(cursor, "b") + add(claude, "a") + add(tmp_path / "empty", "empty")
    async with serving(configuration(home, text, environ={"HOME": str(home)})) as peer:
        from_below = await result(peer, "plugin/list", {"cwds": [str(project / "src")]})
        without = await result(peer, "plugin/list")

    assert list(names_of(from_below)) == ["own", "claude", "cursor", "project"]
    assert list(names_of(without)) == ["own", "claude", "cursor"]
    assert from_below["marketplaceLoadErrors"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{\n "name": "shop",\n "plugins": [x]}',
            "JSON is malformed: invalid character at line 3 column 14",
        ),
        ('{"name": "shop"', "Input data was truncated at line 1 column 15"),
        ("", "Input data was truncated at line 1 column 0"),
        ("[]", "expected an object"),
        ('{"name": "shop"}', "missing field `plugins`"),
        ('{"plugins": []}', "missing field `name`"),
        ('{"name": 5, "plugins": []}', "expected a string at `name`"),
        ('{"name": "shop", "plugins": {}}', "expected an array at `plugins`"),
        ('{"name": "shop", "plugins": [5]}', "expected an object at `plugins[0]`"),
        ('{"name": "s", "plugins": [{"name": "a"}]}', "missing field `source` at `plugins[0]`"),
        (
            '{"name": "s", "plugins": [{"name": "a", "source": "./a", "category": 5}]}',
            "expected a string at `plugins[0].category`",
        ),
        (
            '{"name":"s","plugins":[{"name":"a","source":"./a","policy":{"installation":"NO"}}]}',
            (
                "expected one of NOT_AVAILABLE, AVAILABLE, INSTALLED_BY_DEFAULT"
                " at `plugins[0].policy.installation`"
            ),
        ),
        ("[" * 5000, "nested more than 128 levels deep"),
        (" " * (1024 * 1024 + 1), "expected at most 1048576 bytes"),
        ('{"name": "\xff"}'.encode("latin-1"), "it is not UTF-8"),
    ],
)
async def test_a_damaged_marketplace_is_reported_and_the_others_are_listed(
    home: Path, tmp_path: Path, text: str | bytes, problem: str
) -> None:
    """Upstream: the message names the file; ours also has the place in the file."""
    bad, good = tmp_path / "bad", tmp_path / "good"
    write_sample(good)
    path = bad / MARKETPLACE
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    async with serving(configuration(home, add(bad, "bad") + add(good))) as peer:
        listed = await result(peer, "plugin/list")
        installed = await result(peer, "plugin/installed")
        params = {"marketplacePath": str(path), "pluginName": "sample"}
        error = await refusal(peer, "plugin/read", params)

    message = f"invalid marketplace file `{path}`: {problem}"
    fault = {"marketplacePath": str(path), "message": message}
    assert names_of(listed) == {"shop": ["sample"]}
    assert listed["marketplaceLoadErrors"] == installed["marketplaceLoadErrors"] == [fault]
    assert (error["code"], error["message"]) == (-32600, message)


async def test_a_configured_marketplace_that_is_gone_is_reported(
    home: Path, tmp_path: Path
) -> None:
    """Ours: the reference leaves it out."""
    async with serving(configuration(home, add(tmp_path / "gone"))) as peer:
        answer = await result(peer, "plugin/list")

    message = f"marketplace `shop` has no marketplace file in {tmp_path / 'gone'}"
    assert answer["marketplaceLoadErrors"] == [
        {"marketplacePath": str(tmp_path / "gone"), "message": message}
    ]


async def test_pipes_and_folders_in_place_of_files_do_not_hang(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    write_sample(root)
    manifest = root / "plugins" / "sample" / ".codex-plugin" / "plugin.json"
    manifest.unlink()
    os.mkfifo(manifest)
    os.mkfifo(root / "plugins" / "sample" / "plugin.json")
    other = tmp_path / "other"
    (other / MARKETPLACE).mkdir(parents=True)
    async with serving(configuration(home, add(root) + add(other, "other"))) as peer:
        answer = await result(peer, "plugin/list")

    assert names_of(answer) == {"shop": ["sample"]}
    assert answer["marketplaces"][0]["plugins"][0]["interface"] is None
    assert [each["marketplacePath"] for each in answer["marketplaceLoadErrors"]] == [str(other)]


async def test_the_number_of_plugins_of_a_marketplace_is_limited(
    home: Path, tmp_path: Path
) -> None:
    entries = [{"name": f"p{at}", "source": f"./p{at}"} for at in range(1100)]
    write_marketplace(tmp_path / "many", entries)
    async with serving(configuration(home, add(tmp_path / "many"))) as peer:
        answer = await result(peer, "plugin/list")

    assert len(names_of(answer)["shop"]) == 1000


async def test_texts_of_a_manifest_are_cut(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    manifest = {
        "name": "wordy",
        "keywords": ["k"] * 500,
        "interface": {"displayName": "x" * 10_000, "capabilities": 5},
    }
    write_plugin(root / "plugins" / "wordy", manifest)
    write_marketplace(root, ["wordy"])
    async with serving(configuration(home, add(root))) as peer:
        (plugin,) = (await result(peer, "plugin/list"))["marketplaces"][0]["plugins"]

    assert len(plugin["interface"]["displayName"]) == 4096
    assert plugin["interface"]["capabilities"] == []
    assert len(plugin["keywords"]) == 64


async def test_files_outside_a_plugin_are_never_shown(home: Path, tmp_path: Path) -> None:
    """Ours: the reference checks the text of a path, not where links lead."""
    root, outside = tmp_path / "shop", tmp_path / "outside"
    write_sample(root)
    write_skill(outside / "skills" / "secret")
    write_json(outside / "icon.png", "x")
    write_json(outside / ".mcp.json", {"mcpServers": {"evil": {"command": "x"}}})
    folder = root / "plugins" / "sample"
    (folder / "assets" / "icon.png").symlink_to(outside / "icon.png")
    (folder / "skills" / "linked").symlink_to(outside / "skills")
    (folder / ".mcp.json").unlink()
    (folder / ".mcp.json").symlink_to(outside / ".mcp.json")
    (root / "plugins" / "linked").symlink_to(outside)
    path = write_marketplace(root, ["sample", "linked"])
    async with serving(configuration(home, add(root))) as peer:
        listed = await result(peer, "plugin/list")
        params = {"marketplacePath": str(path), "pluginName": "sample"}
        plugin = (await result(peer, "plugin/read", params))["plugin"]

    assert names_of(listed) == {"shop": ["sample"]}
    assert plugin["summary"]["interface"]["composerIcon"] is None
    assert plugin["mcpServers"] == []


@pytest.mark.parametrize(
    ("term", "more", "found"),
    [
        ("SAMP", {}, ["sample"]),
        ("plugin", {}, ["sample"]),
        ("a", {"limit": 1}, ["sample"]),
        ("design", {}, []),
        (" ", {}, []),
        ("a", {"scope": "personal"}, ["sample", "other"]),
        ("a", {"scope": "global"}, []),
    ],
)
async def test_plugins_are_found_by_their_names(
    home: Path, tmp_path: Path, term: str, more: JsonValue, found: list[str]
) -> None:
    """Upstream: local plugins are those of the scope `personal`; an empty term finds nothing."""
    root = tmp_path / "shop"
    write_sample(root)
    write_plugin(root / "plugins" / "other", {"name": "other", "interface": {"displayName": "Any"}})
    write_marketplace(root, ["sample", "other"])
    async with serving(configuration(home, add(root))) as peer:
        answer = await result(peer, "plugin/search", {"searchTerm": term, **more})

    assert [each["plugin"]["name"] for each in answer["data"]] == found
    assert (answer["nextCursor"] is not None) == ("limit" in more)


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("plugin/list", {"cwds": ["rel"]}, "cwds[0]"),
        ("plugin/list", {"cwds": ["/a\0b"]}, "cwds[0]"),
        ("plugin/list", {"cwds": ["/x"] * 101}, "cwds"),
        ("plugin/list", {"cwds": [5]}, "cwds[0]"),
        ("plugin/installed", {"cwds": ["rel"]}, "cwds[0]"),
        (
            "plugin/installed",
            {"installSuggestionPluginNames": ["x"] * 101},
            "installSuggestionPluginNames",
        ),
        ("plugin/search", {}, "searchTerm"),
        ("plugin/search", {"searchTerm": "x" * 257}, "searchTerm"),
        ("plugin/search", {"searchTerm": "x", "cursor": "y"}, "cursor"),
        ("plugin/read", {"marketplacePath": "rel", "pluginName": "x"}, "marketplacePath"),
        ("plugin/read", {"marketplacePath": "/a\0b", "pluginName": "x"}, "marketplacePath"),
        ("plugin/read", {"marketplacePath": "/" + "x" * 5000, "pluginName": "x"}, None),
        ("plugin/read", {"marketplacePath": "/x"}, "pluginName"),
        ("plugin/install", {"marketplacePath": "rel", "pluginName": "x"}, "marketplacePath"),
        ("plugin/uninstall", {}, "pluginId"),
    ],
)
async def test_an_invalid_parameter_is_named(
    home: Path, method: str, params: JsonValue, path: str | None
) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, method, params)

    assert error["code"] == -32600
    assert error["data"].get("path") == (path or "marketplacePath")


async def test_a_plugin_that_cannot_be_read_is_refused_with_the_reason(
    home: Path, tmp_path: Path
) -> None:
    """Upstream: the codes, and the messages where it has no line to name."""
    path = write_odd(tmp_path / "odd")
    both = {"marketplacePath": str(path), "remoteMarketplaceName": "x", "pluginName": "x"}
    cases: list[tuple[JsonValue, str]] = [
        ({"pluginName": "none"}, "plugin `none` was not found in marketplace `shop`"),
        ({"pluginName": "missing"}, "path does not exist or is not a directory"),
        (
            {"pluginName": "broken"},
            (
                "failed to parse plugin.json: JSON is malformed: object keys must be strings"
                " at line 1 column 2"
            ),
        ),
        (
            {"pluginName": "x", "marketplacePath": "/none/x.json"},
            "marketplace file `/none/x.json` does not exist",
        ),
        (
            {"pluginName": "x", "marketplacePath": __file__},
            (
                f"invalid marketplace file `{__file__}`: "
                "marketplace file is not in a supported location"
            ),
        ),
        (
            {"pluginName": "x", "marketplacePath": None},
            "plugin/read requires exactly one of marketplacePath or remoteMarketplaceName",
        ),
        (both, "plugin/read requires exactly one of marketplacePath or remoteMarketplaceName"),
        (
            {"pluginName": "x", "marketplacePath": None, "remoteMarketplaceName": "x"},
            (
                "read remote plugin details: there is no remote catalogue: "
                "add a marketplace from a folder or a repository"
            ),
        ),
    ]
    async with serving(configuration(home)) as peer:
        for params, message in cases:
            given = {"marketplacePath": str(path), **params}
            error = await refusal(peer, "plugin/read", given)
            assert (error["code"], error["message"]) == (-32600, message)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("plugin/share/list", {}),
        ("plugin/share/save", {"pluginPath": "/x"}),
        ("plugin/share/delete", {"remotePluginId": "x"}),
        ("plugin/share/checkout", {"remotePluginId": "x"}),
        (
            "plugin/skill/read",
            {"remoteMarketplaceName": "x", "remotePluginId": "y", "skillName": "z"},
        ),
        ("plugin/list", {"marketplaceKinds": ["workspace-directory"]}),
    ],
)
async def test_what_needs_a_service_of_the_vendor_is_refused_with_the_reason(
    home: Path, method: str, params: JsonValue
) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, method, params)

    assert (error["code"], error["data"]["kind"]) == (-32600, "unsupported")
    assert "there is no remote catalogue" in error["message"] or "OpenAI" in error["message"]


async def test_nothing_is_listed_while_the_feature_is_off(home: Path, tmp_path: Path) -> None:
    """Upstream: the lists are empty, and reading is refused. Ours: installing is refused too."""
    path = write_sample(tmp_path / "shop")
    text = "[features]\nplugins = false\n" + add(tmp_path / "shop")
    params = {"marketplacePath": str(path), "pluginName": "sample"}
    async with serving(configuration(home, text)) as peer:
        listed = await result(peer, "plugin/list")
        installed = await result(peer, "plugin/installed")
        found = await result(peer, "plugin/search", {"searchTerm": "sample"})
        errors = [await refusal(peer, f"plugin/{each}", params) for each in ("read", "install")]

    assert listed["marketplaces"] == installed["marketplaces"] == found["data"] == []
    assert {error["message"] for error in errors} == {"plugins feature is disabled"}


async def test_reconciling_local_plugins_changes_nothing(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "plugin/reconcile", {"reason": "test"})

    assert answer == {
        "changedPlugins": [],
        "failedMaterializationRemotePluginIds": [],
        "failedRemotePluginIds": [],
    }
