"""Permission profiles: named permissions of a thread, built in or configured.

A profile is accepted only if a sandbox policy can express all of it. A profile that says more, such
as which files may not be read, is refused: accepting a part would allow what the rest forbids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.config.file import ConfigError
from treadle.config.managed.requirements import refuse_disallowed
from treadle.config.settings import Table
from treadle.engine.settings import Profile
from treadle.protocol.base import JsonValue
from treadle.protocol.permission import ActivePermissionProfile
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.requirements import ConfigRequirements
from treadle.sandbox.root_limits import roots_fault

if TYPE_CHECKING:
    from treadle.sandbox.network.policy import NetworkPolicy

_BUILT_IN: Final[Mapping[str, SandboxPolicy]] = {
    ":read-only": ReadOnlySandboxPolicy(),
    ":workspace": WorkspaceWriteSandboxPolicy(),
    ":danger-full-access": DangerFullAccessSandboxPolicy(),
}
_MODES: Final[Mapping[type, SandboxMode]] = {
    ReadOnlySandboxPolicy: "read-only",
    WorkspaceWriteSandboxPolicy: "workspace-write",
    DangerFullAccessSandboxPolicy: "danger-full-access",
    # With an external sandbox, this server's sandbox is off.
    ExternalSandboxSandboxPolicy: "danger-full-access",
}


def mode_of(policy: SandboxPolicy | None) -> SandboxMode | None:
    """Return the sandbox mode of a policy."""
    return _MODES.get(type(policy))


def read_profile(
    name: str,
    configured: Mapping[str, Table] | None,
    requirements: ConfigRequirements | None,
    features: Mapping[str, JsonValue] | None = None,
) -> Profile:
    """Return the profile of this name; features decide whether its network is managed.

    Raises:
        ConfigError: the profile does not exist, cannot be enforced or is not allowed here.
    """
    if not name.startswith(":"):
        if name not in (configured or {}):
            raise _error(f"default_permissions refers to undefined profile `{name}`")
        extends, sandbox, network = _follow(name, configured or {}, [])
    elif name in _BUILT_IN:
        extends, sandbox, network = None, _BUILT_IN[name], {}
    else:
        raise _error(f"default_permissions refers to unknown built-in profile `{name}`")
    allowed = requirements and requirements.allowed_permission_profiles
    if allowed and not allowed.get(name, False):
        raise _error(f"permissions profile `{name}` is not allowed here")
    refuse_disallowed(requirements, {"sandbox_mode": mode_of(sandbox)})
    active = ActivePermissionProfile(id=name, extends=extends)
    return Profile(active, sandbox, managed_network(features or {}, network, requirements))


def managed_network(
    features: Mapping[str, JsonValue], profile: Table, requirements: ConfigRequirements | None
) -> NetworkPolicy | None:
    """Return the managed network that features, a profile and requirements define, if any.

    Raises:
        ConfigError: the network cannot be enforced.
    """
    demanded = requirements.network if requirements else None
    if not features.get("network_proxy") and not profile and demanded is None:
        return None
    # Imported on use: few configurations have one.
    from treadle.config.network import network_policy

    return network_policy(features, profile, demanded)


def _follow(
    name: str, configured: Mapping[str, Table], visited: Sequence[str]
) -> tuple[str | None, SandboxPolicy, Table]:
    """Return the built-in base of a profile, and the merged policy and network."""
    if name in visited:
        circle = " -> ".join([*visited[visited.index(name) :], name])
        raise _error(f"permissions profile inheritance cycle detected: {circle}")
    table, network = configured[name], Table()
    base = table.get("extends")
    if not isinstance(base, str):
        raise _unenforceable(name, "does not extend another profile")
    if base in configured:
        _, policy, network = _follow(base, configured, [*visited, name])
    elif base in (":read-only", ":workspace"):
        policy = _BUILT_IN[base]
    else:
        kind = "cannot extend unsupported built-in" if base.startswith(":") else "extends undefined"
        raise _error(f"permissions profile `{name}` {kind} profile `{base}`")
    policy = _with_network(_with_files(policy, name, table), name, table)
    return base, policy, _hosts(network, name, table)


def _with_files(policy: SandboxPolicy, name: str, table: Table) -> SandboxPolicy:
    roots: list[str] = []
    for path, access in _part(name, table, "filesystem").items():
        if path == ":root" and access == "read":
            continue
        folder = Path(path).expanduser() if path.startswith("~/") else Path(path)
        if access != "write" or not folder.is_absolute():
            raise _unenforceable(name, f"has the entry `{path}`")
        roots.append(str(folder))
    if not roots:
        return policy
    if not isinstance(policy, WorkspaceWriteSandboxPolicy):
        raise _unenforceable(name, "opens folders without the workspace")
    roots = [*policy.writable_roots, *roots]
    key = f"permissions.{name}.filesystem"
    if (fault := roots_fault(roots, key)) is not None:
        raise _error(fault)
    return msgspec.structs.replace(policy, writable_roots=roots)


def _with_network(policy: SandboxPolicy, name: str, table: Table) -> SandboxPolicy:
    network = _part(name, table, "network")
    if not isinstance(network.get("enabled"), bool):
        return policy
    return msgspec.structs.replace(policy, network_access=network["enabled"])


def _hosts(base: Table, name: str, table: Table) -> Table:
    """Return the profile's host rules, merged over those of its base."""
    network = _part(name, table, "network")
    if not network.keys() - {"enabled"}:
        return base
    from treadle.config.network import KNOWN, check_network, merged

    if unknown := network.keys() - KNOWN:
        raise _unenforceable(name, f"has the entry `network.{min(unknown)}`")
    return merged(base, check_network(network, f"permissions.{name}.network"))


def _part(name: str, table: Table, key: str) -> dict[str, JsonValue]:
    if unknown := table.keys() - {"description", "extends", "filesystem", "network"}:
        raise _unenforceable(name, f"has the entry `{min(unknown)}`")
    part = table.get(key, {})
    if not isinstance(part, dict):
        raise _unenforceable(name, f"has no table `{key}`")
    return part


def _unenforceable(name: str, reason: str) -> ConfigError:
    return _error(f"permissions profile `{name}` {reason}, which this server cannot enforce")


def _error(reason: str) -> ConfigError:
    return ConfigError(f"failed to load configuration: {reason}", key="default_permissions")
