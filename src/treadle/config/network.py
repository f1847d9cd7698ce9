"""The managed network: the hosts that the configuration names, and whether they are enforced.

It is on if `features.network_proxy` enables it, if a permission profile distinguishes hosts, or if
an administrator requires it. Keys that would allow more than this server offers are ignored; keys
that would forbid something it cannot forbid are refused.
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
# Upstream's listening addresses, and permissions for features that do not exist here.
_IGNORED: Final = """
proxy_url socks_url enable_socks5_udp allow_upstream_proxy unix_sockets
dangerously_allow_non_loopback_proxy dangerously_allow_all_unix_sockets
""".split()
KNOWN: Final = frozenset({*_SWITCHES, "mode", "domains", *_IGNORED})
"""The keys of a network table."""


def network_policy(
    features: Mapping[str, JsonValue],
    profile: Table | None,
    demanded: NetworkRequirements | None,
) -> NetworkPolicy | None:
    """Return the managed network of a thread, if any; the profile's table is already checked.

    Raises:
        ConfigError: the feature's table cannot be enforced.
    """
    feature = features.get(FEATURE, False)
    options = feature if isinstance(feature, dict) else {"enabled": feature is True}
    table = merged(check_network(options, f"features.{FEATURE}"), profile or {})
    is_required = demanded is not None and demanded.enabled is not False
    is_wanted = options.get("enabled", False) is True or distinguishes_hosts(profile or {})
    if not is_required and not is_wanted:
        return None
    own, theirs = _domains(table), _required_domains(demanded) if is_required else {}
    is_fixed = bool(is_required and demanded and demanded.managed_allowed_domains_only)
    if is_fixed:
        own = {pattern: action for pattern, action in own.items() if action == "deny"}
    local = demanded.allow_local_binding if demanded is not None and is_required else None
    return NetworkPolicy(
        # Both are kept where they differ about a host: a denial wins.
        domains=(*own.items(), *theirs.items()),
        is_limited=table.get("mode") == "limited",
        allows_local=table.get("allow_local_binding") is True if local is None else local,
        has_socks=table.get("enable_socks5") is not False,
        is_required=is_required,
        is_fixed=is_fixed,
    )


def check_network(table: JsonValue, path: str) -> Table:
    """Check a network table as a whole and return it.

    Raises:
        ConfigError: a part is invalid or cannot be enforced.
    """
    if not isinstance(table, dict):
        raise _error(path, "is not a table")
    for key, value in table.items():
        if key not in KNOWN:
            raise _error(f"{path}.{key}", "cannot be enforced by this server")
        if key in _SWITCHES and not isinstance(value, bool):
            raise _error(f"{path}.{key}", "is neither true nor false")
    if table.get("mode", "full") not in ("full", "limited"):
        raise _error(f"{path}.mode", "is neither `full` nor `limited`")
    domains = table.get("domains", {})
    if not isinstance(domains, dict):
        raise _error(f"{path}.domains", "is not a table")
    for pattern, action in domains.items():
        if not is_pattern(pattern) or action not in ("allow", "deny"):
            raise _error(f"{path}.domains.{pattern}", "is not a host with `allow` or `deny`")
    return table


def distinguishes_hosts(table: Table) -> bool:
    """Return whether a table has rules per host or limits the methods."""
    return bool(table.get("domains")) or table.get("mode") == "limited"


def merged(base: Table, table: Table) -> Table:
    """Merge a table over another, including their hosts."""
    domains = {**_domains(base), **_domains(table)}
    return {**base, **table, "domains": dict(domains)}


def _domains(table: Table) -> Domains:
    domains = table.get("domains")
    return domains if isinstance(domains, dict) else {}


def _required_domains(demanded: NetworkRequirements | None) -> Domains:
    if demanded is None:
        return {}
    domains: Domains = dict.fromkeys(demanded.allowed_domains or (), "allow")
    domains |= demanded.domains or {}
    domains |= dict.fromkeys(demanded.denied_domains or (), "deny")
    return domains


def _error(path: str, reason: str) -> ConfigError:
    return ConfigError(f"failed to load configuration: `{path}` {reason}", key=path)
