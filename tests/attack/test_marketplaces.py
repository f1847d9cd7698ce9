"""Marketplaces whose plugins describe themselves at length, or with dangerous links."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.plugins import write_marketplace, write_plugin
from tests.server.serving import configuration, result, serving
from treadle.server.plugins import catalog

NAMES = [f"p{number}" for number in range(20)]


@pytest.mark.parametrize("method", ["plugin/list", "plugin/search"])
async def test_a_list_of_plugins_is_limited_to_what_clients_can_receive(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A repository that no user trusts could make it several times larger than messages may be."""
    monkeypatch.setattr(catalog, "MAX_SHOWN", 20_000)
    for name in NAMES:
        manifest = {"name": name, "interface": {"capabilities": ["x" * 1000] * 3}}
        write_plugin(workspace / "plugins" / name, manifest)
    write_marketplace(workspace, NAMES)
    params = {"cwds": [str(workspace)], "searchTerm": "p"}
    async with serving(configuration(home)) as peer:
        answer = await result(peer, method, params)

    if method == "plugin/list":
        (market,) = answer["marketplaces"]
        plugins = market["plugins"]
    else:
        plugins = [each["plugin"] for each in answer["data"]]
    assert sorted(each["name"] for each in plugins) == sorted(NAMES)
    assert 3 <= sum(each["interface"] is not None for each in plugins) <= 7


async def test_links_of_a_plugin_that_a_client_must_not_open_are_left_out(
    home: Path, workspace: Path
) -> None:
    links = {"websiteUrl": "javascript:x", "privacyPolicyURL": "file:///x", "category": "c"}
    interface = {**links, "termsOfServiceUrl": "https://example.com/terms"}
    write_plugin(workspace / "plugins" / "one", {"name": "one", "interface": interface})
    write_marketplace(workspace, ["one"])
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "plugin/list", {"cwds": [str(workspace)]})

    shown = answer["marketplaces"][0]["plugins"][0]["interface"]
    assert (shown["websiteUrl"], shown["privacyPolicyUrl"]) == (None, None)
    assert shown["termsOfServiceUrl"] == "https://example.com/terms"
