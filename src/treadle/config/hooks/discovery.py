"""Finds the hooks of a folder: those of the administrator, and those of each layer.

A file that cannot be read loses its own hooks only. A deciding hook that the user trusted and
that is lost this way stays in force: its event is denied, as the hook cannot allow it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from treadle.config.effective import EffectiveConfig
from treadle.config.hooks.parse import Slot, Wrong, read_table
from treadle.config.hooks.places import line_of
from treadle.config.hooks.presence import FILE
from treadle.config.hooks.toml_lines import TomlTable
from treadle.config.hooks.trust import UNDECIDED, HookState, hash_of, read_states
from treadle.config.layers import Layer
from treadle.engine.hooks.events import EVENTS, HookEvent
from treadle.engine.hooks.hook import FoundHooks, Hook
from treadle.protocol.base import JsonValue
from treadle.protocol.config import (
    LegacyManagedConfigTomlFromFileConfigLayerSource,
    ProjectConfigLayerSource,
    SystemConfigLayerSource,
    UserConfigLayerSource,
)
from treadle.protocol.hook import (
    CommandConfiguredHookHandler,
    HookErrorInfo,
    HookSource,
    ManagedHooksRequirements,
    McpToolConfiguredHookHandler,
)
from treadle.support.files.reading import read_whole
from treadle.support.text.json_text import is_nested_deeper

if TYPE_CHECKING:
    from treadle.engine.plugins.parts import PluginHookTable

PluginHooks: TypeAlias = "tuple[Sequence[PluginHookTable], Sequence[str]]"
"""The hooks of plugins, and warnings about files that cannot be read."""

MAX_FILE_BYTES: Final = 256 * 1024
MAX_ERRORS: Final = 20
"""The most faults of one file that are shown: each takes a search for its line."""
MAX_HOOKS: Final = 500
"""The most hooks of one folder, from all files."""

SESSION_FLAGS: Final = "/<session-flags>/config.toml"
# The administrator's own layers, whose hooks need no trust.
_MANAGED: Final = frozenset({"system", "legacyManagedConfigFile"})
_KNOWN_KEYS: Final = frozenset({"description", "hooks"})


class HookOrigin(Struct, frozen=True, kw_only=True):
    """Where hooks come from."""

    path: str
    source: HookSource
    is_managed: bool = False
    # The JSON document, or the table of a TOML document, if lines can be named.
    text: str | None = None
    table: TomlTable | None = None
    # The plugin that provides it, the name of the file in keys, and variables for commands.
    plugin_id: str | None = None
    label: str | None = None
    variables: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """What the keys of its hooks begin with."""
        return self.path if self.label is None else self.label


class BadFile(ValueError):
    """The file is not one with hooks; `line` is `None` if the fault has no place."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")


class _Finder:
    """Collects the hooks of several origins in their order."""

    def __init__(self, states: Mapping[str, HookState]) -> None:
        self.hooks: list[Hook] = []
        self.lost: list[Hook] = []
        self.errors: list[HookErrorInfo] = []
        self.warnings: list[str] = []
        self._states = states

    def add(self, origin: HookOrigin, found: Iterator[Slot | Wrong]) -> None:
        """Add the hooks of one file, and say what is wrong with others."""
        for each in found:
            if isinstance(each, Wrong):
                self._report(origin, each.path, each.fault)
                if each.event is not None:
                    self._lose(origin, f"{origin.path}: {each.fault}", each.event)
                continue
            self.warnings += (f"{origin.path}: {note}" for note in each.notes)
            if each.fault is not None:
                self._report(origin, each.path, each.fault)
                self._lose_slot(origin, each, each.fault)
            elif each.handler is None:
                self._lose_slot(origin, each, f"{origin.path}: {each.notes[0]}")
            elif len(self.hooks) >= MAX_HOOKS:
                self._report(origin, each.path, f"more than {MAX_HOOKS} hooks")
                self._lose_slot(origin, each, f"more than {MAX_HOOKS} hooks")
            else:
                self.hooks.append(self._hook(origin, each, each.handler))

    def fail(self, origin: HookOrigin, reason: str) -> None:
        """Report a file that cannot be read at all."""
        self.errors.append(HookErrorInfo(message=reason, path=origin.path))
        for event in EVENTS:
            self._lose(origin, f"{origin.path} cannot be read: {reason}", event)

    def _hook(
        self,
        origin: HookOrigin,
        slot: Slot,
        handler: CommandConfiguredHookHandler | McpToolConfiguredHookHandler,
    ) -> Hook:
        key = _key(origin, slot)
        event, state = slot.event, self._states.get(key, UNDECIDED)
        seconds = event.seconds(handler.timeout_sec)
        digest = hash_of(event, slot.matcher, handler, seconds)
        in_background = isinstance(handler, CommandConfiguredHookHandler) and handler.async_
        return Hook(
            key=key,
            event_name=event.name,
            handler=handler,
            source=origin.source,
            source_path=origin.path,
            display_order=len(self.hooks),
            timeout_s=seconds,
            current_hash=digest,
            trust="managed" if origin.is_managed else state.trust(digest),
            matcher=slot.matcher,
            is_enabled=origin.is_managed or state.is_enabled,
            is_managed=origin.is_managed,
            is_async=in_background and event.name != "sessionEnd",
            plugin_id=origin.plugin_id,
            variables=origin.variables,
        )

    def _report(self, origin: HookOrigin, path: tuple[str | int, ...], fault: str) -> None:
        count = sum(error.path == origin.path for error in self.errors)
        if count >= MAX_ERRORS:
            return
        if count == MAX_ERRORS - 1:
            fault = "further faults are not shown"
        elif (line := _line(origin, path)) is not None:
            fault = f"line {line}: {fault}"
        self.errors.append(HookErrorInfo(message=fault, path=origin.path))

    def _lose_slot(self, origin: HookOrigin, slot: Slot, fault: str) -> None:
        state = self._states.get(_key(origin, slot), UNDECIDED)
        was_trusted = state.is_enabled and state.trusted_hash is not None
        if slot.event.decides and (origin.is_managed or was_trusted):
            self._add_lost(origin, slot.event, _key(origin, slot), fault, slot.matcher)

    def _lose(self, origin: HookOrigin, reason: str, event: HookEvent) -> None:
        """Keep the event closed that hooks of this file decided about."""
        prefix = f"{origin.name}:{event.key}:"
        for key, state in self._states.items() if event.decides else ():
            if key.startswith(prefix) and state.is_enabled and state.trusted_hash is not None:
                self._add_lost(origin, event, key, reason)
                return

    def _add_lost(
        self, origin: HookOrigin, event: HookEvent, key: str, fault: str, matcher: str | None = None
    ) -> None:
        self.lost.append(
            Hook(
                key=key,
                event_name=event.name,
                handler=CommandConfiguredHookHandler(async_=False, command=""),
                source=origin.source,
                source_path=origin.path,
                display_order=MAX_HOOKS + len(self.lost),
                timeout_s=1,
                current_hash="",
                trust="modified",
                matcher=matcher,
                is_managed=origin.is_managed,
                fault=f"the hook {key} cannot run: {fault}",
            )
        )


def find_hooks(
    effective: EffectiveConfig,
    requirements_file: Path,
    *,
    plugins: PluginHooks = ((), ()),
    bypasses_trust: bool = False,
) -> FoundHooks:
    """Find the hooks of a folder's configuration, and those of plugins with warnings."""
    finder = _Finder(read_states(effective.layers))
    requirements = effective.requirements
    if requirements is not None and requirements.hooks is not None:
        finder.add(*_managed(requirements.hooks, requirements_file))
    allows_others = requirements is None or not requirements.allow_managed_hooks_only
    is_on = effective.switches.get("hooks", True)
    for layer in effective.layers:
        is_managed = _source(layer) in _MANAGED
        if layer.disabled_reason is None and (is_managed or (allows_others and is_on)):
            _add_layer(finder, layer)
    if allows_others and is_on:
        for table in plugins[0]:
            finder.add(_of_plugin(table), read_table(table.hooks, ("hooks",)))
        finder.warnings += plugins[1]
    return FoundHooks(
        hooks=finder.hooks,
        lost=finder.lost,
        errors=finder.errors,
        warnings=finder.warnings,
        bypasses_trust=bypasses_trust,
    )


def _of_plugin(table: PluginHookTable) -> HookOrigin:
    variables = {"PLUGIN_ROOT": str(table.root), "PLUGIN_DATA": str(table.data)}
    others = {f"CLAUDE_{name}": value for name, value in variables.items()}
    return HookOrigin(
        path=str(table.path),
        source="plugin",
        plugin_id=str(table.plugin),
        label=f"{table.plugin}:{table.label}",
        variables=variables | others,
    )


def _add_layer(finder: _Finder, layer: Layer) -> None:
    source = _source(layer)
    is_managed = source in _MANAGED
    count = len(finder.hooks)
    folder, has_file = layer.folder, False
    if folder is not None and os.path.lexists(folder / FILE):
        _add_file(finder, HookOrigin(path=str(folder / FILE), source=source, is_managed=is_managed))
        has_file = len(finder.hooks) > count
    if "hooks" not in layer.table:
        return
    path = _config_path(layer)
    origin = HookOrigin(path=path, source=source, is_managed=is_managed, table=_table(layer, path))
    count = len(finder.hooks)
    finder.add(origin, read_table(layer.table["hooks"], ("hooks",)))
    if has_file and len(finder.hooks) > count:
        finder.warnings.append(
            f"loading hooks from both {folder}/{FILE} and {origin.path}; "
            "prefer a single representation for this layer"
        )


def _add_file(finder: _Finder, origin: HookOrigin) -> None:
    try:
        text = read_whole(origin.path, MAX_FILE_BYTES).decode("utf-8")
        document = _decoded(text)
    except (OSError, ValueError, RecursionError) as error:
        finder.fail(origin, str(error))
        return
    found = read_table(document.get("hooks", {}), ("hooks",))
    finder.add(replace(origin, text=text), found)


def _decoded(text: str) -> dict[str, JsonValue]:
    if is_nested_deeper(text.encode("utf-8", "replace")):
        raise BadFile("nested too deeply")
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise BadFile(f"{error.msg} (column {error.colno})", error.lineno) from error
    if not isinstance(document, dict):
        raise BadFile('expected an object with "hooks"', 1)
    if unknown := sorted(document.keys() - _KNOWN_KEYS):
        names = "`description` or `hooks`"
        raise BadFile(f"unknown field `{unknown[0][:60]}`, expected {names}")
    return document


def _unique(pairs: Sequence[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    # The last of two would win, and the hooks of the first would silently not run.
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise BadFile(f"duplicate field `{twice[:60]}`")
    return table


def _managed(
    hooks: ManagedHooksRequirements, file: Path
) -> tuple[HookOrigin, Iterator[Slot | Wrong]]:
    folder = hooks.managed_dir
    path = folder if folder is not None and folder.startswith("/") else str(file)
    return HookOrigin(path=path, source="system", is_managed=True), _managed_slots(hooks)


def _managed_slots(hooks: ManagedHooksRequirements) -> Iterator[Slot]:
    names = dict(zip(hooks.__struct_encode_fields__, hooks.__struct_fields__, strict=True))
    for event in EVENTS:
        for number, group in enumerate(getattr(hooks, names[event.title])):
            for index, handler in enumerate(group.hooks):
                kind = str(handler.__struct_config__.tag)
                runs = kind in ("command", "mcp_tool")
                yield Slot(
                    event=event,
                    group=number,
                    index=index,
                    path=(),
                    matcher=group.matcher if event.uses_matcher else None,
                    handler=handler if runs else None,
                    notes=()
                    if runs
                    else (f"skipping {kind} hook: {kind} hooks are not supported",),
                )


def _key(origin: HookOrigin, slot: Slot) -> str:
    return f"{origin.name}:{slot.event.key}:{slot.group}:{slot.index}"


def _source(layer: Layer) -> HookSource:
    match layer.source:
        case SystemConfigLayerSource():
            return "system"
        case UserConfigLayerSource():
            return "user"
        case ProjectConfigLayerSource():
            return "project"
        case LegacyManagedConfigTomlFromFileConfigLayerSource():
            return "legacyManagedConfigFile"
        case _:
            return "sessionFlags"


def _line(origin: HookOrigin, path: tuple[str | int, ...]) -> int | None:
    if origin.text is not None:
        return line_of(origin.text, path)
    return None if origin.table is None else origin.table.line_of(path)


def _table(layer: Layer, path: str) -> TomlTable | None:
    """Return the table of a file that a layer is, if it comes from a file."""
    match layer.source:
        case UserConfigLayerSource(file=file, profile=str(profile)):
            return TomlTable(str(file), ("profiles", profile))
        case _:
            return None if path == SESSION_FLAGS else TomlTable(path)


def _config_path(layer: Layer) -> str:
    match layer.source:
        case UserConfigLayerSource(file=file, profile=str(profile)):
            # Its hooks have other keys than those beside it in the file.
            return f"{file}:profiles.{profile}"
        case (
            SystemConfigLayerSource(file=file)
            | UserConfigLayerSource(file=file)
            | LegacyManagedConfigTomlFromFileConfigLayerSource(file=file)
        ):
            return str(file)
        case ProjectConfigLayerSource(dot_codex_folder=folder):
            return f"{folder}/config.toml"
        case _:
            return SESSION_FLAGS
