"""Reads the file that `model_catalog_json` names: models to list in place of the built-in ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from treadle.config.file import ConfigError
from treadle.protocol.explain import explain
from treadle.protocol.model import (
    InputModality,
    Model,
    ModelAvailabilityNux,
    ModelServiceTier,
    ModelUpgradeInfo,
    ReasoningEffortOption,
)
from treadle.support.files.reading import read_regular

KEY: Final = "model_catalog_json"
MAX_CATALOG_BYTES: Final = 4 * 1024 * 1024
MAX_MODELS: Final = 1000


class _Effort(msgspec.Struct):
    effort: str
    description: str = ""


class _Upgrade(msgspec.Struct):
    model: str
    migration_markdown: str | None = None
    upgrade_copy: str | None = None
    model_link: str | None = None
    retirement_at: int | None = None

    def to_protocol(self) -> ModelUpgradeInfo:
        return ModelUpgradeInfo(
            model=self.model,
            migration_markdown=self.migration_markdown,
            model_link=self.model_link,
            retirement_at=self.retirement_at,
            upgrade_copy=self.upgrade_copy,
        )


class _Personalities(msgspec.Struct):
    personality_friendly: str | None = None
    personality_pragmatic: str | None = None


class _Messages(msgspec.Struct):
    instructions_variables: _Personalities | None = None


class _Entry(msgspec.Struct):
    slug: str
    display_name: str
    supported_reasoning_levels: list[_Effort]
    visibility: Literal["list", "hide", "none"]
    priority: int
    description: str | None = None
    default_reasoning_level: str | None = None
    upgrade: _Upgrade | None = None
    availability_nux: ModelAvailabilityNux | None = None
    additional_speed_tiers: list[str] = []
    service_tiers: list[ModelServiceTier] = []
    default_service_tier: str | None = None
    input_modalities: Sequence[InputModality] = ("text", "image")
    model_messages: _Messages | None = None

    def to_protocol(self) -> Model:
        upgrade, messages = self.upgrade, self.model_messages
        texts = messages.instructions_variables if messages else None
        return Model(
            id=self.slug,
            model=self.slug,
            display_name=self.display_name,
            description=self.description or "",
            hidden=self.visibility != "list",
            is_default=False,
            default_reasoning_effort=self.default_reasoning_level or "none",
            supported_reasoning_efforts=[
                ReasoningEffortOption(level.description, level.effort)
                for level in self.supported_reasoning_levels
            ],
            additional_speed_tiers=self.additional_speed_tiers,
            availability_nux=self.availability_nux,
            default_service_tier=self.default_service_tier,
            input_modalities=list(self.input_modalities),
            service_tiers=self.service_tiers,
            supports_personality=bool(
                texts and texts.personality_friendly and texts.personality_pragmatic
            ),
            upgrade=None if upgrade is None else upgrade.model,
            upgrade_info=None if upgrade is None else upgrade.to_protocol(),
        )


class _Catalog(msgspec.Struct):
    models: list[_Entry]


def read_catalog(path: str) -> Sequence[Model]:
    """Return the models of a catalogue in the format of Codex, in the order of their priority.

    Raises:
        ConfigError: the file cannot be read, is too large or not a catalogue, or has no model.
    """
    try:
        catalog = msgspec.json.decode(read_regular(path, MAX_CATALOG_BYTES), type=_Catalog)
    except (msgspec.DecodeError, RecursionError) as error:
        fault = explain(error, _Catalog) if isinstance(error, msgspec.DecodeError) else None
        reason = fault.message if fault else "nested too deeply"
        raise _error(path, reason) from error
    except (OSError, ValueError) as error:
        raise _error(path, str(error)) from error
    if not 1 <= len(catalog.models) <= MAX_MODELS:
        count = len(catalog.models)
        raise _error(path, f"expected 1 to {MAX_MODELS} models, got {count}")
    return [each.to_protocol() for each in sorted(catalog.models, key=lambda each: each.priority)]


def _error(path: str, reason: str) -> ConfigError:
    return ConfigError(f"failed to load {KEY} {path}: {reason}", key=KEY, file=Path(path))
