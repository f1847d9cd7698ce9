"""The known models: what a picker shows, and what the agent needs to know.

Models change faster than releases: an unknown name is accepted and gets conservative traits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from treadle.protocol.model import (
    InputModality,
    Model,
    ModelAvailabilityNux,
    ModelServiceTier,
    ModelUpgradeInfo,
    ReasoningEffortOption,
)

_EFFORTS: Final = {
    "none": "No reasoning",
    "minimal": "Very little reasoning, for the fastest answers",
    "low": "Fast answers to simple questions",
    "medium": "A balance of speed and depth for everyday work",
    "high": "More reasoning for harder problems",
    "xhigh": "Much more reasoning for the hardest problems",
    "max": "Maximum reasoning",
    "ultra": "Maximum reasoning, distributed over sub-agents",
}
_FAST: Final = ModelServiceTier(id="priority", name="Fast", description="Faster, at a higher price")
SCRIPTED_MODEL: Final = "scripted"


class Traits(Struct, frozen=True):
    """What the agent needs to know about a model; clients do not see it."""

    # What may be used before the history is compacted: a little less than the real window.
    context_window: int = 258_400
    max_output_tokens: int = 32_000
    supports_parallel_tool_calls: bool = True
    supports_reasoning: bool = False
    supports_verbosity: bool = False
    # How apply_patch is offered to the model: as free text, as a function, or not at all.
    apply_patch: Literal["freeform", "function"] | None = None
    default_effort: str | None = None
    takes_images: bool = True
    # Accepts images in full size, searches the web for images, and searches tools by itself.
    is_modern: bool = False
    # Follows a communication style that the user chooses.
    supports_personality: bool = False


UNKNOWN: Final = Traits()
_GPT: Final = Traits(
    max_output_tokens=128_000,
    supports_reasoning=True,
    supports_verbosity=True,
    apply_patch="freeform",
    default_effort="medium",
    supports_personality=True,
)
_CLAUDE: Final = Traits(
    context_window=190_000,
    max_output_tokens=64_000,
    supports_reasoning=True,
    apply_patch="function",
    supports_personality=True,
)
# The first pattern that matches the start of a name decides.
_TRAITS: Final[Sequence[tuple[re.Pattern[str], Traits]]] = [
    (
        re.compile(r"gpt-(6\.1-sol|6-astra|5\.6-sol)"),
        msgspec.structs.replace(_GPT, default_effort="low", is_modern=True),
    ),
    (re.compile(r"gpt-(5\.[5-9]|[6-9])(?!.*chat)"), msgspec.structs.replace(_GPT, is_modern=True)),
    (re.compile(r"gpt-(5|6|[7-9])(?!.*chat)|codex-"), _GPT),
    (
        re.compile(r"o[134](-|$)"),
        msgspec.structs.replace(
            _GPT,
            context_window=190_000,
            max_output_tokens=100_000,
            supports_verbosity=False,
            supports_personality=False,
        ),
    ),
    (re.compile(r"gpt-4\.1"), Traits(context_window=950_000)),
    (re.compile(r"gpt-4o|chatgpt-"), Traits(context_window=121_600, max_output_tokens=16_000)),
    (
        re.compile(r"claude-(3-5|3-haiku|3-opus)"),
        msgspec.structs.replace(_CLAUDE, max_output_tokens=8192, supports_reasoning=False),
    ),
    (
        re.compile(r"claude-opus-4(-[01])?(-20\d{6})?$"),
        msgspec.structs.replace(_CLAUDE, max_output_tokens=32_000),
    ),
    (re.compile(r"claude-(\w+-4-[0-5]|haiku|sonnet-4-20|3)"), _CLAUDE),
    (re.compile(r"claude-"), msgspec.structs.replace(_CLAUDE, context_window=950_000)),
    (
        re.compile(r"gpt-oss"),
        Traits(
            context_window=124_000,
            supports_reasoning=True,
            supports_parallel_tool_calls=False,
            takes_images=False,
        ),
    ),
    (re.compile(r"scripted$"), Traits(supports_reasoning=True)),
]


def traits_of(model: str) -> Traits:
    """Return what is known about a model by its name, with or without a provider prefix."""
    name = model.lower().rpartition("/")[2]
    return next((traits for pattern, traits in _TRAITS if pattern.match(name)), UNKNOWN)


def _entry(
    name: str,
    display_name: str,
    description: str,
    *,
    efforts: str = "low medium high xhigh",
    default: str = "medium",
    upgrade: str | None = None,
    news: str | None = None,
    modalities: Sequence[InputModality] = ("text", "image"),
    hidden: bool = False,
    is_fast: bool = False,
) -> Model:
    return Model(
        id=name,
        model=name,
        display_name=display_name,
        description=description,
        hidden=hidden,
        is_default=False,
        default_reasoning_effort=default,
        supported_reasoning_efforts=[
            ReasoningEffortOption(reasoning_effort=effort, description=_EFFORTS[effort])
            for effort in efforts.split()
        ],
        input_modalities=list(modalities),
        upgrade=upgrade,
        upgrade_info=_UPGRADES.get(upgrade or ""),
        availability_nux=None if news is None else ModelAvailabilityNux(news),
        additional_speed_tiers=["fast"] if is_fast else [],
        service_tiers=[_FAST] if is_fast else [],
        supports_personality=traits_of(name).supports_personality,
    )


_UPGRADES: Final = {
    "gpt-6-sol": ModelUpgradeInfo(
        model="gpt-6-sol",
        migration_markdown="**GPT-6-Sol** replaces this model. It solves harder problems "
        "with fewer tokens. You can go on using this model as long as it is offered.",
    ),
    "gpt-6-luna": ModelUpgradeInfo(
        model="gpt-6-luna",
        migration_markdown="**GPT-6-Luna** replaces this model. It is faster and cheaper. "
        "You can go on using this model as long as it is offered.",
    ),
}
_ALL: Final = "low medium high xhigh max ultra"
_OPENAI: Final = [
    _entry(
        "gpt-6.1-sol",
        "GPT-6.1-Sol",
        "For coding and everyday work; the newest of its line",
        efforts=_ALL,
        default="low",
        is_fast=True,
        news="GPT-6.1-Sol is available: for complex work, close to GPT-6-Astra at a lower price.",
    ),
    _entry(
        "gpt-6-astra",
        "GPT-6-Astra",
        "For the hardest work",
        efforts=_ALL,
        default="low",
        is_fast=True,
    ),
    _entry("gpt-6-sol", "GPT-6-Sol", "For coding and everyday work", efforts=_ALL, is_fast=True),
    _entry(
        "gpt-6-luna",
        "GPT-6-Luna",
        "Fast and cheap, for easier tasks",
        efforts="low medium high xhigh max",
    ),
    _entry(
        "gpt-5.6-sol",
        "GPT-5.6-Sol",
        "An older model for coding and everyday work",
        efforts=_ALL,
        default="low",
        upgrade="gpt-6-sol",
    ),
    _entry(
        "gpt-5.6-luna",
        "GPT-5.6-Luna",
        "An older fast model",
        efforts="low medium high xhigh max",
        upgrade="gpt-6-luna",
    ),
    _entry("gpt-5.5", "GPT-5.5", "An old coding model", upgrade="gpt-6-sol"),
    _entry("gpt-5.4", "GPT-5.4", "An old coding model", upgrade="gpt-6-sol", hidden=True),
    _entry(
        "gpt-5.3-codex", "GPT-5.3-Codex", "An old coding model", upgrade="gpt-6-sol", hidden=True
    ),
    _entry(
        "gpt-5.2-codex", "GPT-5.2-Codex", "An old coding model", upgrade="gpt-6-sol", hidden=True
    ),
]
_ANTHROPIC: Final = [
    _entry(
        "claude-opus-4-8",
        "Claude Opus 4.8",
        "For the hardest work",
        efforts="none low medium high xhigh max",
        default="high",
    ),
    _entry(
        "claude-sonnet-4-6",
        "Claude Sonnet 4.6",
        "For coding and everyday work",
        efforts="none low medium high",
        default="medium",
    ),
    _entry(
        "claude-haiku-4-5",
        "Claude Haiku 4.5",
        "Fast and cheap, for easier tasks",
        efforts="none low medium high",
        default="none",
    ),
]
_SCRIPTED: Final = [
    _entry(
        SCRIPTED_MODEL,
        "Demonstration",
        "A script, not an AI model, that demonstrates the server without a key",
        efforts="low medium high",
    ),
]
BUILT_IN: Final[dict[str, Sequence[Model]]] = {
    "openai": _OPENAI,
    "anthropic": _ANTHROPIC,
    "ollama": [],
    "lmstudio": [],
    "scripted": _SCRIPTED,
}


def list_models(
    provider_id: str,
    configured: Iterable[str] = (),
    remote: Iterable[str] | None = None,
    *,
    catalog: Sequence[Model] | None = None,
) -> list[Model]:
    """Return the models of a provider: configured ones, known ones, and those it lists.

    The default is the first configured one, or else the first of the list. Models that only the
    provider lists are hidden if known ones exist. `catalog` replaces the known ones.
    """
    known = BUILT_IN.get(provider_id) if catalog is None else catalog
    if known is None:
        # An unknown provider usually serves the models of the best known one.
        known = _OPENAI if remote is None else []
    by_name = {model.model: model for model in known}
    chosen = [name for name in dict.fromkeys(configured) if name]
    found: dict[str, Model] = {
        name: by_name.get(name) or _unknown_entry(name) for name in chosen if name not in by_name
    }
    found |= by_name
    for name in remote or ():
        found.setdefault(name, _unknown_entry(name, hidden=bool(known)))
    default = chosen[0] if chosen else next(iter(found), None)
    return [
        msgspec.structs.replace(model, is_default=name == default) for name, model in found.items()
    ]


def _unknown_entry(name: str, *, hidden: bool = False) -> Model:
    traits = traits_of(name)
    efforts = "low medium high" if traits.supports_reasoning else "none"
    default = traits.default_effort or efforts.split(maxsplit=1)[0]
    return _entry(name, name, "", efforts=efforts, default=default, hidden=hidden)
