"""`model/list`: the models that a client is offered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.threads import Client, params_of
from tests.server.serving import configuration, refusal, result, serving
from treadle.model.catalog import SCRIPTED_MODEL
from treadle.protocol.base import JsonValue

KEY = {"OPENAI_API_KEY": "sk-1"}


def names(answer: JsonValue) -> list[str]:
    return [model["model"] for model in answer["data"]]


@asynccontextmanager
async def provider(requests: list[str], *models: str) -> AsyncIterator[str]:
    """Run a provider that only lists models; yield the setting that names it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        body = json.dumps({"object": "list", "data": [{"id": model} for model in models]})
        head = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1")
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f'model_provider = "p"\n[model_providers.p]\nbase_url = "http://127.0.0.1:{port}/v1"\n'


async def test_a_new_machine_offers_the_scripted_model(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "model/list", {})

    assert names(answer) == [SCRIPTED_MODEL]
    assert answer["data"][0]["isDefault"] is True
    assert answer["nextCursor"] is None


async def test_openai_offers_its_catalog_with_one_default(home: Path) -> None:
    """Upstream-mandated: official clients need a visible model with efforts."""
    async with serving(configuration(home, environ=KEY)) as peer:
        answer = await result(peer, "model/list", {"includeHidden": False})

    assert [model["isDefault"] for model in answer["data"]].count(True) == 1
    assert not any(model["hidden"] for model in answer["data"])
    assert all(model["supportedReasoningEfforts"] for model in answer["data"])


async def test_hidden_models_are_listed_on_request(home: Path) -> None:
    async with serving(configuration(home, environ=KEY)) as peer:
        visible = await result(peer, "model/list", {})
        everything = await result(peer, "model/list", {"includeHidden": True})

    assert set(names(visible)) <= set(names(everything))
    shown = [model["model"] for model in everything["data"] if not model["hidden"]]
    assert shown == names(visible)


async def test_pages_follow_each_other_without_gaps(home: Path) -> None:
    async with serving(configuration(home, environ=KEY)) as peer:
        whole = await result(peer, "model/list", {})
        paged: list[str] = []
        cursor = None
        while True:
            answer = await result(peer, "model/list", {"limit": 1, "cursor": cursor})
            paged += names(answer)
            cursor = answer["nextCursor"]
            if cursor is None:
                break

    assert paged == names(whole)


@pytest.mark.parametrize(
    ("cursor", "message"),
    [("zz", "invalid cursor: zz"), ("999", "cursor 999 exceeds total models 1")],
)
async def test_an_invalid_cursor_is_refused(home: Path, cursor: str, message: str) -> None:
    """Upstream's texts."""
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "model/list", {"cursor": cursor})

    assert (error["code"], error["message"]) == (-32600, message)


async def test_a_custom_provider_is_asked_for_its_models(home: Path) -> None:
    """Ours: it does not receive a key of OpenAI."""
    requests: list[str] = []
    async with (
        provider(requests, "one", "two") as text,
        serving(configuration(home, f'model = "two"\n{text}', environ=KEY)) as peer,
    ):
        answer = await result(peer, "model/list", {})

    assert set(names(answer)) == {"one", "two"}
    (request,) = requests
    assert request.startswith("GET /v1/models")
    assert "sk-1" not in request


async def test_a_provider_is_asked_with_the_required_residency(home: Path) -> None:
    """Upstream: requirements add the header to all requests."""
    requests: list[str] = []
    demands = 'enforce_residency = "us"'
    async with (
        provider(requests, "one") as text,
        serving(configuration(home, text, requirements=demands)) as peer,
    ):
        await result(peer, "model/list", {})

    assert "x-openai-internal-codex-residency: us" in requests[0].lower()


async def test_a_provider_that_does_not_answer_leaves_the_configured_model(home: Path) -> None:
    text = (
        'model = "mine"\nmodel_provider = "p"\n'
        '[model_providers.p]\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    async with serving(configuration(home, text)) as peer:
        answer = await result(peer, "model/list", {})

    assert "mine" in names(answer)


async def test_the_default_is_the_model_that_would_be_used(home: Path) -> None:
    text = 'model_provider = "ollama"'
    environ = {"CODEX_OSS_BASE_URL": "http://127.0.0.1:1/v1"}
    async with serving(configuration(home, text, environ=environ)) as peer:
        answer = await result(peer, "model/list", {})

    assert [(model["model"], model["isDefault"]) for model in answer["data"]] == [
        ("gpt-oss:20b", True)
    ]


async def test_the_catalog_explains_upgrades_and_announces_models(home: Path) -> None:
    """Upstream: `upgradeInfo` with a text, and `availabilityNux` for new models."""
    async with serving(configuration(home, 'model_provider = "openai"', environ=KEY)) as peer:
        answer = await result(peer, "model/list", {"includeHidden": True})

    for model in answer["data"]:
        info = model["upgradeInfo"]
        assert (info and info["model"]) == model["upgrade"]
        assert info is None or "replaces this model" in info["migrationMarkdown"]
    assert [model["model"] for model in answer["data"] if model["availabilityNux"]] == [
        "gpt-6.1-sol"
    ]


ENTRY: JsonValue = {
    "slug": "a",
    "display_name": "A",
    "description": "the first",
    "supported_reasoning_levels": [{"effort": "low", "description": "L"}],
    "default_reasoning_level": "low",
    "visibility": "list",
    "priority": 1,
    "availability_nux": {"message": "new"},
    "upgrade": {"model": "b", "migration_markdown": "take b"},
    # As in a catalogue of Codex, which holds much more.
    "shell_type": "shell_command",
    "truncation_policy": {"mode": "bytes", "limit": 1000},
}
CATALOGUED = 'model_catalog_json = "catalog.json"\nmodel_provider = "openai"\nmodel = "a"\n'


def with_catalog(home: Path, catalog: JsonValue) -> None:
    """Write the catalogue of a home; a string is written unchanged."""
    home.mkdir(exist_ok=True)
    text = catalog if isinstance(catalog, str) else json.dumps(catalog)
    (home / "catalog.json").write_text(text, "utf-8")


async def test_a_configured_catalog_replaces_the_built_in_one(home: Path) -> None:
    """Upstream: in the order of priority, with the texts of the file."""
    hidden = {**ENTRY, "slug": "b", "visibility": "hide", "priority": 0, "upgrade": None}
    with_catalog(home, {"models": [ENTRY, hidden]})
    async with serving(configuration(home, CATALOGUED, environ=KEY)) as peer:
        answer = await result(peer, "model/list", {"includeHidden": True})

    second, first = answer["data"]
    assert (first["model"], first["isDefault"], first["hidden"]) == ("a", True, False)
    assert first["availabilityNux"] == {"message": "new"}
    assert (first["upgrade"], first["upgradeInfo"]["migrationMarkdown"]) == ("b", "take b")
    assert first["supportedReasoningEfforts"] == [{"reasoningEffort": "low", "description": "L"}]
    assert (second["model"], second["hidden"], second["upgradeInfo"]) == ("b", True, None)


@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        ("{", "not readable as JSON"),
        ({"models": []}, "expected 1 to 1000 models, got 0"),
        ({"models": [{"slug": "a"}]}, "missing field `display_name` at `models[0]`"),
        ({"models": [{**ENTRY, "visibility": "maybe"}]}, "`maybe`"),
        ('{"models": [{"x": ' + "[" * 100_000, "nested too deeply"),
        ('{"models": [' + " " * 5_000_000 + "]}", "larger than 4194304 bytes"),
    ],
    ids=["broken", "empty", "incomplete", "wrong", "nested", "huge"],
)
async def test_a_catalog_that_cannot_be_used_is_reported(
    home: Path, catalog: JsonValue, reason: str
) -> None:
    """Upstream: the built-in models are listed, and threads do not start."""
    with_catalog(home, catalog)
    async with serving(configuration(home, CATALOGUED, environ=KEY)) as peer:
        client = Client(peer)
        answer = await client.request("model/list", {})
        refused = await client.refusal("thread/start", {})

    (warning,) = params_of(client.received, "configWarning")
    assert "gpt-6-sol" in names(answer)
    assert reason in warning["details"]
    assert reason in refused.message


async def test_a_catalog_that_does_not_exist_is_reported(home: Path) -> None:
    async with serving(configuration(home, CATALOGUED, environ=KEY)) as peer:
        refused = await Client(peer).refusal("thread/start", {})

    assert f"failed to load model_catalog_json {home / 'catalog.json'}" in refused.message
