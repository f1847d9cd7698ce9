"""The configuration of a server: files that may change at any time, and the merged result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from treadle.accounts.credentials import CredentialStore
from treadle.accounts.settings import AccountSettings
from treadle.config.accounts import account_settings
from treadle.config.effective import EffectiveConfig, default_policies
from treadle.config.file import ConfigError, Overrides, nest
from treadle.config.layer_files import MAX_CACHED, LayerFiles, stamp_of
from treadle.config.layers import Layer, absolute_paths, check_merged, merge
from treadle.config.managed.requirements import (
    keep_to,
    read_requirements,
    refuse_disallowed,
    required_by,
)
from treadle.config.planted import Planted
from treadle.config.project import Project
from treadle.config.providers import choose_model, choose_provider, read_providers
from treadle.config.settings import ConfigValues, Table
from treadle.config.warnings import defaults_used, keys_refused, keys_unknown, value_replaced
from treadle.protocol.base import JsonValue
from treadle.protocol.config import (
    SessionFlagsConfigLayerSource,
    UserConfigLayerSource,
)
from treadle.protocol.error import ConfigWarningNotification
from treadle.protocol.requirements import ConfigRequirements
from treadle.support.files.working_folder import absolute, working_folder

if TYPE_CHECKING:
    from treadle.engine.commands.rule_file import RuleFile
    from treadle.sandbox.opened_roots import OpenedRoots

SYSTEM_FOLDER: Final = Path("/etc/codex")
MAX_PROJECT_FILE_BYTES: Final = 256 * 1024
"""Maximum size of one configuration file of a project."""
MAX_PROJECT_BYTES: Final = 1024 * 1024
"""Maximum size of all configuration files of a project that apply to one folder."""

Warnings: TypeAlias = list[ConfigWarningNotification]


class Configuration:
    """Layers: built-in, system, user, project, profile, command line, request, managed.

    A later one wins.

    Changed files are read again on the next use, so there is no explicit reload.
    """

    def __init__(
        self,
        home: Path,
        overrides: Overrides = Overrides({}),  # noqa: B008 - an immutable tuple
        environ: Mapping[str, str] = os.environ,
        *,
        credentials: CredentialStore | None = None,
        system: Path = SYSTEM_FOLDER,
        bypasses_hook_trust: bool = False,
    ) -> None:
        self.home = home
        # Whether hooks run although the user has not trusted them.
        self.bypasses_hook_trust = bypasses_hook_trust
        self.system = system
        self.environ = environ
        self.credentials = credentials or CredentialStore(home, environ, self.account_settings)
        flags = absolute_paths(nest(overrides.values), Path(working_folder()))
        self._flags = [Layer(SessionFlagsConfigLayerSource(), flags)] if flags else []
        self._files = LayerFiles(system, home, self._flags)
        self._switched: dict[str, bool] = {}
        self._cache: dict[object, EffectiveConfig] = {}
        self._accounts: tuple[object, AccountSettings] = (None, AccountSettings())

    def effective(
        self,
        cwd: str | None = None,
        request: Mapping[str, JsonValue] | None = None,
        *,
        shows_ignored: bool = False,
    ) -> EffectiveConfig:
        """Return the settings in force for a folder and the overrides of a request.

        Files that changed are parsed, so requests that name a folder call this in a worker thread.
        Ignored layers are empty unless `shows_ignored`.

        Raises:
            ConfigError: a file cannot be read, or a value does not fit.
        """
        if cwd is not None and "\0" in cwd:
            message = f"cwd {cwd!r} is not a path"
            raise ConfigError(message, key="cwd")
        # Not resolved: a project is trusted, and shown to clients, by the name the user typed.
        folder = None if cwd is None else Path(os.path.normpath(absolute(cwd)))
        overrides = self._request_layers(request)
        stamps, base, managed, outer = self._files.outer()
        if overrides:
            outer = check_merged(merge([*base, *self._flags, *overrides, *managed]))
        warnings: Warnings = []
        project = (
            None if folder is None else Project(folder, outer, Planted(lambda: self.opened_roots))
        )
        inner = (
            self._project_layers(project, warnings, shows_ignored=shows_ignored) if project else []
        )
        layers = [*base, *inner, *self._profile(outer), *self._flags, *overrides, *managed]
        if overrides:
            return self._build(layers, project, warnings)
        root = project and project.root
        own = tuple(map(_state_of, inner))
        key = (folder, root, stamps, own, shows_ignored, self._circumstances())
        cached = self._cache.get(key)
        if cached is None:
            cached = self._build(layers, project, warnings)
            # Requests run in several threads: another one may clear the cache at any time.
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[key] = cached
        return cached

    def lenient(self) -> EffectiveConfig:
        """Return the settings in force, or the defaults and a warning if the files are invalid."""
        try:
            return self.effective()
        except ConfigError as error:
            warning = defaults_used(error)
        try:
            defaults = self._build(self._flags, None, [])
        except ConfigError:
            defaults = self._build([], None, [])
        return structs.replace(defaults, warnings=(warning, *defaults.warnings))

    @cached_property
    def opened_roots(self) -> OpenedRoots:
        """The record of folders that commands could write."""
        from treadle.sandbox.opened_roots import OpenedRoots

        return OpenedRoots(self.home)

    def trusted_folders(self) -> Sequence[str]:
        """The folders that the user trusts by name; empty if the configuration is invalid."""
        try:
            projects = self._files.outer().settings.projects or {}
        except ConfigError:
            return ()
        return [path for path, about in projects.items() if about.trust_level == "trusted"]

    def account_settings(self) -> AccountSettings:
        """What the user's configuration says about accounts; projects and requests say nothing.

        While a file is invalid, the last valid settings count.
        """
        files = self._files
        stamps = files.stamps()
        if stamps != self._accounts[0]:
            try:
                values = check_merged(merge([*files.base(), *self._flags]))
                settings = account_settings(values, files.read(files.requirements))
            except ConfigError:
                settings = self._accounts[1]
            self._accounts = (stamps, settings)
        return self._accounts[1]

    def switch_features(self, switches: Mapping[str, bool]) -> None:
        """Switch features until this server ends; the files take precedence."""
        self._switched |= switches

    def requirements(self) -> ConfigRequirements | None:
        """Return the administrator's requirements.

        Raises:
            ConfigError: the file cannot be read, or a requirement is invalid.
        """
        table = self._files.read(self._files.requirements)
        self.managed_rules()
        return read_requirements({**required_by(self._files.read(self._files.managed)), **table})

    def managed_rules(self) -> RuleFile | None:
        """Return the administrator's rules for commands, if there are any.

        Raises:
            ConfigError: the file cannot be read, or a rule is invalid.
        """
        path = self._files.requirements
        table = self._files.read(path)
        if "rules" not in table:
            return None
        from treadle.config.managed.rules import read_managed_rules

        return read_managed_rules(table, str(path))

    @property
    def user_file(self) -> Path:
        """The user's `config.toml`, the only file that clients may write."""
        return self.home / "config.toml"

    def user_layer(self, table: Mapping[str, JsonValue]) -> Layer:
        """Return the user's layer with this content."""
        source = UserConfigLayerSource(file=str(self.user_file))
        return Layer(source, absolute_paths(table, self.home))

    def everywhere(self, table: Mapping[str, JsonValue]) -> list[Layer]:
        """Return the layers that apply in every folder, with this content of the user's file.

        Raises:
            ConfigError: a file cannot be read, or a value does not fit.
        """
        base = [self._files.system_layer(), self.user_layer(table)]
        above = [*self._flags, *self._files.managed_layers()]
        outer = check_merged(merge([*base, *above]))
        return [*base, *self._profile(outer), *above]

    def forget(self) -> None:
        """Drop cached files: two changes within one timestamp look like one."""
        self._files.forget()
        self._cache.clear()

    def _request_layers(self, request: Mapping[str, JsonValue] | None) -> list[Layer]:
        values = {key: value for key, value in (request or {}).items() if value is not None}
        if not values:
            return []
        table = absolute_paths(nest(values), Path(working_folder()))
        refuse_disallowed(self.requirements(), table)
        return [Layer(SessionFlagsConfigLayerSource(), table)]

    def _project_layers(
        self, project: Project, warnings: Warnings, *, shows_ignored: bool
    ) -> list[Layer]:
        layers, room = [], MAX_PROJECT_BYTES

        def read(path: Path) -> Table:
            nonlocal room
            stamp = stamp_of(path)
            room -= 0 if stamp is None else stamp[2]
            if room < 0:
                limit = f"at most {MAX_PROJECT_BYTES} bytes in the files of one project"
                raise ConfigError(f"failed to load {path}: expected {limit}", file=path)
            return self._files.read(path, MAX_PROJECT_FILE_BYTES)

        for layer, refused in project.layers(self.home, read, reads_ignored=shows_ignored):
            layers.append(layer)
            if refused and layer.disabled_reason is None:
                warnings.append(keys_refused(layer, refused))
        return layers

    def _profile(self, outer: ConfigValues) -> list[Layer]:
        name = outer.profile
        if name is None:
            return []
        if name not in outer.profiles:
            message = f"config profile `{name}` not found"
            raise ConfigError(message, key="profile")
        source = UserConfigLayerSource(file=str(self.user_file), profile=name)
        return [Layer(source, absolute_paths(outer.profiles[name], self.home))]

    def _build(
        self, layers: Sequence[Layer], project: Project | None, warnings: Warnings
    ) -> EffectiveConfig:
        merged = merge(layers)
        trust = None if project is None else project.trust
        defaults = default_policies(trust)
        requirements = self.requirements()
        replaced = keep_to(requirements, merged.table, defaults)
        demanded = self._files.read(self._files.requirements).get("apps")
        if demanded is not None:
            # Imported on use: most machines have none.
            from treadle.config.managed.apps import pin_apps

            replaced += pin_apps(demanded, merged.table)
        settings = check_merged(merged)
        providers = read_providers(settings, self.environ)
        provider = choose_provider(settings, providers, self.credentials)
        values = {name: getattr(settings, name) for name in settings.__struct_fields__}
        chosen = {name: value for name, value in defaults.items() if values[name] is None}
        chosen["model_provider"] = provider
        chosen["model"] = choose_model(settings, provider)
        chosen["features"] = {**self._switched, **settings.features}
        unknown = keys_unknown(layers)
        return EffectiveConfig(
            **{**values, **chosen},
            as_set=settings,
            raw=merged.table,
            origins=merged.origins,
            layers=tuple(layers),
            providers=providers,
            cwd=None if project is None else str(project.cwd),
            trust=trust,
            warnings=(*warnings, *unknown, *map(value_replaced, replaced)),
            requirements=requirements,
        )

    def _circumstances(self) -> tuple[object, ...]:
        """Return the other inputs of the provider choice and the features."""
        has_key = self.credentials.auth_mode is not None
        has_other = self.credentials.has_variable("ANTHROPIC_API_KEY")
        return has_key, has_other, tuple(sorted(self._switched.items()))


def _state_of(layer: Layer) -> tuple[object, ...]:
    """Return what decides about a project's layer: its file, and why it is ignored."""
    file = f"{layer.folder}/config.toml"
    return file, stamp_of(file), layer.disabled_reason
