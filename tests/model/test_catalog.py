"""What is known about models by their names."""

from __future__ import annotations

import pytest

from treadle.model.catalog import UNKNOWN, list_models, traits_of
from treadle.protocol.model import Model


def names(models: list[Model]) -> list[str]:
    return [model.model for model in models]


def defaults(models: list[Model]) -> list[str]:
    return [model.model for model in models if model.is_default]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "scripted", "some_proxy"])
def test_every_known_provider_offers_a_visible_default_with_efforts(provider: str) -> None:
    """Upstream: the SDK's examples choose a visible model and one of its efforts."""
    models = list_models(provider)
    [default] = [model for model in models if model.is_default]
    assert not default.hidden
    for model in models:
        efforts = [option.reasoning_effort for option in model.supported_reasoning_efforts]
        assert model.default_reasoning_effort in efforts


def test_a_configured_model_is_listed_and_is_the_default() -> None:
    models = list_models("openai", configured=["mock-model", "gpt-5.5"])
    assert names(models)[:2] == ["mock-model", "gpt-6.1-sol"]
    assert defaults(models) == ["mock-model"]
    assert names(models).count("gpt-5.5") == 1
    assert defaults(list_models("openai", configured=["gpt-5.5"])) == ["gpt-5.5"]


def test_models_that_a_local_provider_lists_can_be_chosen() -> None:
    models = list_models("ollama", remote=["qwen3:8b", "gpt-oss:20b"])
    assert [(model.model, model.hidden) for model in models] == [
        ("qwen3:8b", False),
        ("gpt-oss:20b", False),
    ]
    assert defaults(models) == ["qwen3:8b"]
    assert list_models("ollama") == []


def test_models_that_only_a_known_provider_lists_are_hidden() -> None:
    models = {model.model: model for model in list_models("openai", remote=["whisper", "gpt-5.5"])}
    assert models["whisper"].hidden
    assert not models["gpt-5.5"].hidden


@pytest.mark.parametrize(
    ("model", "patch", "has_reasoning", "window"),
    [
        ("gpt-5.3-codex", "freeform", True, 258_400),
        ("gpt-6.1-sol", "freeform", True, 258_400),
        ("openai/gpt-5.5", "freeform", True, 258_400),
        ("gpt-4o-mini", None, False, 121_600),
        ("o3", "freeform", True, 190_000),
        ("claude-sonnet-4-5", "function", True, 190_000),
        ("claude-opus-4-8", "function", True, 950_000),
        ("gpt-oss:20b", None, True, 124_000),
        ("mock-model", None, False, 258_400),
    ],
)
def test_traits_are_found_by_the_name(
    model: str, patch: str | None, has_reasoning: bool, window: int
) -> None:
    traits = traits_of(model)
    values = (traits.apply_patch, traits.supports_reasoning, traits.context_window)
    assert values == (patch, has_reasoning, window)


def test_an_unknown_model_has_cautious_traits() -> None:
    assert traits_of("never-heard-of") is UNKNOWN
