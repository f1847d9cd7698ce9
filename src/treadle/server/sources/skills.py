"""Skills as configured: the folders that are searched, and the skills that are disabled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.config.settings import Table
from treadle.engine.project.skills import Disabled, SkillRoot, Skills, find_skills, skill_roots
from treadle.protocol.base import JsonValue
from treadle.support.files.kinds import is_folder
from treadle.support.files.working_folder import absolute

if TYPE_CHECKING:
    from treadle.server.plugins.active import ActivePlugins

MAX_FOLDERS_WITH_ROOTS: Final = 100


class ConfiguredSkills:
    """The skills of the configuration and of the folders that clients added."""

    def __init__(
        self, configuration: Configuration, plugins: Callable[[], ActivePlugins] | None = None
    ) -> None:
        self._configuration = configuration
        self._plugins = plugins
        self._extra: tuple[Path, ...] = ()
        # Folders that older clients named for one working directory; the oldest are forgotten.
        self._by_folder: dict[str, tuple[Path, ...]] = {}

    def set_extra_roots(self, roots: Sequence[Path]) -> None:
        """Search these folders too, from every working directory; replaces the last set."""
        self._extra = tuple(roots)

    def set_roots_of_folder(self, cwd: str, roots: Sequence[Path]) -> None:
        """Search these folders too from one working directory; replaces its last set."""
        self._by_folder.pop(cwd, None)
        if roots:
            self._by_folder[cwd] = tuple(roots)
        if len(self._by_folder) > MAX_FOLDERS_WITH_ROOTS:
            del self._by_folder[next(iter(self._by_folder))]

    def roots(self, cwd: str) -> list[SkillRoot]:
        """Return the folders that are searched for the skills of a working directory."""
        home = self._configuration.environ.get("HOME")
        return skill_roots(
            Path(absolute(cwd)),
            home=self._configuration.home,
            user_home=Path(home) if home else None,
            plugins=self._of_plugins(),
            extra=(*self._extra, *self._by_folder.get(cwd, ())),
        )

    def _of_plugins(self) -> Sequence[SkillRoot]:
        """Return the folders of plugins; without any, their code is not imported."""
        try:
            configured = self._configuration.effective().plugins
        except ConfigError:
            configured = self._configuration.lenient().plugins
        return self._plugins().skill_roots() if self._plugins is not None and configured else ()

    def find(self, cwd: str) -> Skills:
        """Return the skills that are visible from a folder, as they are on disk now."""
        roots = self.roots(cwd)
        if not any(is_folder(root.folder) for root in roots):
            return Skills([], [])  # the usual case, checked on every turn
        return find_skills(roots, disabled_skills(self._configuration, cwd))


def disabled_skills(configuration: Configuration, cwd: str | None = None) -> Disabled:
    """Return the skills that `[[skills.config]]` disables; a later entry wins."""
    try:
        table = configuration.effective(cwd).skills or {}
    except ConfigError:
        table = configuration.lenient().skills or {}
    by_path: dict[str, JsonValue] = {}
    by_name: dict[str, JsonValue] = {}
    for rule in _rules(table):
        if not isinstance(rule, dict):
            continue
        path, name = rule.get("path"), rule.get("name")
        if isinstance(path, str):
            by_path[str(Path(path).resolve())] = rule.get("enabled")
        elif isinstance(name, str):
            by_name[name] = rule.get("enabled")
    return Disabled(_disabled_values(by_path), _disabled_values(by_name))


def _rules(table: Table) -> list[JsonValue]:
    rules = table.get("config")
    return rules if isinstance(rules, list) else []


def _disabled_values(rules: dict[str, JsonValue]) -> frozenset[str]:
    return frozenset(key for key, is_on in rules.items() if is_on is False)


def switch_skill(
    configuration: Configuration, *, path: str | None, name: str | None, enabled: bool
) -> None:
    """Enable or disable a skill in the user's file; an enabled skill needs no entry there.

    Raises:
        ConfigError: the current file is not TOML, or `skills.config` has another type.
    """
    from treadle.config.edit.edits import BadEdit, TableEdit, apply
    from treadle.config.edit.writer import change_user_file

    key, value = ("path", path) if path is not None else ("name", name)

    def change(table: Table) -> Table:
        skills = table.get("skills", {})
        if not isinstance(skills, dict) or not isinstance(skills.get("config", []), list):
            message = "`skills.config` is not a list of tables"
            raise ConfigError(message, key="skills.config")
        remaining = [rule for rule in _rules(skills) if not _is_about(rule, key, value)]
        rules = remaining if enabled else [*remaining, {key: value, "enabled": False}]
        others = {name for name in skills if name != "config"}
        edit = TableEdit(("skills", "config"), rules or None)
        if not rules and not others:
            edit = TableEdit(("skills",), None)
        return apply(table, [edit])

    try:
        change_user_file(configuration, change)
    except BadEdit as error:
        raise ConfigError(str(error), key=".".join(error.path)) from error


def _is_about(rule: JsonValue, key: str, value: str | None) -> bool:
    return isinstance(rule, dict) and rule.get(key) == value
