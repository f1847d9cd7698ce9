"""Detects what can be imported from Claude Code or Cursor; imports it, and replaces nothing."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from treadle.config.configuration import Configuration
from treadle.config.edit.toml_text import Unfaithful, rewrite
from treadle.config.edit.writer import WriteRefused, change_user_file
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.project.docs import repository_root
from treadle.protocol.base import JsonValue
from treadle.protocol.external_agent import (
    CommandMigration,
    ExternalAgentConfigImportItemTypeFailure,
    ExternalAgentConfigImportItemTypeSuccess,
    ExternalAgentConfigImportTypeResult,
    ExternalAgentConfigMigrationItem,
    ExternalAgentConfigMigrationItemType,
    HookMigration,
    McpServerMigration,
    MigrationDetails,
    SkillMigration,
)
from treadle.server.migration.mcp import find_servers, settings_of
from treadle.server.migration.places import (
    AgentName,
    Place,
    UnreadableSource,
    read_object,
    read_text,
)
from treadle.server.migration.settings import add_missing, find_hooks, find_settings
from treadle.server.migration.texts import (
    SKILL_FILE,
    SkillText,
    find_commands,
    find_instructions,
    find_skills,
    read_skill,
)
from treadle.support.files.unlinked import make_unlinked_folders, replace_unlinked

_SHARED: Final = 0o666
_FAULTS: Final = (OSError, UnreadableSource, ConfigError, WriteRefused, Unfaithful)

# Imports one part; returns the names of its source and its target.
_Write: TypeAlias = Callable[[], tuple[str, str]]


class _Kind(NamedTuple):
    """One kind of item: how to find its parts in a place, and how to present them."""

    type: ExternalAgentConfigMigrationItemType
    # Returns the parts by name, each with the function that imports it.
    find: Callable[[Configuration, Place], Mapping[str, _Write]]
    describe: Callable[[Place], str]
    details: Callable[[Collection[str]], MigrationDetails] | None = None


def places(
    configuration: Configuration,
    agent: AgentName,
    *,
    includes_home: bool,
    cwds: Collection[str],
    home_of_user: Path,
) -> list[Place]:
    """Return the user's home and the roots of the projects, each once, with links resolved."""
    home = Path(os.path.realpath(configuration.home))
    user = Path(os.path.realpath(home_of_user))
    found = [Place(agent, user, None, home, user)] if includes_home else []
    for cwd in cwds:
        folder = Path(os.path.realpath(cwd))
        root = repository_root(folder) or folder
        place = Place(agent, root, str(root), home, user)
        # The home folder of the user is not a project.
        if root.is_dir() and root != user and place not in found:
            found.append(place)
    return found


def detect(
    configuration: Configuration, place: Place
) -> Iterator[ExternalAgentConfigMigrationItem | UnreadableSource]:
    """Yield what can be imported from a place, and the faults of files that cannot be read."""
    for kind in _KINDS:
        try:
            parts = kind.find(configuration, place)
        except _FAULTS as error:
            yield UnreadableSource(str(error))
            continue
        if parts:
            details = kind.details(parts) if kind.details is not None else None
            yield ExternalAgentConfigMigrationItem(
                kind.describe(place), kind.type, place.cwd, details
            )


def import_item(
    configuration: Configuration, place: Place, item: ExternalAgentConfigMigrationItem
) -> ExternalAgentConfigImportTypeResult:
    """Import what an item names, or all of its kind if it names nothing."""
    type_ = item.item_type
    kind = next((each for each in _KINDS if each.type == type_), None)
    if kind is None:
        message = f"items of type {type_} cannot be imported"
        return ExternalAgentConfigImportTypeResult(
            [_failure(item, "unsupported", message)], type_, []
        )
    successes: list[ExternalAgentConfigImportItemTypeSuccess] = []
    failures: list[ExternalAgentConfigImportItemTypeFailure] = []
    try:
        parts = kind.find(configuration, place)
    except _FAULTS as error:
        parts = {}
        failures.append(_failure(item, "detect", str(error)))
    for name in _selected(item, parts):
        try:
            source, target = parts[name]()
        except KeyError:
            message = f"{name!r} does not exist, or has been imported already"
            failures.append(_failure(item, "detect", message, name))
        except _FAULTS as error:
            failures.append(_failure(item, "import", str(error), name))
        else:
            successes.append(
                ExternalAgentConfigImportItemTypeSuccess(type_, item.cwd, source, target)
            )
    return ExternalAgentConfigImportTypeResult(failures, type_, successes)


def _selected(
    item: ExternalAgentConfigMigrationItem, parts: Mapping[str, _Write]
) -> Collection[str]:
    details = item.details
    if details is None:
        return list(parts)
    groups = (details.skills, details.commands, details.mcp_servers, details.hooks)
    return [each.name for group in groups for each in group] or list(parts)


def _failure(
    item: ExternalAgentConfigMigrationItem, stage: str, message: str, source: str | None = None
) -> ExternalAgentConfigImportItemTypeFailure:
    return ExternalAgentConfigImportItemTypeFailure(
        stage, item.item_type, message, cwd=item.cwd, source=source
    )


# -- configuration


def _settings_parts(configuration: Configuration, place: Place) -> Mapping[str, _Write]:
    found = find_settings(place)
    current = _current(configuration, place)
    if add_missing(current, found) == current:
        return {}
    source = str(place.source / "settings.json")

    def write() -> tuple[str, str]:
        _change(configuration, place, lambda table: add_missing(table, found))
        return source, str(place.config)

    return {source: write}


def _server_parts(configuration: Configuration, place: Place) -> Mapping[str, _Write]:
    known = _current(configuration, place).get("mcp_servers") or {}

    def write(name: str, entry: Mapping[str, JsonValue]) -> tuple[str, str]:
        added = {"mcp_servers": {name: settings_of(name, entry)}}
        _change(configuration, place, lambda table: add_missing(table, added))
        return name, name

    found = find_servers(place).items()
    return {name: partial(write, name, entry) for name, entry in found if name not in known}


def _current(configuration: Configuration, place: Place) -> Table:
    path = place.config
    if place.cwd is None:
        # The user may keep the file elsewhere, behind a link.
        path = Path(os.path.realpath(configuration.user_file))
    text = read_text(path)
    try:
        return tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise UnreadableSource(f"{path}: {error}") from error


def _change(configuration: Configuration, place: Place, change: Callable[[Table], Table]) -> None:
    if place.cwd is None:
        change_user_file(configuration, change)
        return
    before = _current(configuration, place)
    text = rewrite(read_text(place.config) or "", before, change(before))
    _write(place.config, text, _SHARED)


def _hook_parts(_configuration: Configuration, place: Place) -> Mapping[str, _Write]:
    def write(event: str, groups: JsonValue) -> tuple[str, str]:
        document = dict(read_object(place.hooks))
        document["hooks"] = {**(document.get("hooks") or {}), event: groups}
        mode = 0o600 if place.cwd is None else _SHARED
        _write(place.hooks, json.dumps(document, indent=2) + "\n", mode)
        return event, event

    return {event: partial(write, event, groups) for event, groups in find_hooks(place).items()}


# -- texts


def _instruction_parts(_configuration: Configuration, place: Place) -> Mapping[str, _Write]:
    text = find_instructions(place)
    if text is None:
        return {}
    source = str(place.source)

    def write() -> tuple[str, str]:
        _write(place.instructions, text, _SHARED)
        return source, str(place.instructions)

    return {source: write}


def _skill_parts(_configuration: Configuration, place: Place) -> Mapping[str, _Write]:
    def write(folder: Path) -> tuple[str, str]:
        return _write_skill(place, read_skill(folder))

    return {folder.name: partial(write, folder) for folder in find_skills(place)}


def _command_parts(_configuration: Configuration, place: Place) -> Mapping[str, _Write]:
    return {each.name: partial(_write_skill, place, each) for each in find_commands(place)}


def _write_skill(place: Place, skill: SkillText) -> tuple[str, str]:
    folder = place.skills / skill.name
    # The file by which a skill is found comes last, so that none is found incomplete.
    for name in sorted(skill.files, key=lambda name: name == SKILL_FILE):
        path, text = folder / name, skill.files[name]
        if read_text(path) not in (None, text):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        _write(path, text, _SHARED)
    return skill.name, skill.name


def _write(path: Path, text: str, mode: int) -> None:
    make_unlinked_folders(str(path.parent))
    replace_unlinked(path, text.encode(), mode)


_KINDS: Final = (
    _Kind(
        "CONFIG",
        _settings_parts,
        lambda place: f"Migrate {place.source / 'settings.json'} into {place.config}",
    ),
    _Kind(
        "MCP_SERVER_CONFIG",
        _server_parts,
        lambda place: f"Migrate MCP servers from {place.root} into {place.config}",
        lambda names: MigrationDetails(mcp_servers=[McpServerMigration(name) for name in names]),
    ),
    _Kind(
        "HOOKS",
        _hook_parts,
        lambda place: f"Migrate hooks from {place.source} to {place.hooks}",
        lambda names: MigrationDetails(hooks=[HookMigration(name) for name in names]),
    ),
    _Kind(
        "SKILLS",
        _skill_parts,
        lambda place: f"Migrate skills from {place.source / 'skills'} to {place.skills}",
        lambda names: MigrationDetails(skills=[SkillMigration(name) for name in names]),
    ),
    _Kind(
        "COMMANDS",
        _command_parts,
        lambda place: f"Migrate commands from {place.source / 'commands'} to {place.skills}",
        lambda names: MigrationDetails(commands=[CommandMigration(name) for name in names]),
    ),
    _Kind(
        "AGENTS_MD",
        _instruction_parts,
        lambda place: f"Migrate instructions from {place.source} to {place.instructions}",
    ),
)
