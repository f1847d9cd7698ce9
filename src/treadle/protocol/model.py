"""Models: the available ones, and changes of model during a turn."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from treadle.protocol.base import Int64, Params, UInt32, Value


class AuthRecoveryNotification(Value, frozen=True):
    """Provider credentials are being refreshed during a turn, or have been (see the method)."""

    message: str
    provider: str
    thread_id: str
    turn_id: str


CyberAccessProgram = Literal["standard", "daybreakBlue", "daybreakRed"]
"""An access program for security work that a turn may request; requesting grants nothing."""

InputModality = Literal["text", "image", "audio"]


class ModelAccessPrograms(Value, frozen=True):
    """Access programs that the account may request for the model."""

    cyber: list[CyberAccessProgram]


class ModelAvailabilityNux(Value, frozen=True):
    """A message for users who have gained access to the model."""

    message: str


class ModelServiceTier(Value, frozen=True):
    """A speed or price class of the model."""

    description: str
    id: str
    name: str


class ModelUpgradeInfo(Value, frozen=True):
    """The successor of an older model, with a text that explains the change."""

    model: str
    migration_markdown: str | None = None
    model_link: str | None = None
    # Unix seconds.
    retirement_at: Int64 | None = None
    upgrade_copy: str | None = None


MultiAgentVersion = Literal["disabled", "v1", "v2"]

ReasoningEffort = Annotated[str, Meta(min_length=1)]
"""Any value that the model lists among its efforts."""


class ReasoningEffortOption(Value, frozen=True):
    """An effort that a model supports, and its description."""

    description: str
    reasoning_effort: ReasoningEffort


class Model(Value, frozen=True):
    """A selectable model, with everything that a picker displays."""

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
    # Null when the catalogue does not mention programs.
    available_access_programs: ModelAccessPrograms | None = None
    default_service_tier: str | None = None
    input_modalities: list[InputModality] = []
    model_specialty: str | None = None
    multi_agent_version: MultiAgentVersion | None = None
    service_tiers: list[ModelServiceTier] = []
    # False for all current models.
    supports_personality: bool = False
    upgrade: str | None = None
    upgrade_info: ModelUpgradeInfo | None = None


class ModelListParams(Params, frozen=True):
    """Page through the models; hidden ones are included only on request."""

    cursor: str | None = None
    include_hidden: bool | None = None
    limit: UInt32 | None = None
    # A configured provider instead of the default one.
    model_provider: str | None = None


class ModelListResponse(Value, frozen=True):
    """A page of models; the last page has no cursor."""

    data: list[Model]
    next_cursor: str | None = None


class ModelProviderCapabilitiesReadParams(Params, frozen=True):
    """Read what the configured provider supports beyond text."""


class ModelProviderCapabilitiesReadResponse(Value, frozen=True):
    """Whether the provider can generate images and search the web."""

    image_generation: bool
    web_search: bool


ModelRerouteReason = Literal["highRiskCyberActivity"]


class ModelReroutedNotification(Value, frozen=True):
    """The provider used a different model for a turn than requested."""

    from_model: str
    reason: ModelRerouteReason
    thread_id: str
    to_model: str
    turn_id: str


class ModelSafetyBufferingUpdatedNotification(Value, frozen=True):
    """Output is delayed by a safety check; a faster model is named if there is one."""

    model: str
    reasons: list[str]
    show_buffering_ui: bool
    thread_id: str
    turn_id: str
    use_cases: list[str]
    faster_model: str | None = None


ModelVerification = Literal["trustedAccessForCyber"]


class ModelVerificationNotification(Value, frozen=True):
    """The provider requires the account to be verified before it continues as requested."""

    thread_id: str
    turn_id: str
    verifications: list[ModelVerification]


Personality = Literal["none", "friendly", "pragmatic"]
"""Kept for older clients: models no longer change their tone accordingly."""

ReasoningSummary = Literal["auto", "concise", "detailed", "none"]
