"""Control of this server from other devices."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, UInt32, Value


class RemoteControlClient(Value, frozen=True):
    """A paired device, as it describes itself."""

    client_id: str
    app_version: str | None = None
    device_model: str | None = None
    device_type: str | None = None
    display_name: str | None = None
    last_seen_at: Int64 | None = None
    os_version: str | None = None
    platform: str | None = None


RemoteControlClientsListOrder = Literal["asc", "desc"]


class RemoteControlClientsListParams(Params, frozen=True):
    """Page through the devices paired with an environment."""

    environment_id: str
    cursor: str | None = None
    limit: UInt32 | None = None
    order: RemoteControlClientsListOrder | None = None


class RemoteControlClientsListResponse(Value, frozen=True):
    """A page of paired devices; the last page has no cursor."""

    data: list[RemoteControlClient]
    next_cursor: str | None = None


class RemoteControlClientsRevokeParams(Params, frozen=True):
    """Revoke a device's permission to control the server."""

    client_id: str
    environment_id: str


class RemoteControlClientsRevokeResponse(Value, frozen=True):
    """The device may no longer connect."""


RemoteControlConnectionStatus = Literal["disabled", "connecting", "connected", "errored"]


class RemoteControlDisableParams(Params, frozen=True):
    """Disable remote control, permanently or, if ephemeral, for this process."""

    ephemeral: bool = False


class RemoteControlDisableResponse(Value, frozen=True):
    """The state of remote control after it was disabled."""

    installation_id: str
    server_name: str
    status: RemoteControlConnectionStatus
    environment_id: str | None = None


class RemoteControlEnableParams(Params, frozen=True):
    """Allow paired devices to control the server, permanently or, if ephemeral, for now."""

    ephemeral: bool = False


class RemoteControlEnableResponse(Value, frozen=True):
    """The state of remote control after it was enabled; the connection may still be pending."""

    installation_id: str
    server_name: str
    status: RemoteControlConnectionStatus
    environment_id: str | None = None


class RemoteControlPairingStartParams(Params, frozen=True):
    """Request a code that pairs a device, optionally also one to type."""

    manual_code: bool = False


class RemoteControlPairingStartResponse(Value, frozen=True):
    """The code to show, and its expiry."""

    environment_id: str
    expires_at: Int64
    pairing_code: str
    manual_pairing_code: str | None = None


class RemoteControlPairingStatusParams(Params, frozen=True):
    """Read whether a code was used; give it in either of its forms."""

    manual_pairing_code: str | None = None
    pairing_code: str | None = None


class RemoteControlPairingStatusResponse(Value, frozen=True):
    """Whether a device has paired with the code."""

    claimed: bool


class RemoteControlStatusChangedNotification(Value, frozen=True):
    """The state of remote control; also sent once to each new connection."""

    installation_id: str
    server_name: str
    status: RemoteControlConnectionStatus
    environment_id: str | None = None


class RemoteControlStatusReadResponse(Value, frozen=True):
    """The state of remote control and the names of the server."""

    installation_id: str
    server_name: str
    status: RemoteControlConnectionStatus
    environment_id: str | None = None
