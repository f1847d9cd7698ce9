"""`modelProvider/list` and `modelProvider/config/write`; the texts are those of release 0.169.0."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.server.serving import configuration, refusal, result, serving
from treadle.protocol.base import JsonValue

TEXT = """\
model_provider = "mine"
# kept
[model_providers.mine]
name = "Mine"
base_url = "http://127.0.0.1:9/v1"

[model_providers."odd \\"id"]
name = "Odd"
base_url = "http://user:secret@127.0.0.1:9/v1?key=secret"
http_headers = { "X-Key" = "secret" }
"""


def gateway(**settings: JsonValue) -> JsonValue:
    return {"settings": {"type": "customGateway", **settings}}


def summary(id_: str, name: str, url: str, auth: JsonValue, *, edit: bool = True) -> JsonValue:
    settings = {"type": "customGateway", "auth": auth}
    return {"id": id_, "name": name, "canEdit": edit, "baseUrl": url, "settings": settings}


async def test_providers_are_listed_without_secrets(home: Path) -> None:
    async with serving(configuration(home, TEXT)) as peer:
        answer = await result(peer, "modelProvider/list", {})

    assert (answer["defaultProviderId"], answer["canChangeDefault"]) == ("mine", True)
    listed = {each["id"]: each for each in answer["data"]}
    assert set(listed) == {
        "anthropic",
        "lmstudio",
        "mine",
        'odd "id',
        "ollama",
        "openai",
        "scripted",
    }
    assert listed["mine"] == summary("mine", "Mine", "http://127.0.0.1:9/v1", {"mode": "none"})
    assert listed['odd "id']["baseUrl"] is None
    assert listed['odd "id']["settings"]["auth"]["mode"] == "externallyConfigured"
    assert listed["openai"]["settings"] == {"type": "openai"}
    assert listed["anthropic"]["settings"]["auth"] == {
        "mode": "environmentVariable",
        "envKey": "ANTHROPIC_API_KEY",
    }
    assert not any(listed[id_]["canEdit"] for id_ in ("openai", "anthropic", "scripted"))
    assert "secret" not in str(answer)


async def test_a_provider_is_added_with_a_new_id_and_can_be_used(home: Path) -> None:
    new = gateway(name="My gw!", baseUrl="https://models.example/v1", envKey="GW_KEY")
    auth = {"mode": "environmentVariable", "envKey": "GW_KEY"}
    async with serving(configuration(home, TEXT)) as peer:
        first = await result(peer, "modelProvider/config/write", new)
        second = await result(peer, "modelProvider/config/write", new)
        started = await result(peer, "thread/start", {"modelProvider": "my-gw", "model": "m"})

    url = "https://models.example/v1"
    assert first["provider"] == summary("my-gw", "My gw!", url, auth)
    assert second["provider"]["id"] == "my-gw-2"
    assert started["modelProvider"] == "my-gw"
    text = (home / "config.toml").read_text()
    assert "# kept\n" in text
    assert tomllib.loads(text)["model_providers"]["my-gw"] == {
        "name": "My gw!",
        "base_url": url,
        "env_key": "GW_KEY",
        "wire_api": "responses",
    }


async def test_absent_fields_stay_and_null_clears(home: Path) -> None:
    text = TEXT.replace('name = "Mine"', 'name = "Mine"\nenv_key = "OLD"')
    async with serving(configuration(home, text)) as peer:
        renamed = await result(
            peer, "modelProvider/config/write", gateway(providerId="mine", name="New")
        )
        cleared = await result(
            peer, "modelProvider/config/write", gateway(providerId="mine", envKey=None)
        )
        odd = await result(
            peer, "modelProvider/config/write", gateway(providerId='odd "id', name="Even")
        )

    url = "http://127.0.0.1:9/v1"
    old = {"mode": "environmentVariable", "envKey": "OLD"}
    assert renamed["provider"] == summary("mine", "New", url, old)
    assert cleared["provider"] == summary("mine", "New", url, {"mode": "none"})
    assert (odd["provider"]["id"], odd["provider"]["name"]) == ('odd "id', "Even")


URL = "Enter an HTTP(S) base URL without credentials, a query, or a fragment."


@pytest.mark.parametrize(
    ("settings", "message", "path"),
    [
        ({"name": "x"}, URL, "settings.baseUrl"),
        *(
            ({"name": "x", "baseUrl": url}, URL, "settings.baseUrl")
            for url in ("ftp://x", "http://", "http://u:p@x", "http://x?k=1", "http://[x", "x")
        ),
        (
            {"providerId": "openai", "baseUrl": "http://x"},
            "A custom provider or gateway cannot use a built-in provider ID.",
            "settings.providerId",
        ),
        ({"providerId": "none", "name": "x"}, "Unknown provider ID.", "settings.providerId"),
        ({"providerId": "mine", "name": ""}, "a name has 1 to 100 characters", "settings.name"),
        (
            {"providerId": "mine", "envKey": "a b"},
            "invalid name of a variable: 'a b'",
            "settings.envKey",
        ),
    ],
)
async def test_an_invalid_change_is_refused_and_changes_nothing(
    home: Path, settings: JsonValue, message: str, path: str
) -> None:
    async with serving(configuration(home, TEXT)) as peer:
        error = await refusal(peer, "modelProvider/config/write", gateway(**settings))
    assert (error["code"], error["message"], error["data"]["path"]) == (-32600, message, path)
    assert (home / "config.toml").read_text() == TEXT


async def test_unknown_fields_and_other_services_are_refused(home: Path) -> None:
    async with serving(configuration(home, TEXT)) as peer:
        unknown = await refusal(peer, "modelProvider/config/write", gateway(bogus=1))
        bedrock = {"type": "bedrock", "providerId": "amazon-bedrock", "region": "us-east-1"}
        other = await refusal(peer, "modelProvider/config/write", {"settings": bedrock})
    assert "bogus" in unknown["message"]
    assert other["data"]["kind"] == "unsupported"


@pytest.mark.parametrize(
    ("settings", "searches"),
    [
        ('wire_api = "responses"', True),
        ('wire_api = "chat"', False),
        ('wire_api = "anthropic"', False),
    ],
)
async def test_the_search_of_a_provider_depends_on_its_interface(
    home: Path, settings: str, *, searches: bool
) -> None:
    """Ours: upstream has only providers with the Responses API, and makes images."""
    async with serving(configuration(home, TEXT.replace('"Mine"', f'"Mine"\n{settings}'))) as peer:
        answer = await result(peer, "modelProvider/capabilities/read", {})

    assert answer == {"imageGeneration": False, "webSearch": searches}


async def test_a_disabled_search_is_not_offered(home: Path) -> None:
    async with serving(configuration(home, f'web_search = "disabled"\n{TEXT}')) as peer:
        answer = await result(peer, "modelProvider/capabilities/read", {})

    assert answer["webSearch"] is False
