"""The skills of a prompt, copied into a folder that the server reads."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from weakincentives.skills import (
    MAX_SKILL_TOTAL_BYTES,
    SkillMount,
    SkillMountError,
    SkillNotFoundError,
    resolve_skill_name,
    validate_skill,
    validate_skill_name,
)

from treadle.protocol.input import SkillUserInput, UserInput


class SkillSet:
    """Skills that go together; two sets of the same content have the same key."""

    def __init__(self, mounts: Sequence[SkillMount]) -> None:
        self._sources = _sources(mounts)
        self.key = self._key()

    def __bool__(self) -> bool:
        return bool(self._sources)

    def _key(self) -> str:
        digest = hashlib.sha256()
        for name, source in sorted(self._sources.items()):
            digest.update(name.encode())
            for path, relative in _files(source):
                digest.update(relative.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()

    def install(self) -> SkillFolder:
        """Copy the skills into a new folder."""
        folder = SkillFolder()
        for name, source in self._sources.items():
            for path, relative in _files(source):
                target = folder.root / name / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        return folder


class SkillFolder:
    """A temporary home folder that contains only skills."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="wink-skills-")
        self.root = Path(self._folder.name) / ".agents" / "skills"
        self.root.mkdir(parents=True)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return variables for a server that cannot be configured with further skill folders.

        It gets this folder as its user's home; the homes of the programs are unchanged.
        """
        home = Path(environ.get("HOME") or Path.home())
        codex = environ.get("CODEX_HOME")
        treadle = environ.get("TREADLE_HOME") or codex or str(home / ".treadle")
        return {
            "HOME": self._folder.name,
            "CODEX_HOME": codex or str(home / ".codex"),
            "TREADLE_HOME": treadle,
        }

    def inputs(self) -> list[UserInput]:
        """Return the skills as input of a turn."""
        paths = sorted(self.root.glob("*/SKILL.md"))
        return [SkillUserInput(name=path.parent.name, path=str(path)) for path in paths]

    def remove(self) -> None:
        """Delete the copies."""
        self._folder.cleanup()


def _sources(mounts: Sequence[SkillMount]) -> dict[str, Path]:
    sources: dict[str, Path] = {}
    for mount in mounts:
        name = resolve_skill_name(mount)
        validate_skill_name(name)
        if name in sources:
            raise SkillMountError(f"Duplicate skill name: {name}")
        source = Path(mount.source).resolve()
        if not source.exists():
            raise SkillNotFoundError(f"Skill not found: {mount.source}")
        validate_skill(source)
        size = sum(path.stat().st_size for path, _ in _files(source))
        if size > MAX_SKILL_TOTAL_BYTES:
            raise SkillMountError(f"Skill {name} is too large: {size} > {MAX_SKILL_TOTAL_BYTES}")
        sources[name] = source
    return sources


def _files(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a skill and their targets, without links, which may lead anywhere."""
    if source.is_file():
        yield source, "SKILL.md"
        return
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path, os.fspath(path.relative_to(source))
