"""The configuration of a server: files that may change at any time, and what they amount to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from treadle.config.credentials import CredentialStore
from treadle.config.effective import EffectiveConfig, default_policies
from treadle.config.file import ConfigError, Overrides, nest, read_toml
from treadle.config.layers import Layer, Merged, absolute_paths, merge
from treadle.config.planted import Planted
from treadle.config.project import Project
from treadle.config.providers import choose_model, choose_provider, read_providers
from treadle.config.requirements import keep_to, read_requirements, refuse_disallowed
from treadle.config.settings import ConfigValues, Table, check
from treadle.config.warnings import defaults_used, keys_refused, keys_unknown, value_replaced
from treadle.protocol.base import JsonValue
from treadle.protocol.config import (
    SessionFlagsConfigLayerSource,
    SystemConfigLayerSource,
    UserConfigLayerSource,
)
from treadle.protocol.error import ConfigWarningNotification
from treadle.protocol.requirements import ConfigRequirements

if TYPE_CHECKING:
    from treadle.sandbox.opened_roots import OpenedRoots

SYSTEM_FOLDER: Final = Path("/etc/codex")
MAX_KEPT: Final = 64

Stamp: TypeAlias = tuple[int, int, int, int] | None
Warnings: TypeAlias = list[ConfigWarningNotification]


class Configuration:
    """Built-in < system < user < project < profile < command line < request, each over the last.

    Files are read again when they have changed, so there is nothing to reload.
    """

    def __init__(
        self,
        home: Path,
        overrides: Overrides = Overrides({}),  # noqa: B008 - a tuple that nobody changes
        environ: Mapping[str, str] = os.environ,
        *,
        credentials: CredentialStore | None = None,
        system: Path = SYSTEM_FOLDER,
    ) -> None:
        self.home = home
        self.system = system
        self.environ = environ
        self.credentials = credentials or CredentialStore(home, environ)
        flags = absolute_paths(nest(overrides.values), Path.cwd())
        self._flags = [Layer(SessionFlagsConfigLayerSource(), flags)] if flags else []
        self._switched: dict[str, bool] = {}
        self._tables: dict[Path, tuple[Stamp, Table]] = {}
        self._kept: dict[object, EffectiveConfig] = {}

    def effective(
        self, cwd: str | None = None, request: Mapping[str, JsonValue] | None = None
    ) -> EffectiveConfig:
        """The settings in force, as seen from a folder and under what a request asks for.

        Raises:
            ConfigError: a file cannot be read, or a value does not fit.
        """
        if cwd is not None and "\0" in cwd:
            message = f"cwd {cwd!r} is not a path"
            raise ConfigError(message, key="cwd")
        # Not resolved: a project is trusted, and told to clients, by the name it is called.
        folder = None if cwd is None else Path(os.path.abspath(cwd))  # noqa: PTH100
        base = [*self._base()]
        asked = self._asked(request)
        outer = _check(merge([*base, *self._flags, *asked]))
        warnings: Warnings = []
        project = (
            None if folder is None else Project(folder, outer, Planted(lambda: self.opened_roots))
        )
        inner = [] if project is None else self._project_layers(project, warnings)
        layers = [*base, *inner, *self._profile(outer), *self._flags, *asked]
        if asked:
            return self._build(layers, project, warnings)
        ignored = tuple(layer.disabled_reason for layer in inner)
        root = project and project.root
        key = (folder, root, self._stamps(layers), ignored, self._circumstances())
        kept = self._kept.get(key)
        if kept is None:
            kept = self._build(layers, project, warnings)
            # Requests in several threads come here: another one may clear it at any moment.
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = kept
        return kept

    def lenient(self) -> EffectiveConfig:
        """The settings in force, or the defaults and a warning if they cannot be used."""
        try:
            return self.effective()
        except ConfigError as error:
            warning = defaults_used(error)
        try:
            found = self._build(self._flags, None, [])
        except ConfigError:
            found = self._build([], None, [])
        return structs.replace(found, warnings=(warning, *found.warnings))

    @cached_property
    def opened_roots(self) -> OpenedRoots:
        """Which folders commands could write so far."""
        from treadle.sandbox.opened_roots import OpenedRoots

        return OpenedRoots(self.home)

    def trusted_folders(self) -> Sequence[str]:
        """The folders that the user trusts by name; none if that cannot be read."""
        try:
            projects = _check(merge([*self._base(), *self._flags])).projects or {}
        except ConfigError:
            return ()
        return [path for path, about in projects.items() if about.trust_level == "trusted"]

    def switch_features(self, switches: Mapping[str, bool]) -> None:
        """Switch features for as long as this server runs; the files have the last word."""
        self._switched |= switches

    def requirements(self) -> ConfigRequirements | None:
        """What the administrator of the machine demands.

        Raises:
            ConfigError: the file cannot be read, or a demand is not understood.
        """
        return read_requirements(self._read(self.system / "requirements.toml"))

    @property
    def user_file(self) -> Path:
        """The file that clients may have written to."""
        return self.home / "config.toml"

    def user_layer(self, table: Mapping[str, JsonValue]) -> Layer:
        """The user's layer if the file says this."""
        source = UserConfigLayerSource(file=str(self.user_file))
        return Layer(source, absolute_paths(table, self.home))

    def everywhere(self, table: Mapping[str, JsonValue]) -> list[Layer]:
        """The layers that hold in every folder if the user's file says this.

        Raises:
            ConfigError: a file cannot be read, or a value does not fit.
        """
        base = [self._system_layer(), self.user_layer(table)]
        outer = _check(merge([*base, *self._flags]))
        return [*base, *self._profile(outer), *self._flags]

    def forget(self) -> None:
        """Read the files again: two changes at one moment can look like one."""
        self._tables.clear()
        self._kept.clear()

    def _system_layer(self) -> Layer:
        path = self.system / "config.toml"
        return Layer(SystemConfigLayerSource(file=str(path)), self._read(path))

    def _base(self) -> Sequence[Layer]:
        source = UserConfigLayerSource(file=str(self.user_file))
        return self._system_layer(), Layer(source, self._read(self.user_file))

    def _asked(self, request: Mapping[str, JsonValue] | None) -> list[Layer]:
        given = {key: value for key, value in (request or {}).items() if value is not None}
        if not given:
            return []
        table = absolute_paths(nest(given), Path.cwd())
        refuse_disallowed(self.requirements(), table)
        return [Layer(SessionFlagsConfigLayerSource(), table)]

    def _project_layers(self, project: Project, warnings: Warnings) -> list[Layer]:
        layers = []
        for layer, refused in project.layers(self.home, self._read):
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
        settings = _check(merged)
        providers = read_providers(settings, self.environ)
        provider = choose_provider(settings, providers, self.credentials)
        given = {name: getattr(settings, name) for name in settings.__struct_fields__}
        chosen = {name: value for name, value in defaults.items() if given[name] is None}
        chosen["model_provider"] = provider
        chosen["model"] = choose_model(settings, provider)
        chosen["features"] = {**self._switched, **settings.features}
        unknown = keys_unknown(layers)
        return EffectiveConfig(
            **{**given, **chosen},
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

    def _read(self, path: Path) -> Table:
        stamp = _stamp(path)
        kept = self._tables.get(path)
        if kept is None or kept[0] != stamp:
            table = {} if stamp is None else absolute_paths(read_toml(path), path.parent)
            if len(self._tables) >= MAX_KEPT:
                self._tables.clear()
            kept = self._tables[path] = (stamp, table)
        return kept[1]

    def _stamps(self, layers: Sequence[Layer]) -> tuple[object, ...]:
        """What tells two states of the files apart; each was read a moment ago."""
        folders = [layer.folder for layer in layers if layer.folder is not None]
        files = [self.system / "requirements.toml", *(each / "config.toml" for each in folders)]
        return tuple((file, _stamp(file)) for file in files)

    def _circumstances(self) -> tuple[object, ...]:
        """What else the choice of a provider and the features depend on."""
        has_key = self.credentials.api_key is not None
        has_other = self.credentials.has_variable("ANTHROPIC_API_KEY")
        return has_key, has_other, tuple(sorted(self._switched.items()))


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino


def _check(merged: Merged) -> ConfigValues:
    try:
        return check(merged.table)
    except ConfigError as error:
        # An element of a list is told as `notify[0]`.
        key = (error.key or "").split("[")[0]
        layer = merged.origin(key)
        where = "" if layer is None else f" in {layer.label}"
        message = f"{error}{where}"
        raise ConfigError(message, key=error.key) from error
