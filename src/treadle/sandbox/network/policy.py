"""What a managed network allows without asking the user."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from treadle.protocol.network import NetworkApprovalProtocol, NetworkDomainPermission
from treadle.sandbox.network.hosts import (
    Address,
    covers,
    is_local,
    is_local_host,
    literal,
    meanings,
)
from treadle.sandbox.network.own_addresses import is_own
from treadle.sandbox.policy import Confinement
from treadle.support.listeners import OWN_LISTENERS

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The HTTP methods that a limited network allows."""

Reason = Literal["denied", "not_allowed", "not_allowed_local", "method_not_allowed"]
Source = Literal["baseline_policy", "decider", "mode_guard"]

_MESSAGES: Final[dict[Reason, str]] = {
    "denied": "the host is denied by policy and cannot be approved",
    "not_allowed": "the host is not on the allow list",
    "not_allowed_local": "local and private addresses are not allowed",
    "method_not_allowed": "the network is limited to read requests over plain HTTP",
}


class Destination(NamedTuple):
    """The destination of a connection."""

    host: str
    port: int
    protocol: NetworkApprovalProtocol


class Blocked(Exception):
    """A connection is not allowed; `reason` and `source` are machine-readable."""

    def __init__(
        self, reason: Reason, source: Source = "baseline_policy", message: str | None = None
    ) -> None:
        super().__init__(message or _MESSAGES[reason])
        self.reason: Final[Reason] = reason
        self.source: Final[Source] = source


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """The hosts that commands may reach through the egress proxy, and how."""

    domains: tuple[tuple[str, NetworkDomainPermission], ...] = ()
    # Only read requests over plain HTTP: in a tunnel, the proxy cannot see the method.
    is_limited: bool = False
    allows_local: bool = False
    has_socks: bool = True
    # Set by an administrator: applies even to commands that would have no network.
    is_required: bool = False
    # Nothing can be added to the list, neither by rules nor by approval.
    is_fixed: bool = False

    def narrow(self, confinement: Confinement) -> Confinement:
        """Return the confinement with these hosts as its only network."""
        if confinement.is_unrestricted:
            return confinement
        has_proxy = self.is_required or confinement.network
        return replace(confinement, network=False, has_proxy=has_proxy)

    def permission(self, host: str) -> NetworkDomainPermission | None:
        """Return the decision of the list about a host; a denial wins."""
        said = {permission for pattern, permission in self.domains if covers(pattern, host)}
        return "deny" if "deny" in said else "allow" if said else None

    def allows_by_name(self, host: str) -> bool:
        """Return whether an entry without a wildcard allows a host."""
        return any(
            said == "allow" and "*" not in pattern and covers(pattern, host)
            for pattern, said in self.domains
        )

    def check_address(self, destination: Destination, address: Address) -> None:
        """Check an address of an allowed host.

        Raises:
            Blocked: the address is denied, local without permission, or a listener of the server.
        """
        if any(self.permission(str(each)) == "deny" for each in meanings(address)):
            raise Blocked("denied")
        if not is_local(address) and not is_own(address):
            return
        # A command that reaches these could control the server that confines it.
        if destination.port in OWN_LISTENERS.ports:
            raise Blocked("denied")
        if not self.allows_local and not _is_local_by_spelling(destination.host, address):
            raise Blocked("not_allowed_local")

    def check_use(
        self, destination: Destination, method: str = "", *, has_body: bool = False
    ) -> None:
        """Check how a host is used; a tunnel has no visible method.

        Raises:
            Blocked: this use is not allowed.
        """
        is_reading = method in READING and not has_body
        if self.is_limited and not is_reading:
            raise Blocked("method_not_allowed", "mode_guard")
        if destination.protocol == "socks5Tcp" and not self.has_socks:
            raise Blocked("method_not_allowed", "mode_guard", "SOCKS connections are turned off")


def _is_local_by_spelling(host: str, address: Address) -> bool:
    """Return whether an allowed host is local by its spelling, and denotes this address.

    Another name may change its address at any time: allowing a name allows no local address.
    """
    if not is_local_host(host):
        return False
    return address.is_loopback if literal(host) is None else literal(host) == address
