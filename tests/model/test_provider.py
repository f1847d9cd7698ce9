"""Providers: built in and configured, and the models that they create."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.double import collect
from treadle.model.anthropic.request import AnthropicModel
from treadle.model.base import ItemDone, Model
from treadle.model.chat.request import ChatModel
from treadle.model.provider import ProviderConfig, build_model, built_in, load_providers
from treadle.model.responses.request import ResponsesModel
from treadle.model.retry import RetryPolicy
from treadle.model.scripted.model import ScriptedModel


def test_the_environment_sets_the_addresses_of_built_in_providers() -> None:
    plain = built_in({"OPENAI_BASE_URL": "", "CODEX_OSS_PORT": ""})
    assert {id_: (provider.base_url, provider.wire_api) for id_, provider in plain.items()} == {
        "openai": ("https://api.openai.com/v1", "responses"),
        "anthropic": ("https://api.anthropic.com", "anthropic"),
        "ollama": ("http://localhost:11434/v1", "chat"),
        "lmstudio": ("http://localhost:1234/v1", "chat"),
        "scripted": (None, "scripted"),
    }
    moved = built_in({"OPENAI_BASE_URL": "http://a", "CODEX_OSS_PORT": "99"})
    assert moved["openai"].base_url == "http://a"
    assert moved["ollama"].base_url == "http://localhost:99/v1"


def test_the_configuration_adds_providers_and_changes_built_in_ones() -> None:
    configured = {
        "acme": {
            "name": "Acme",
            "base_url": "http://acme/v1",
            "wire_api": "chat",
            "request_max_retries": 0,
            "stream_max_retries": 1,
            "never_heard_of": True,
        },
        "ollama": {"base_url": "http://other/v1"},
    }
    providers = load_providers(configured, {}, openai_base_url="http://proxy/v1")
    assert providers["acme"] == ProviderConfig(
        name="Acme",
        base_url="http://acme/v1",
        wire_api="chat",
        request_max_retries=0,
        stream_max_retries=1,
    )
    assert providers["acme"].retry_policy() == RetryPolicy(
        request_max_retries=0, stream_max_retries=1
    )
    assert (providers["ollama"].name, providers["ollama"].base_url) == (
        "Ollama",
        "http://other/v1",
    )
    assert providers["openai"].base_url == "http://proxy/v1"


@pytest.mark.parametrize("table", [{"wire_api": "morse"}, {"request_max_retries": "many"}, 5])
def test_an_invalid_provider_table_is_refused_by_name(table: object) -> None:
    with pytest.raises(ValueError, match=r"model_providers\.acme"):
        load_providers({"acme": table}, {})


@pytest.mark.parametrize(
    ("provider", "kind"),
    [
        ("openai", ResponsesModel),
        ("anthropic", AnthropicModel),
        ("ollama", ChatModel),
        ("scripted", ScriptedModel),
    ],
)
async def test_each_provider_gets_the_model_of_its_kind(provider: str, kind: type[Model]) -> None:
    model = build_model(provider, built_in({})[provider], environ={})
    assert isinstance(model, kind)
    assert model.provider_id == provider
    await model.close()


def test_a_provider_without_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="base_url"):
        build_model("acme", ProviderConfig(), environ={})


async def test_the_script_comes_from_the_configuration_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(["from a file"]))
    environ = {"TREADLE_SCRIPT": str(path)}
    texts = []
    for config in (
        ProviderConfig(wire_api="scripted"),
        ProviderConfig(wire_api="scripted", script='["from the configuration"]'),
    ):
        model_events = await collect(build_model("scripted", config, environ=environ))
        texts += [
            one.item["content"][0]["text"] for one in model_events if isinstance(one, ItemDone)
        ]
    assert texts == ["from a file", "from the configuration"]


def test_a_model_is_created_without_importing_the_http_library() -> None:
    """Ours: the import takes longer than everything else before the first turn."""
    code = (
        "import sys; from treadle.model.provider import *; "
        "m = build_model('openai', built_in({})['openai'], environ={}); "
        "sys.exit('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
