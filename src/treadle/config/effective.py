"""The settings in force for one folder and one request, typed, with nothing left open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from treadle.config.file import MAX_CONFIG_BYTES, ConfigError
from treadle.config.layers import Layer
from treadle.config.project import Trust
from treadle.config.settings import ConfigValues, Table
from treadle.model.provider import ProviderConfig
from treadle.protocol.base import JsonValue
from treadle.protocol.config import SandboxWorkspaceWrite
from treadle.protocol.error import ConfigWarningNotification
from treadle.protocol.policy import (
    ApprovalsReviewer,
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.requirements import ConfigRequirements
from treadle.support.files.reading import read_regular

if TYPE_CHECKING:
    from treadle.engine.settings import Profile
    from treadle.sandbox.limits import CommandLimits
    from treadle.sandbox.network.policy import NetworkPolicy


class EffectiveConfig(ConfigValues, frozen=True, kw_only=True):
    """All settings; those a thread cannot do without have a value whether or not one was set."""

    model: str
    model_provider: str
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox_mode: SandboxMode
    # What was set, before anything was chosen for whoever left it open.
    as_set: ConfigValues
    # The same, as the layers spell it: with what has no type, without what nobody has set.
    raw: Table
    origins: dict[str, Layer]
    # Lowest first; those that are ignored say why.
    layers: tuple[Layer, ...]
    providers: dict[str, ProviderConfig]
    cwd: str | None = None
    trust: Trust | None = None
    warnings: tuple[ConfigWarningNotification, ...] = ()
    requirements: ConfigRequirements | None = None

    @property
    def provider(self) -> ProviderConfig:
        """The provider that the model is asked of."""
        return self.providers[self.model_provider]

    @property
    def switches(self) -> dict[str, bool]:
        """The features that are plainly on or off."""
        return {name: on for name, on in self.features.items() if isinstance(on, bool)}

    def base_instructions(self) -> str | None:
        """The base instructions that the configuration puts in place of the model's own.

        Raises:
            ConfigError: they are in a file that cannot be read.
        """
        given = self.raw.get("base_instructions")
        if isinstance(given, str):
            return given
        key = "model_instructions_file"
        path = self.model_instructions_file or self.raw.get("experimental_instructions_file")
        if not isinstance(path, str):
            return None
        try:
            return read_regular(path, MAX_CONFIG_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"failed to read model instructions file {path}: {error}"
            raise ConfigError(message, key=key, file=Path(path)) from error

    def permission_profile(self, name: str | None = None) -> Profile | None:
        """The permission profile of this name, or the one in force, if it is a profile.

        Raises:
            ConfigError: there is none of this name, or it cannot be used.
        """
        # Most threads never name one.
        from treadle.config.permissions import read_profile

        chosen = name or (None if self._names_mode_last() else self.default_permissions)
        if chosen is None:
            return None
        return read_profile(chosen, self.permissions, self.requirements, self.features)

    def network(self) -> NetworkPolicy | None:
        """The managed network in force, if there is one.

        Raises:
            ConfigError: it cannot be enforced.
        """
        if profile := self.permission_profile():
            return profile.network
        from treadle.config.permissions import managed_network

        return managed_network(self.features, {}, self.requirements)

    def _names_mode_last(self) -> bool:
        """Whether a sandbox mode was set over the profile, by something that counts more."""
        layers = [self.origins.get(key) for key in ("sandbox_mode", "default_permissions")]
        places = [-1 if layer is None else self.layers.index(layer) for layer in layers]
        return places[0] > places[1]

    def command_limits(self) -> CommandLimits | None:
        """The limits of commands; `None` where the configuration mentions none."""
        table = None if self.sandbox is None else self.sandbox.limits
        return None if table is None else table.read()

    def sandbox_policy(self, mode: SandboxMode | None = None) -> SandboxPolicy:
        """The policy that a mode stands for, or the one in force if none is named."""
        if mode is None and (profile := self.permission_profile()):
            return profile.sandbox
        match mode or self.sandbox_mode:
            case "danger-full-access":
                return DangerFullAccessSandboxPolicy()
            case "read-only":
                return ReadOnlySandboxPolicy()
            case "workspace-write":
                write = self.sandbox_workspace_write or SandboxWorkspaceWrite()
                return WorkspaceWriteSandboxPolicy(
                    exclude_slash_tmp=write.exclude_slash_tmp,
                    exclude_tmpdir_env_var=write.exclude_tmpdir_env_var,
                    network_access=write.network_access,
                    writable_roots=write.writable_roots,
                )


def default_policies(trust: Trust | None) -> dict[str, JsonValue]:
    """What applies where nothing is set, as upstream decides it from the user's trust."""
    return {
        # A folder known to be untrusted may be worked in, but each step is asked for.
        "approval_policy": "untrusted" if trust == "untrusted" else "on-request",
        "approvals_reviewer": "user",
        "sandbox_mode": "read-only" if trust is None else "workspace-write",
    }
