"""Accounts: who is signed in, the ways to sign in and out, and workspace messages."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import Int64, Params, Value, experimental

ChatgptAuthTokensRefreshReason = Literal["unauthorized"]


class ChatgptAuthTokensRefreshParams(Params, frozen=True):
    """The client's tokens were rejected; the server requests new ones."""

    reason: ChatgptAuthTokensRefreshReason
    previous_account_id: str | None = None


class ChatgptAuthTokensRefreshResponse(Value, frozen=True):
    """New tokens from the client."""

    access_token: str
    # Taken from the tokens when absent, as in release 0.98.0.
    chatgpt_account_id: str | None = None
    chatgpt_plan_type: str | None = None
    # Of release 0.98.0.
    id_token: str | UnsetType | None = UNSET


class ApiKeyAccount(Value, tag="apiKey", frozen=True):
    """The user signed in with an API key."""


PlanType = Literal[
    "free",
    "go",
    "plus",
    "pro",
    "prolite",
    "promax",
    "team",
    "self_serve_business_prolite",
    "self_serve_business_usage_based",
    "business",
    "ent26",
    "enterprise_cbp_automation",
    "enterprise_cbp_usage_based",
    "enterprise",
    "edu",
    "edu_plus",
    "edu_pro",
    "sci",
    "sci_plus",
    "unknown",
]


class ChatgptAccount(Value, tag="chatgpt", frozen=True):
    """The user signed in with ChatGPT."""

    email: str | None
    plan_type: PlanType
    workspace_name: str | UnsetType | None = UNSET


class AmazonBedrockAccount(Value, tag="amazonBedrock", frozen=True):
    """The models are accessed through Amazon Bedrock."""

    uses_codex_managed_credentials: bool = False


class GcpAccount(Value, tag="gcp", frozen=True):
    """The models are accessed through Google Cloud, whose credentials are managed elsewhere."""


Account = ApiKeyAccount | ChatgptAccount | AmazonBedrockAccount | GcpAccount

DesktopOnboardingEntrypoint = Literal["life_sciences"]


class AccountLoginCompletedNotification(Value, frozen=True):
    """A sign-in has ended, successfully or not."""

    success: bool
    error: str | None = None
    login_id: str | None = None
    onboarding_entrypoint: DesktopOnboardingEntrypoint | None = None


AccountRoutingOverride = Literal["NO_CONSTRAINT", "us", "us_cr"]

AuthMode = Literal[
    "apikey",
    "chatgpt",
    "chatgptAuthTokens",
    "headers",
    "agentIdentity",
    "personalAccessToken",
    "bedrockApiKey",
    "bedrockAccessKeys",
]
"""How requests to the model service are authenticated."""


class AccountUpdatedNotification(Value, frozen=True):
    """The signed-in account changed; without a mode, no account is signed in."""

    auth_mode: AuthMode | None = None
    plan_type: PlanType | None = None


AwsCredentialType = Literal["accessKeys", "bedrockApiKey"]


class BedrockAwsProfile(Value, frozen=True):
    """A profile found in the AWS configuration."""

    name: str
    region: str | None = None


class BedrockDiscoverParams(Params, frozen=True):
    """Look for AWS credentials that could reach Bedrock."""


class BedrockEnvironmentCredential(Value, frozen=True):
    """A credential found in the server's environment variables."""

    type: AwsCredentialType
    region: str | None = None


class BedrockDiscoverResponse(Value, frozen=True):
    """The credentials found, without any secret."""

    environment_credentials: list[BedrockEnvironmentCredential]
    profiles: list[BedrockAwsProfile]


class ProfileBedrockSetupParams(Params, tag="profile", frozen=True):
    """Access Bedrock with a profile of the AWS configuration."""

    profile: str
    region: str


class EnvironmentBedrockSetupParams(Params, tag="environment", frozen=True):
    """Access Bedrock with the credentials in the environment variables."""

    region: str


BedrockSetupParams = ProfileBedrockSetupParams | EnvironmentBedrockSetupParams


class BedrockSetupResponse(Value, frozen=True):
    """Bedrock is set up."""


class CancelLoginAccountParams(Params, frozen=True):
    """Cancel a sign-in that waits for the user."""

    login_id: str


CancelLoginAccountStatus = Literal["canceled", "notFound"]


class CancelLoginAccountResponse(Value, frozen=True):
    """Whether a sign-in with that id was pending."""

    status: CancelLoginAccountStatus


class GatewayOAuthCancelResponse(Value, frozen=True):
    """The pending sign-in to the gateway, if any, is cancelled."""


GatewayOAuthStatus = Literal["notReady", "started", "succeeded", "failed"]


class GatewayOAuthChangedNotification(Value, frozen=True):
    """The state of the sign-in to a model provider's gateway changed."""

    provider_id: str
    status: GatewayOAuthStatus
    # Only for the connection that started the sign-in.
    auth_url: str | None = None
    error: str | None = None
    # The sign-in with a device code that has ended.
    login_id: str | UnsetType | None = UNSET


class GatewayOAuthLoginParams(Params, frozen=True):
    """Sign in to a configured provider, by default the current one."""

    device_auth: bool = False
    model_provider: str | None = None


class GatewayOAuthPrompt(Value, frozen=True):
    """The code that the user types at an address."""

    login_id: str
    user_code: str
    verification_url: str


class GatewayOAuthLoginResponse(Value, frozen=True):
    """The sign-in to the gateway has begun; notifications report its progress."""

    prompt: GatewayOAuthPrompt | UnsetType | None = UNSET


class GatewayOAuthReadParams(Params, frozen=True):
    """Read whether a configured provider is signed in, by default the current one."""

    model_provider: str | None = None


class GatewayOAuthReadResponse(Value, frozen=True):
    """Whether the provider's gateway requires a sign-in, and its state; no secrets."""

    provider_id: str
    provider_name: str
    required: bool
    error: str | None = None
    status: GatewayOAuthStatus | None = None
    supports_device_auth: bool | UnsetType = UNSET


class GetAccountParams(Params, frozen=True):
    """Read the signed-in account."""

    # Refresh the tokens first; no effect on tokens that the client owns.
    refresh_token: bool = False


class WorkspaceRouting(Value, frozen=True):
    """Which backend serves the user's workspace."""

    account_routing_override: AccountRoutingOverride
    backend_origin: str
    chatgpt_account_id: str


@experimental("workspace_routing")
class GetAccountResponse(Value, frozen=True):
    """The signed-in account, if any, and whether the provider requires one."""

    requires_openai_auth: bool
    account: Account | None = None
    user_id: str | UnsetType | None = UNSET
    workspace_routing: WorkspaceRouting | None = None


WorkspaceMessageType = Literal["headline", "announcement", "unknown"]


class WorkspaceMessage(Value, frozen=True):
    """A message from the administrators of a workspace; times are Unix seconds."""

    message_body: str
    message_id: str
    message_type: WorkspaceMessageType
    archived_at: Int64 | None = None
    created_at: Int64 | None = None


class GetWorkspaceMessagesResponse(Value, frozen=True):
    """The messages to show, if the workspace supports them."""

    feature_enabled: bool
    messages: list[WorkspaceMessage]


class ApiKeyLoginAccountParams(Params, tag="apiKey", frozen=True):
    """Sign in with an API key, which the server stores."""

    api_key: str


LoginAppBrand = Literal["codex", "chatgpt"]


class ChatgptLoginAccountParams(Params, tag="chatgpt", frozen=True):
    """Sign in with ChatGPT through a browser on this machine."""

    app_brand: LoginAppBrand | None = None
    codex_streamlined_login: bool = False
    use_hosted_login_success_page: bool = False


class ChatgptDeviceCodeLoginAccountParams(Params, tag="chatgptDeviceCode", frozen=True):
    """Sign in with ChatGPT by typing a code on any device."""


class ChatgptAuthTokensLoginAccountParams(Params, tag="chatgptAuthTokens", frozen=True):
    """Use tokens that the client owns and refreshes; the server keeps them in memory only."""

    access_token: str
    # These two are taken from the tokens when absent.
    chatgpt_account_id: str | None = None
    chatgpt_plan_type: str | None = None
    # Of release 0.98.0, which names no account.
    id_token: str | None = None


class AmazonBedrockLoginAccountParams(Params, tag="amazonBedrock", frozen=True):
    """Access Bedrock with a Bedrock API key."""

    api_key: str
    region: str


class AmazonBedrockAccessKeysLoginAccountParams(Params, tag="amazonBedrockAccessKeys", frozen=True):
    """Access Bedrock with a pair of AWS access keys."""

    access_key_id: str
    region: str
    secret_access_key: str
    session_token: str | None = None


LoginAccountParams = (
    ApiKeyLoginAccountParams
    | ChatgptLoginAccountParams
    | ChatgptDeviceCodeLoginAccountParams
    | ChatgptAuthTokensLoginAccountParams
    | AmazonBedrockLoginAccountParams
    | AmazonBedrockAccessKeysLoginAccountParams
)


class ApiKeyLoginAccountResponse(Value, tag="apiKey", frozen=True):
    """The key is in use."""


class ChatgptLoginAccountResponse(Value, tag="chatgpt", frozen=True):
    """The page to open; the server hosts the callback address."""

    auth_url: str
    login_id: str


class ChatgptDeviceCodeLoginAccountResponse(Value, tag="chatgptDeviceCode", frozen=True):
    """The page to open and the code to enter there."""

    login_id: str
    user_code: str
    verification_url: str


class ChatgptAuthTokensLoginAccountResponse(Value, tag="chatgptAuthTokens", frozen=True):
    """The tokens are in use."""


class AmazonBedrockLoginAccountResponse(Value, tag="amazonBedrock", frozen=True):
    """The credentials for Bedrock are in use."""


LoginAccountResponse = (
    ApiKeyLoginAccountResponse
    | ChatgptLoginAccountResponse
    | ChatgptDeviceCodeLoginAccountResponse
    | ChatgptAuthTokensLoginAccountResponse
    | AmazonBedrockLoginAccountResponse
)


class LogoutAccountResponse(Value, frozen=True):
    """The account is signed out."""
