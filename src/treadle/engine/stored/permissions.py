"""Restores what a thread may do from the settings that are stored of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from treadle.engine.settings import Profile, RunSettings
from treadle.protocol.policy import (
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.store.records import TurnContext

if TYPE_CHECKING:
    from treadle.sandbox.network.policy import NetworkPolicy


def restore_permissions(
    settings: RunSettings, last: TurnContext, profile: Profile | None = None
) -> RunSettings:
    """Return the settings with the permissions of the last turn.

    `profile` is the profile of that turn, if it still has the same meaning. Otherwise the hosts
    that it allowed are stored; if they are not, the thread has no network.
    """
    network, sandbox = profile.network if profile else settings.network, last.sandbox_policy
    if profile is None and not (network is not None and network.is_required):
        try:
            network = _stored_network(last) or network
        except ValueError:
            sandbox = _without_network(sandbox)
    return replace(
        settings,
        approval_policy=last.approval_policy,
        approvals_reviewer=last.approvals_reviewer,
        sandbox=sandbox,
        permission_profile=profile and profile.active,
        network=network,
        has_own_permissions=last.has_own_permissions,
        follows_plan=settings.follows_plan and not last.has_own_permissions,
        has_own_folder=last.has_own_folder,
    )


def restore_choices(settings: RunSettings, last: TurnContext) -> RunSettings:
    """Return the settings of a sub-agent with what a client chose for it, if anything."""
    if last.has_own_permissions:
        settings = restore_permissions(settings, last)
    if last.has_own_folder:
        settings = replace(settings, cwd=last.cwd, has_own_folder=True)
    return settings


def _stored_network(last: TurnContext) -> NetworkPolicy | None:
    """Return the stored network policy, if any.

    Raises:
        ValueError: the thread had a profile, and its network is unknown.
    """
    from treadle.sandbox.network.policy import NetworkPolicy

    if last.network is UNSET:
        if last.permissions is not None:
            raise ValueError("the network of the profile is not stored")
        return None
    return msgspec.convert(last.network, NetworkPolicy | None)


def _without_network(policy: SandboxPolicy) -> SandboxPolicy:
    if isinstance(policy, ReadOnlySandboxPolicy | WorkspaceWriteSandboxPolicy):
        return msgspec.structs.replace(policy, network_access=False)
    return policy
