"""Network permissions inside the sandbox."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import UInt16, Value

NetworkApprovalProtocol = Literal["http", "https", "socks5Tcp", "socks5Udp"]


class NetworkApprovalContext(Value, frozen=True):
    """The host and protocol that a sandboxed command tried to reach."""

    host: str
    protocol: NetworkApprovalProtocol


NetworkPolicyRuleAction = Literal["allow", "deny"]


class NetworkPolicyAmendment(Value, frozen=True):
    """A persistent rule for one host, offered with an approval and returned if chosen."""

    action: NetworkPolicyRuleAction
    host: str


NetworkDomainPermission = Literal["allow", "deny"]


class ApplicationNetworkRequirements(Value, frozen=True):
    """The domains that the client application itself may contact, if restricted."""

    domains: dict[str, NetworkDomainPermission]
    enabled: bool


NetworkAccess = Literal["restricted", "enabled"]

NetworkUnixSocketPermission = Literal["allow", "deny", "none"]


class NetworkRequirements(Value, frozen=True):
    """The administrator's limits on sandboxed network access; null imposes none."""

    allow_local_binding: bool | None = None
    allow_unix_sockets: list[str] | None = None
    allow_upstream_proxy: bool | None = None
    allowed_domains: list[str] | None = None
    dangerously_allow_all_unix_sockets: bool | None = None
    dangerously_allow_non_loopback_proxy: bool | None = None
    denied_domains: list[str] | None = None
    domains: dict[str, NetworkDomainPermission] | None = None
    enabled: bool | None = None
    http_port: UInt16 | None = None
    managed_allowed_domains_only: bool | None = None
    # Hosts that always require approval, before `domains` apply.
    review_domains: list[str] | UnsetType | None = UNSET
    socks_port: UInt16 | None = None
    unix_sockets: dict[str, NetworkUnixSocketPermission] | None = None
