"""Models: what can be chosen, and what happens to the choice during a turn."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from treadle.protocol.base import Int64, Params, UInt32, Value


class AuthRecoveryNotification(Value, frozen=True):
    """Access to the provider is being renewed in mid-turn, or has been; the method says which."""

    message: str
    provider: str
    thread_id: str
    turn_id: str


CyberAccessProgram = Literal["standard", "daybreakBlue", "daybreakRed"]
"""Special treatment of security work that a turn may ask for; asking does not grant it."""

InputModality = Literal["text", "image", "audio"]


class ModelAccessPrograms(Value, frozen=True):
    """Special access that the account may ask for when it uses the model."""

    cyber: list[CyberAccessProgram]


class ModelAvailabilityNux(Value, frozen=True):
    """A line to show to users who can newly choose the model."""

    message: str


class ModelServiceTier(Value, frozen=True):
    """A speed or price class in which the model can be had."""

    description: str
    id: str
    name: str


class ModelUpgradeInfo(Value, frozen=True):
    """The model to move to from an older one, with words that explain the move."""

    model: str
    migration_markdown: str | None = None
    model_link: str | None = None
    # Unix seconds.
    retirement_at: Int64 | None = None
    upgrade_copy: str | None = None


MultiAgentVersion = Literal["disabled", "v1", "v2"]

ReasoningEffort = Annotated[str, Meta(min_length=1)]
"""Any word that the model lists among its efforts."""


class ReasoningEffortOption(Value, frozen=True):
    """An effort that a model offers, and what it is good for."""

    description: str
    reasoning_effort: ReasoningEffort


class Model(Value, frozen=True):
    """A model that can be chosen, and all that a picker needs to offer it."""

    default_reasoning_effort: ReasoningEffort
    description: str
    display_name: str
    hidden: bool
    id: str
    is_default: bool
    model: str
    supported_reasoning_efforts: list[ReasoningEffortOption]
    # Superseded by `service_tiers`.
    additional_speed_tiers: list[str] = []
    availability_nux: ModelAvailabilityNux | None = None
    # Null when the catalogue says nothing about programs.
    available_access_programs: ModelAccessPrograms | None = None
    default_service_tier: str | None = None
    input_modalities: list[InputModality] = []
    model_specialty: str | None = None
    multi_agent_version: MultiAgentVersion | None = None
    service_tiers: list[ModelServiceTier] = []
    # False for every model nowadays.
    supports_personality: bool = False
    upgrade: str | None = None
    upgrade_info: ModelUpgradeInfo | None = None


class ModelListParams(Params, frozen=True):
    """Page through the models; those that pickers hide come only on request."""

    cursor: str | None = None
    include_hidden: bool | None = None
    limit: UInt32 | None = None


class ModelListResponse(Value, frozen=True):
    """A page of models; no cursor means that it is the last."""

    data: list[Model]
    next_cursor: str | None = None


class ModelProviderCapabilitiesReadParams(Params, frozen=True):
    """Ask what the configured provider can do beyond text."""


class ModelProviderCapabilitiesReadResponse(Value, frozen=True):
    """Whether the provider can make images and search the web."""

    image_generation: bool
    web_search: bool


ModelRerouteReason = Literal["highRiskCyberActivity"]


class ModelReroutedNotification(Value, frozen=True):
    """The provider answered a turn with another model than the one asked for."""

    from_model: str
    reason: ModelRerouteReason
    thread_id: str
    to_model: str
    turn_id: str


class ModelSafetyBufferingUpdatedNotification(Value, frozen=True):
    """Output is held back for a safety check; a faster model is named if there is one."""

    model: str
    reasons: list[str]
    show_buffering_ui: bool
    thread_id: str
    turn_id: str
    use_cases: list[str]
    faster_model: str | None = None


ModelVerification = Literal["trustedAccessForCyber"]


class ModelVerificationNotification(Value, frozen=True):
    """The provider wants the account verified before it goes on as asked."""

    thread_id: str
    turn_id: str
    verifications: list[ModelVerification]


Personality = Literal["none", "friendly", "pragmatic"]
"""Kept for older clients: models no longer change their tone by it."""

ReasoningSummary = Literal["auto", "concise", "detailed", "none"]
