"""The typed settings in force for one folder and one request, with every default filled in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from treadle.config.file import MAX_CONFIG_BYTES, ConfigError
from treadle.config.layers import Layer
from treadle.config.project import Trust
from treadle.config.settings import ConfigValues, Table, older_switches
from treadle.engine.features import resolve
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
from treadle.sandbox.root_limits import roots_fault
from treadle.support.files.reading import read_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.engine.settings import Profile
    from treadle.protocol.model import Model
    from treadle.sandbox.limits import CommandLimits
    from treadle.sandbox.network.policy import NetworkPolicy


RESIDENCY_HEADER: Final = "x-openai-internal-codex-residency"
"""The header that names where the provider may process a request."""


class EffectiveConfig(ConfigValues, frozen=True, kw_only=True):
    """All settings; those that a thread requires always have a value."""

    model: str
    model_provider: str
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox_mode: SandboxMode
    # The configured values, before defaults are filled in.
    as_set: ConfigValues
    # The merged table of the layers: includes untyped keys, omits unset ones.
    raw: Table
    origins: dict[str, Layer]
    # Lowest priority first; an ignored layer has a `disabled_reason`.
    layers: tuple[Layer, ...]
    providers: dict[str, ProviderConfig]
    cwd: str | None = None
    trust: Trust | None = None
    warnings: tuple[ConfigWarningNotification, ...] = ()
    requirements: ConfigRequirements | None = None

    @property
    def provider(self) -> ProviderConfig:
        """The provider that serves the model."""
        return self.providers[self.model_provider]

    def model_catalog(self) -> Sequence[Model] | None:
        """Return the models of the configured catalogue, if there is one.

        Raises:
            ConfigError: it cannot be used.
        """
        if self.model_catalog_json is None:
            return None
        from treadle.config.model_catalog import read_catalog

        return read_catalog(self.model_catalog_json)

    def endpoint(self, provider_id: str) -> ProviderConfig | None:
        """Return a provider as requests use it, with the header of a required residency."""
        config = self.providers.get(provider_id)
        residency = self.requirements and self.requirements.enforce_residency
        if config is None or not residency:
            return config
        headers = {
            name: value
            for name, value in config.http_headers.items()
            if name.lower() != RESIDENCY_HEADER
        }
        from_environment = {
            name: variable
            for name, variable in config.env_http_headers.items()
            if name.lower() != RESIDENCY_HEADER
        }
        return replace(
            config,
            http_headers={**headers, RESIDENCY_HEADER: residency},
            env_http_headers=from_environment,
        )

    @property
    def switches(self) -> dict[str, bool]:
        """The features that the configuration sets, under their current names."""
        return {**older_switches(self.as_set), **resolve(self.features)}

    def base_instructions(self) -> str | None:
        """Return the configured base instructions, which replace the model's own.

        Raises:
            ConfigError: their file cannot be read.
        """
        text = self.raw.get("base_instructions")
        if isinstance(text, str):
            return text
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
        """Return the permission profile of this name, or the one in force, if any.

        Raises:
            ConfigError: the profile does not exist or cannot be enforced.
        """
        # Imported on use: most threads have no profile.
        from treadle.config.permissions import read_profile

        chosen = name or (None if self._names_mode_last() else self.default_permissions)
        if chosen is None:
            return None
        return read_profile(chosen, self.permissions, self.requirements, self.features)

    def network(self) -> NetworkPolicy | None:
        """Return the managed network in force, if any.

        Raises:
            ConfigError: it cannot be enforced.
        """
        if profile := self.permission_profile():
            return profile.network
        from treadle.config.permissions import managed_network

        return managed_network(self.features, {}, self.requirements)

    def _names_mode_last(self) -> bool:
        """Return whether a higher layer than the profile's sets a sandbox mode."""
        layers = [self.origins.get(key) for key in ("sandbox_mode", "default_permissions")]
        places = [-1 if layer is None else self.layers.index(layer) for layer in layers]
        return places[0] > places[1]

    def command_limits(self) -> CommandLimits | None:
        """Return the limits of commands, or `None` if the configuration sets none."""
        table = None if self.sandbox is None else self.sandbox.limits
        return None if table is None else table.read()

    def sandbox_policy(self, mode: SandboxMode | None = None) -> SandboxPolicy:
        """Return the policy of a mode, by default the policy in force."""
        if mode is None and (profile := self.permission_profile()):
            return profile.sandbox
        match mode or self.sandbox_mode:
            case "danger-full-access":
                return DangerFullAccessSandboxPolicy()
            case "read-only":
                return ReadOnlySandboxPolicy()
            case "workspace-write":
                write = self.sandbox_workspace_write or SandboxWorkspaceWrite()
                key = "sandbox_workspace_write.writable_roots"
                if (fault := roots_fault(write.writable_roots, key)) is not None:
                    raise ConfigError(fault, key=key)
                return WorkspaceWriteSandboxPolicy(
                    exclude_slash_tmp=write.exclude_slash_tmp,
                    exclude_tmpdir_env_var=write.exclude_tmpdir_env_var,
                    network_access=write.network_access,
                    writable_roots=write.writable_roots,
                )


def default_policies(trust: Trust | None) -> dict[str, JsonValue]:
    """Return the default policies for the user's trust in a folder, as upstream chooses them."""
    return {
        # In a folder marked as untrusted each step needs approval.
        "approval_policy": "untrusted" if trust == "untrusted" else "on-request",
        "approvals_reviewer": "user",
        "sandbox_mode": "read-only" if trust is None else "workspace-write",
    }
