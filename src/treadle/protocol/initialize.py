"""The handshake."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.base import AbsolutePathBuf, JsonValue, Params, Value


class ClientInfo(Value, frozen=True):
    """The identity of the client; its name goes into the user agent that model providers see."""

    name: str
    version: str
    title: str | None = None


class InitializeCapabilities(Value, frozen=True):
    """What the client supports and requests for its connection, fixed by the handshake."""

    experimental_api: bool = False
    explicit_gateway_oauth: bool = False
    extensions: dict[str, JsonValue] | UnsetType | None = UNSET
    mcp_server_openai_form_elicitation: bool = False
    # Whole method names; unknown ones are ignored.
    opt_out_notification_methods: list[str] | None = None
    request_attestation: bool = False
    # A person answers `humanCommand` approvals; requires `experimental_api`.
    required_human_approval: bool | UnsetType = UNSET


class InitializeParams(Params, frozen=True):
    """Open the connection; must be its first request and may be sent only once."""

    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResponse(Value, frozen=True):
    """The identity and platform of the server; other methods may be called from now on."""

    codex_home: AbsolutePathBuf
    platform_family: str
    platform_os: str
    user_agent: str
