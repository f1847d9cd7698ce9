"""The managed network: which hosts the configuration names, and who wants them kept to.

It is on where `features.network_proxy` says so, where a permission profile tells hosts apart, and
where an administrator demands it. What opens more than there is here is passed over; what closes
something that cannot be closed here is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.protocol.base import JsonValue
from treadle.protocol.network import NetworkDomainPermission, NetworkRequirements
from treadle.sandbox.network.hosts import is_pattern
from treadle.sandbox.network.policy import NetworkPolicy

FEATURE: Final = "network_proxy"

Domains = dict[str, NetworkDomainPermission]

_SWITCHES: Final = ("enabled", "allow_local_binding", "enable_socks5")
# Where upstream's proxy listens, and what could be opened further: there is nothing of it here.
_PASSED_OVER: Final = """
proxy_url socks_url enable_socks5_udp allow_upstream_proxy unix_sockets
dangerously_allow_non_loopback_proxy dangerously_allow_all_unix_sockets
""".split()
KNOWN: Final = frozenset({*_SWITCHES, "mode", "domains", *_PASSED_OVER})
"""What a table about the network may hold."""


def network_policy(
    features: Mapping[str, JsonValue],
    profile: Table | None,
    demanded: NetworkRequirements | None,
) -> NetworkPolicy | None:
    """The managed network of a thread, if it has one; the profile's table is checked already.

    Raises:
        ConfigError: the feature's table cannot be enforced.
    """
    feature = features.get(FEATURE, False)
    given = feature if isinstance(feature, dict) else {"enabled": feature is True}
    table = merged(check_network(given, f"features.{FEATURE}"), profile or {})
    is_required = demanded is not None and demanded.enabled is not False
    is_wanted = given.get("enabled", False) is True or tells_apart(profile or {})
    if not is_required and not is_wanted:
        return None
    own, theirs = _domains(table), _demanded(demanded) if is_required else {}
    is_fixed = bool(is_required and demanded and demanded.managed_allowed_domains_only)
    if is_fixed:
        own = {pattern: said for pattern, said in own.items() if said == "deny"}
    local = demanded.allow_local_binding if demanded is not None and is_required else None
    return NetworkPolicy(
        # Both, where they differ about one: a denial wins.
        domains=(*own.items(), *theirs.items()),
        is_limited=table.get("mode") == "limited",
        allows_local=table.get("allow_local_binding") is True if local is None else local,
        has_socks=table.get("enable_socks5") is not False,
        is_required=is_required,
        is_fixed=is_fixed,
    )


def check_network(table: JsonValue, path: str) -> Table:
    """A table about the network, understood as a whole.

    Raises:
        ConfigError: part of it is not understood, or cannot be enforced.
    """
    if not isinstance(table, dict):
        raise _error(path, "is no table")
    for key, value in table.items():
        if key not in KNOWN:
            raise _error(f"{path}.{key}", "cannot be enforced by this server")
        if key in _SWITCHES and not isinstance(value, bool):
            raise _error(f"{path}.{key}", "is neither true nor false")
    if table.get("mode", "full") not in ("full", "limited"):
        raise _error(f"{path}.mode", "is neither `full` nor `limited`")
    domains = table.get("domains", {})
    if not isinstance(domains, dict):
        raise _error(f"{path}.domains", "is no table")
    for pattern, said in domains.items():
        if not is_pattern(pattern) or said not in ("allow", "deny"):
            raise _error(f"{path}.domains.{pattern}", "is no host with `allow` or `deny`")
    return table


def tells_apart(table: Table) -> bool:
    """Whether a table makes a difference between hosts, or between what is done with them."""
    return bool(table.get("domains")) or table.get("mode") == "limited"


def merged(base: Table, table: Table) -> Table:
    """A table over another; hosts of both."""
    domains = {**_domains(base), **_domains(table)}
    return {**base, **table, "domains": dict(domains)}


def _domains(table: Table) -> Domains:
    domains = table.get("domains")
    return domains if isinstance(domains, dict) else {}


def _demanded(demanded: NetworkRequirements | None) -> Domains:
    if demanded is None:
        return {}
    found: Domains = dict.fromkeys(demanded.allowed_domains or (), "allow")
    found |= demanded.domains or {}
    found |= dict.fromkeys(demanded.denied_domains or (), "deny")
    return found


def _error(path: str, reason: str) -> ConfigError:
    return ConfigError(f"failed to load configuration: `{path}` {reason}", key=path)
