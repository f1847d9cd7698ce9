"""The feature flags: which one applies, what clients see of them, and what they may switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.peer import Peer
from tests.harness.threads import Client, params_of
from tests.server.serving import configuration, refusal, result, serving
from treadle.engine.features import FLAGS
from treadle.protocol.base import JsonValue


async def states(peer: Peer, **params: JsonValue) -> dict[str, bool]:
    """The state of every flag."""
    answer = await result(peer, "experimentalFeature/list", params)
    return {each["name"]: each["enabled"] for each in answer["data"]}


async def switch(peer: Peer, **enablement: bool) -> JsonValue:
    """Switch features; return those that the answer lists."""
    answer = await result(peer, "experimentalFeature/enablement/set", {"enablement": enablement})
    return answer["enablement"]


async def warnings_of(peer: Peer) -> list[JsonValue]:
    """The warnings about the configuration of a new thread."""
    client = Client(peer)
    await client.start()
    return params_of(client.received, "configWarning")


async def test_the_list_holds_every_flag_with_its_stage_and_default(home: Path) -> None:
    """Upstream: only beta flags have texts for users."""
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "experimentalFeature/list", {})

    assert [each["name"] for each in answer["data"]] == [flag.name for flag in FLAGS]
    assert answer["data"][0] == {
        "name": "shell_tool",
        "stage": "stable",
        "displayName": None,
        "description": None,
        "announcement": None,
        "enabled": True,
        "defaultEnabled": True,
    }
    texts = ("displayName", "description", "announcement")
    with_texts = {each["name"] for each in answer["data"] if any(each[text] for text in texts)}
    assert with_texts == {each["name"] for each in answer["data"] if each["stage"] == "beta"}


async def test_the_list_has_pages(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        page = await result(peer, "experimentalFeature/list", {"limit": 1})
        rest = await result(peer, "experimentalFeature/list", {"cursor": page["nextCursor"]})

    assert (page["nextCursor"], len(page["data"]), len(rest["data"])) == ("1", 1, len(FLAGS) - 1)


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ("zz", "invalid cursor: zz"),
        ("999", f"cursor 999 exceeds total feature flags {len(FLAGS)}"),
    ],
)
async def test_an_invalid_cursor_is_refused(home: Path, cursor: str, message: str) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "experimentalFeature/list", {"cursor": cursor})

    assert (error["code"], error["message"]) == (-32600, message)


@pytest.mark.parametrize("thread_id", ["nope", "00000000-0000-7000-8000-000000000000"])
async def test_the_list_of_an_unknown_thread_is_refused(home: Path, thread_id: str) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "experimentalFeature/list", {"threadId": thread_id})

    assert error["code"] == -32600


async def test_the_list_of_a_thread_shows_its_own_flags(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        config = {"features.goals": False, "features.collab": False}
        client = Client(peer)
        params = {"threadId": await client.start(config=config)}
        answer = await client.request("experimentalFeature/list", params)

    off = {each["name"] for each in answer["data"] if each["enabled"] < each["defaultEnabled"]}
    assert off == {"goals", "multi_agent"}


class TestPrecedence:
    """Upstream: requirements, command line, config.toml, what a client switches, the default."""

    async def test_a_client_switches_a_feature_until_the_server_ends(self, home: Path) -> None:
        """Upstream 0.163: other names are omitted from the answer, without an error."""
        async with serving(configuration(home)) as peer:
            answer = await switch(peer, apps=False, goals=False, nope=True)
            after = await states(peer)

        assert answer == {"apps": False}
        assert (after["apps"], after["goals"], after["plugins"]) == (False, True, True)

    async def test_a_switch_leaves_earlier_ones_alone(self, home: Path) -> None:
        async with serving(configuration(home)) as peer:
            await switch(peer, apps=False)
            await switch(peer, plugins=False)
            after = await states(peer)

        assert (after["apps"], after["plugins"]) == (False, False)

    async def test_the_file_overrides_the_switch(self, home: Path) -> None:
        async with serving(configuration(home, "[features]\napps = true")) as peer:
            await switch(peer, apps=False)
            assert (await states(peer))["apps"] is True

    async def test_the_command_line_overrides_the_file(self, home: Path) -> None:
        settings = configuration(home, "[features]\napps = true", "features.apps=false")
        async with serving(settings) as peer:
            await switch(peer, apps=True)
            assert (await states(peer))["apps"] is False

    async def test_requirements_override_everything(self, home: Path) -> None:
        demands = "[features]\napps = false\ncollab = false\ngoals = true\n"
        text = "[features]\ngoals = false\nmulti_agent = true"
        settings = configuration(home, text, "features.apps=true", requirements=demands)
        async with serving(settings) as peer:
            answer = await switch(peer, apps=True, plugins=False)
            after = await states(peer)
            config = (await result(peer, "config/read", {}))["config"]

        assert answer == {"plugins": False}
        shown = {name: after[name] for name in ("apps", "goals", "multi_agent", "plugins")}
        assert shown == {"apps": False, "goals": True, "multi_agent": False, "plugins": False}
        assert config["features"]["apps"] is False

    async def test_a_flag_with_options_keeps_them_when_it_is_pinned(self, home: Path) -> None:
        text = '[features.network_proxy]\nenabled = true\ndomains = { "a.test" = "allow" }'
        demands = "[features]\nnetwork_proxy = false"
        async with serving(configuration(home, text, requirements=demands)) as peer:
            config = (await result(peer, "config/read", {}))["config"]
            after = await states(peer)

        pinned = {"enabled": False, "domains": {"a.test": "allow"}}
        assert (config["features"]["network_proxy"], after["network_proxy"]) == (pinned, False)

    async def test_a_client_learns_that_its_setting_does_not_apply(self, home: Path) -> None:
        demands = "[features]\ngoals = true"
        settings = configuration(home, "[features]\ngoals = false", requirements=demands)
        async with serving(settings) as peer:
            warnings = await warnings_of(peer)

        summary = "`features.goals` = false is not allowed on this machine; true is used instead."
        assert summary in [each["summary"] for each in warnings]

    async def test_invalid_requirements_refuse_a_switch(self, home: Path) -> None:
        async with serving(configuration(home)) as peer:
            (home.parent / "system" / "requirements.toml").write_text("[features]\napps = 3\n")
            params = {"enablement": {"apps": False}}
            error = await refusal(peer, "experimentalFeature/enablement/set", params)

        assert error["data"]["kind"] == "invalidConfig"


class TestNames:
    async def test_names_that_codex_knows_are_accepted(self, home: Path) -> None:
        text = "[features]\nmemories = true\ncode_mode = true\ntelepathy = false"
        async with serving(configuration(home, text)) as peer:
            warnings = await warnings_of(peer)

        assert warnings == []

    async def test_an_unknown_name_gives_a_warning(self, home: Path) -> None:
        """Upstream: `features.nope` is ignored."""
        async with serving(configuration(home, "[features]\nnope = true")) as peer:
            (warning,) = await warnings_of(peer)

        assert "`features.nope` is ignored" in warning["summary"]

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("[features]\ncollab = false", "multi_agent"),
            ("experimental_use_unified_exec_tool = false", "unified_exec"),
            ("[tools]\nview_image = false", "view_image"),
        ],
    )
    async def test_older_names_still_switch(self, home: Path, text: str, name: str) -> None:
        async with serving(configuration(home, text)) as peer:
            assert (await states(peer))[name] is False

    async def test_the_current_name_wins_over_an_older_one(self, home: Path) -> None:
        text = "[features]\nmulti_agent = true\ncollab = false"
        async with serving(configuration(home, text)) as peer:
            assert (await states(peer))["multi_agent"] is True

    async def test_a_value_that_is_not_a_switch_is_refused(self, home: Path) -> None:
        async with serving(configuration(home, '[features]\ngoals = "maybe"')) as peer:
            error = await Client(peer).refusal("thread/start", {})

        assert "`features.goals`: expected `bool`, got `str`" in error.message


async def test_a_default_search_that_is_not_allowed_is_limited(home: Path) -> None:
    """Ours: the default mode follows the requirements too."""
    demands = 'allowed_web_search_modes = ["disabled"]'
    async with serving(configuration(home, requirements=demands)) as peer:
        config = (await result(peer, "config/read", {}))["config"]

    assert config["web_search"] == "disabled"


def test_the_documentation_lists_every_flag_with_its_stage_and_default() -> None:
    page = Path(__file__).parents[2] / "docs" / "features.md"
    rows = [line.split("|")[1:4] for line in page.read_text("utf-8").splitlines() if "| `" in line]
    written = [tuple(cell.strip(" `") for cell in row) for row in rows]
    defaults = {True: "on", False: "off"}
    assert written == [(flag.name, flag.stage, defaults[flag.is_default]) for flag in FLAGS]
