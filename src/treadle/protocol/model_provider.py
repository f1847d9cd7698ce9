"""Configured model providers, for a picker."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Params, Value

BedrockProviderId = Literal["amazon-bedrock", "amazon-bedrock-runtime"]
GcpProviderId = Literal["gcp"]


class NoneGatewayAuth(Value, tag_field="mode", tag="none", frozen=True):
    """The gateway requires no key."""


class EnvironmentVariableGatewayAuth(
    Value, tag_field="mode", tag="environmentVariable", frozen=True
):
    """The key is in an environment variable of the server."""

    env_key: str


class ExternallyConfiguredGatewayAuth(
    Value, tag_field="mode", tag="externallyConfigured", frozen=True
):
    """The configuration sets headers or a command for the key; edits preserve it."""

    env_key: str | None = None


GatewayAuth = NoneGatewayAuth | EnvironmentVariableGatewayAuth | ExternallyConfiguredGatewayAuth


class OpenaiProviderSettings(Value, tag="openai", frozen=True):
    """OpenAI itself."""


class CustomGatewayProviderSettings(Value, tag="customGateway", frozen=True):
    """A provider from the user's configuration."""

    auth: GatewayAuth


class BedrockProviderSettings(Value, tag="bedrock", frozen=True):
    """Amazon Bedrock."""

    profile: str | None = None
    region: str | None = None


class GcpProviderSettings(Value, tag="gcp", frozen=True):
    """Google Cloud Vertex AI."""

    credential_file: str | None = None
    location: str | None = None
    project_id: str | None = None


ProviderSettings = (
    OpenaiProviderSettings
    | CustomGatewayProviderSettings
    | BedrockProviderSettings
    | GcpProviderSettings
)


class CustomGatewayProviderSettingsPatch(
    Params, tag="customGateway", forbid_unknown_fields=True, frozen=True
):
    """Add or change a provider; absent fields stay, null clears."""

    base_url: str | UnsetType | None = UNSET
    env_key: str | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    # Null adds a provider with a new id.
    provider_id: str | None = None


class BedrockProviderSettingsPatch(Params, tag="bedrock", forbid_unknown_fields=True, frozen=True):
    """Change the settings of Amazon Bedrock."""

    provider_id: BedrockProviderId
    profile: str | UnsetType | None = UNSET
    region: str | UnsetType | None = UNSET


class GcpProviderSettingsPatch(Params, tag="gcp", forbid_unknown_fields=True, frozen=True):
    """Change the settings of Google Cloud Vertex AI."""

    provider_id: GcpProviderId
    credential_file: str | UnsetType | None = UNSET
    location: str | UnsetType | None = UNSET
    project_id: str | UnsetType | None = UNSET


ProviderSettingsPatch = (
    CustomGatewayProviderSettingsPatch | BedrockProviderSettingsPatch | GcpProviderSettingsPatch
)


class ModelProviderListParams(Params, frozen=True):
    """List the configured providers."""


class ModelProviderSummary(Value, frozen=True):
    """A provider, without secrets."""

    can_edit: bool
    id: str
    name: str
    settings: ProviderSettings
    # Null if it has none, or one that contains a login.
    base_url: str | None = None


class ModelProviderListResponse(Value, frozen=True):
    """The providers, and which of them new threads use."""

    can_change_default: bool
    data: list[ModelProviderSummary]
    default_provider_id: str


class ModelProviderConfigWriteParams(Params, forbid_unknown_fields=True, frozen=True):
    """Write the settings of one provider to the user's configuration."""

    settings: ProviderSettingsPatch


class ModelProviderConfigWriteResponse(Value, frozen=True):
    """The provider after the change."""

    provider: ModelProviderSummary


class GcpSetupParams(Params, frozen=True):
    """Access models through Google Cloud Vertex AI."""

    project_id: str
    # An absolute path on the server's machine; null uses the default credentials.
    credential_file: str | None = None
    # Null means `global`.
    location: str | None = None


class GcpSetupResponse(Value, frozen=True):
    """Vertex AI is set up."""


class ModelProviderMismatch(Value, tag="modelProviderMismatch", frozen=True):
    """The thread uses another provider."""

    current_model_provider: str
    model_provider: str


class ModelProviderNotConfigured(Value, tag="modelProviderNotConfigured", frozen=True):
    """No provider has this id."""

    model_provider: str


class ModelProviderPolicyConflict(Value, tag="modelProviderPolicyConflict", frozen=True):
    """The administrator requires another provider."""

    model_provider: str
    required_model_provider: str


ModelProviderError = (
    ModelProviderMismatch | ModelProviderNotConfigured | ModelProviderPolicyConflict
)
