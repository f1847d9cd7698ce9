"""Skills: folders with a SKILL.md, which says in its first lines what the skill is for."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from treadle.engine.project.docs import repository_root
from treadle.protocol.skill import SkillErrorInfo, SkillMetadata, SkillScope
from treadle.support.files.reading import read_file

NAME: Final = "SKILL.md"
MAX_DEPTH: Final = 6
MAX_FOLDERS: Final = 2000
MAX_ENTRIES: Final = 20_000
"""Entries of folders that are looked at for one root."""

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_NAME_CHARACTERS: Final = 64
_ORDER: Final[Mapping[SkillScope, int]] = {"repo": 0, "user": 1, "system": 2, "admin": 3}
_ADMIN: Final = Path("/etc/codex/skills")
_FIELD: Final = re.compile(r"([A-Za-z_][\w-]*):(?:\s++(.*)|)$")
_BLOCK: Final = re.compile(r"[|>][+-]?$")


class Skills(NamedTuple):
    """The skills that a folder sees, and the files that are none."""

    found: list[SkillMetadata]
    errors: list[SkillErrorInfo]


class SkillRoot(NamedTuple):
    """A folder to search, and whose skills lie in it."""

    folder: Path
    scope: SkillScope


def skill_roots(
    cwd: Path, *, home: Path, user_home: Path | None = None, extra: Sequence[Path] = ()
) -> list[SkillRoot]:
    """Where skills lie: in the repository from its root down to the folder, and at home."""
    top = repository_root(cwd) or cwd
    above = takewhile(lambda folder: folder.is_relative_to(top), cwd.parents)
    folders = [cwd, *above][::-1]
    hidden = (".agents", ".codex")
    roots = [SkillRoot(folder / name / "skills", "repo") for folder in folders for name in hidden]
    roots.append(SkillRoot(home / "skills", "user"))
    if user_home is not None:
        roots.append(SkillRoot(user_home / ".agents" / "skills", "user"))
    roots += [SkillRoot(folder, "user") for folder in extra]
    return [*roots, SkillRoot(home / "skills" / ".system", "system"), SkillRoot(_ADMIN, "admin")]


def find_skills(roots: Sequence[SkillRoot], disabled: Disabled) -> Skills:
    """Read every skill below these folders, in the order in which people are shown them."""
    found: dict[Path, SkillMetadata] = {}
    errors: dict[Path, SkillErrorInfo] = {}
    for root in roots:
        for path in _files(root.folder):
            try:
                skill = _read_known(path, root.scope, _stamp(path))
            except ValueError as error:
                errors[path] = SkillErrorInfo(message=str(error), path=str(path))
            else:
                is_enabled = not disabled.holds(skill)
                found[path] = msgspec.structs.replace(skill, enabled=is_enabled)
    skills = sorted(found.values(), key=lambda skill: (_ORDER[skill.scope], skill.name, skill.path))
    return Skills(skills, [errors[path] for path in sorted(errors)])


class Disabled(NamedTuple):
    """The skills that the configuration switches off, by path and by name."""

    paths: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def holds(self, skill: SkillMetadata) -> bool:
        """Whether this skill is off."""
        folder = str(Path(skill.path).parent)
        return skill.name in self.names or not self.paths.isdisjoint((skill.path, folder))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells two states of a file apart."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=512)
def _read_known(
    path: Path,
    scope: SkillScope,
    stamp: tuple[int, int, int] | None,  # noqa: ARG001 - another state is another answer
) -> SkillMetadata:
    # Every turn looks whether skills have changed, and most of them never do.
    return read_skill(path, scope)


def read_skill(path: Path, scope: SkillScope) -> SkillMetadata:
    """What a skill says of itself.

    Raises:
        ValueError: it cannot be read, or says too little.
    """
    fields = _fields(_head(path))
    name = _text(fields.get("name", [])) or path.parent.name
    description = _text(fields.get("description", []))
    if len(name) > MAX_NAME_CHARACTERS:
        message = f"invalid name: exceeds maximum length of {MAX_NAME_CHARACTERS} characters"
        raise ValueError(message)
    if not description:
        message = "missing field `description`"
        raise ValueError(message)
    below = textwrap.dedent("\n".join(fields.get("metadata", [])[1:]))
    short = _text(_fields(below.splitlines()).get("short-description", []))
    return SkillMetadata(
        name=name,
        description=description,
        short_description=short or UNSET,
        path=str(path),
        scope=scope,
        enabled=True,
    )


def _files(root: Path) -> Iterator[Path]:
    """Every SKILL.md below a folder, by its real path."""
    for folder in skill_folders(root):
        path = folder / NAME
        if path.exists():
            yield path.resolve()


def skill_folders(root: Path) -> Iterator[Path]:
    """The folders that may hold a skill, by their real paths; links are followed, none twice."""
    if not root.is_dir():
        return
    seen: set[str] = set()
    left = MAX_ENTRIES
    waiting = [(str(root), 0)]
    while waiting and len(seen) < MAX_FOLDERS:
        folder, depth = waiting.pop()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        yield Path(real)
        if depth < MAX_DEPTH and left > 0:
            looked_at, below = _folders_in(folder, left)
            left -= looked_at
            waiting += [(f"{folder}/{name}", depth + 1) for name in sorted(below, reverse=True)]


def _folders_in(folder: str, limit: int) -> tuple[int, list[str]]:
    """How many entries of a folder were looked at, up to a limit, and the folders among them."""
    found: list[str] = []
    count = 0
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, limit):
                count += 1
                with suppress(OSError):  # a link that leads nowhere
                    if not entry.name.startswith(".") and entry.is_dir():
                        found.append(entry.name)
    except OSError:
        pass  # it went away, or may not be read
    return count, found


def _head(path: Path) -> list[str]:
    """The lines between the first two lines of dashes."""
    try:
        lines = read_file(path, MAX_HEAD_BYTES).splitlines()
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
    """The fields of a block of YAML: what follows the colon, and the indented lines below.

    No more of YAML than this is needed, and what people write there is often not quite YAML: a
    description with a colon in it is taken as it is meant.
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
    """A scalar, plain, quoted or in a block, on one line."""
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
