"""Finds skills: folders with a SKILL.md whose front matter describes the skill."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from treadle.engine.project.docs import repository_root
from treadle.engine.project.skill_metadata import FILE as METADATA
from treadle.engine.project.skill_metadata import SkillDetails, read_skill_details
from treadle.protocol.skill import SkillErrorInfo, SkillMetadata, SkillScope
from treadle.sandbox.reading import read_for_model
from treadle.support.files.kinds import exists, is_folder

NAME: Final = "SKILL.md"
MAX_DEPTH: Final = 6
MAX_FOLDERS: Final = 2000
MAX_ENTRIES: Final = 20_000
"""The maximum number of folder entries to examine per root."""

MAX_FOLDERS_OF_SCOPE: Final = 4000
"""The maximum number of folders to search in all roots of a scope: each turn searches them."""

MAX_ENTRIES_OF_SCOPE: Final = 40_000
"""The maximum number of folder entries to examine in all roots of a scope."""

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_NAME_CHARACTERS: Final = 64
MAX_DESCRIPTION_CHARACTERS: Final = 1024
_ORDER: Final[Mapping[SkillScope, int]] = {"repo": 0, "user": 1, "system": 2, "admin": 3}
_ADMIN: Final = Path("/etc/codex/skills")
_FIELD: Final = re.compile(r"([A-Za-z_][\w-]*):(?:\s++(.*)|)$")
_BLOCK: Final = re.compile(r"[|>][+-]?$")


class Skills(NamedTuple):
    """The skills that apply in a folder, and the errors of invalid files."""

    entries: list[SkillMetadata]
    errors: list[SkillErrorInfo]
    chosen: frozenset[str] = frozenset()
    """The files that the user chose; a repository or a command may have chosen the others."""
    manual: frozenset[str] = frozenset()
    """The files of the skills that only the user may select."""

    def without(self, plugins: Collection[str]) -> Skills:
        """Return the skills that none of these plugins provides."""
        if not plugins:
            return self
        entries = [each for each in self.entries if each.plugin_id not in plugins]
        return self._replace(entries=entries)

    def offered(self, may_read: Callable[[str], bool]) -> list[SkillMetadata]:
        """Return the enabled skills that the model may choose by itself."""
        return [skill for skill in self.usable(may_read) if skill.path not in self.manual]

    def usable(self, may_read: Callable[[str], bool]) -> list[SkillMetadata]:
        """Return the enabled skills; `may_read` returns whether commands may read a file."""
        return [
            skill
            for skill in self.entries
            if skill.enabled and (skill.path in self.chosen or may_read(skill.path))
        ]


class SkillOwner(NamedTuple):
    """The plugin that provides a skill: its id, its name and its folder."""

    id: str
    name: str
    folder: Path


class SkillRoot(NamedTuple):
    """A folder to search, and the scope of its skills."""

    folder: Path
    scope: SkillScope
    is_extra: bool = False
    """Whether a client named it: commands may write there."""
    plugin: SkillOwner | None = None

    def has_chosen(self, path: Path) -> bool:
        """Return whether only the user can have chosen a file of this root, given without links."""
        if self.is_extra:
            return path.is_relative_to(self.folder)
        return self.scope != "repo"


def skill_roots(
    cwd: Path,
    *,
    home: Path,
    user_home: Path | None = None,
    plugins: Sequence[SkillRoot] = (),
    extra: Sequence[Path] = (),
) -> list[SkillRoot]:
    """Return the folders to search: in the repository, the home, plugins, and the system."""
    top = repository_root(cwd) or cwd
    above = takewhile(lambda folder: folder.is_relative_to(top), cwd.parents)
    folders = [cwd, *above][::-1]
    hidden = (".agents", ".codex")
    roots = [SkillRoot(folder / name / "skills", "repo") for folder in folders for name in hidden]
    roots.append(SkillRoot(home / "skills", "user"))
    if user_home is not None:
        roots.append(SkillRoot(user_home / ".agents" / "skills", "user"))
    roots += plugins
    roots += [SkillRoot(folder, "user", is_extra=True) for folder in extra]
    return [*roots, SkillRoot(home / "skills" / ".system", "system"), SkillRoot(_ADMIN, "admin")]


def find_skills(roots: Sequence[SkillRoot], disabled: Disabled) -> Skills:
    """Read every skill below these folders, in display order."""
    skills: dict[Path, SkillMetadata] = {}
    errors: dict[Path, SkillErrorInfo] = {}
    chosen: set[str] = set()
    manual: set[str] = set()
    left: dict[SkillScope, _Left] = {}
    for root in roots:
        for path in _files(root.folder, left.setdefault(root.scope, _all_left())):
            if root.has_chosen(path):
                chosen.add(str(path))
            stamps = (_stamp(path), _stamp(path.parent / METADATA))
            try:
                skill, details = _read_known(path, root.scope, root.plugin, stamps)
            except ValueError as error:
                errors[path] = SkillErrorInfo(message=str(error), path=str(path))
                continue
            if not details.is_for_product:
                continue
            if not details.is_for_model:
                manual.add(str(path))
            is_enabled = not disabled.holds(skill)
            skills[path] = msgspec.structs.replace(skill, enabled=is_enabled)
    entries = sorted(
        skills.values(), key=lambda skill: (_ORDER[skill.scope], skill.name, skill.path)
    )
    faults = [errors[path] for path in sorted(errors)]
    return Skills(entries, faults, frozenset(chosen), frozenset(manual))


class _Left(msgspec.Struct):
    """What may still be searched in the roots of a scope."""

    folders: int
    entries: int


def _all_left() -> _Left:
    return _Left(MAX_FOLDERS_OF_SCOPE, MAX_ENTRIES_OF_SCOPE)


class Disabled(NamedTuple):
    """The skills that the configuration disables, by path and by name."""

    paths: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def holds(self, skill: SkillMetadata) -> bool:
        """Whether a skill is disabled."""
        folder = str(Path(skill.path).parent)
        return skill.name in self.names or not self.paths.isdisjoint((skill.path, folder))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@lru_cache(maxsize=512)
def _read_known(
    path: Path,
    scope: SkillScope,
    plugin: SkillOwner | None,
    stamps: tuple[object, ...],  # noqa: ARG001 - another state is another answer
) -> tuple[SkillMetadata, SkillDetails]:
    # Every turn checks for changed skills, and most never change.
    return read_skill(path, scope, plugin)


def read_skill(
    path: Path, scope: SkillScope, plugin: SkillOwner | None = None
) -> tuple[SkillMetadata, SkillDetails]:
    """Read the metadata of a skill.

    Raises:
        ValueError: the file cannot be read, or its metadata is invalid.
    """
    fields = _fields(_head(path))
    name = _text(fields.get("name", [])) or path.parent.name
    if plugin is not None:
        name = f"{plugin.name}:{name}"
    description = _text(fields.get("description", []))
    _require_length("name", name, MAX_NAME_CHARACTERS)
    if not description:
        message = "missing field `description`"
        raise ValueError(message)
    _require_length("description", description, MAX_DESCRIPTION_CHARACTERS)
    below = textwrap.dedent("\n".join(fields.get("metadata", [])[1:]))
    short = _text(_fields(below.splitlines()).get("short-description", []))
    _require_length("metadata.short-description", short, MAX_DESCRIPTION_CHARACTERS)
    details = read_skill_details(path.parent, plugin and plugin.folder)
    skill = SkillMetadata(
        name=name,
        description=description,
        short_description=short or UNSET,
        path=str(path),
        scope=scope,
        enabled=True,
        interface=details.interface or UNSET,
        dependencies=details.dependencies or UNSET,
        plugin_id=plugin and plugin.id,
    )
    return skill, details


def _require_length(name: str, value: str, limit: int) -> None:
    if len(value) > limit:
        raise ValueError(f"invalid {name}: exceeds maximum length of {limit} characters")


def _files(root: Path, left: _Left) -> Iterator[Path]:
    """Every SKILL.md below a folder, by its real path."""
    for folder in _search(root, left):
        path = folder / NAME
        if exists(path):
            yield path.resolve()


def skill_folders(root: Path) -> Iterator[Path]:
    """Return the folders that may contain a skill, by real path; each link is followed once."""
    return _search(root, _all_left())


def _search(root: Path, scope: _Left) -> Iterator[Path]:
    if not is_folder(root):
        return
    seen: set[str] = set()
    left = min(MAX_ENTRIES, scope.entries)
    waiting = [(str(root), 0)]
    while waiting and len(seen) < MAX_FOLDERS and scope.folders > 0:
        folder, depth = waiting.pop()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        scope.folders -= 1
        yield Path(real)
        if depth < MAX_DEPTH and left > 0:
            examined, below = _folders_in(folder, left)
            left -= examined
            scope.entries -= examined
            waiting += [(f"{folder}/{name}", depth + 1) for name in sorted(below, reverse=True)]


def _folders_in(folder: str, limit: int) -> tuple[int, list[str]]:
    """Return how many entries of a folder were examined, and the folders among them."""
    names: list[str] = []
    count = 0
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, limit):
                count += 1
                with suppress(OSError):  # a link that leads nowhere
                    if not entry.name.startswith(".") and entry.is_dir():
                        names.append(entry.name)
    except OSError:
        pass  # deleted meanwhile, or not readable
    return count, names


def _head(path: Path) -> list[str]:
    """Return the lines of the front matter."""
    try:
        # The path has no links, unless a command has just put one there.
        head, _ = read_for_model(str(path), MAX_HEAD_BYTES, lambda place: place == str(path))
        lines = head.splitlines()
    except OSError as error:
        message = f"failed to read file: {error.strerror}"
        raise ValueError(message) from error
    dashes = [at for at, line in enumerate(lines) if line.rstrip() == b"---"][:2]
    if len(dashes) < 2 or dashes[0] != 0:
        message = "missing YAML frontmatter delimited by ---"
        raise ValueError(message)
    try:
        return [line.decode() for line in lines[1 : dashes[1]]]
    except UnicodeDecodeError as error:
        message = "failed to read file: it is not UTF-8"
        raise ValueError(message) from error


def _fields(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the fields of a YAML block: the text after the colon, and the indented lines below.

    This subset is enough, and front matter is often not quite valid YAML: a description that
    contains a colon is accepted.
    """
    fields: dict[str, list[str]] = {}
    below: list[str] = []
    for line in lines:
        if line[:1].isspace() or not line:
            below.append(line)
        elif match := _FIELD.match(line.rstrip()):
            below = fields[match[1]] = [match[2] or ""]
        else:
            below = []
    return fields


def _text(lines: Sequence[str]) -> str:
    """Return a plain, quoted or block scalar as one line."""
    first, *rest = [*lines] or [""]
    if _BLOCK.match(first):
        return " ".join(" ".join(rest).split())
    text = " ".join(" ".join(lines).split())
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        try:
            return str(msgspec.json.decode(text))
        except msgspec.DecodeError:
            return text[1:-1]
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return text.split(" #")[0]
