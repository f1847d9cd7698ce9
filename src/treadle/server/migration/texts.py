"""Skills, commands and instructions of other agents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from treadle.server.migration.places import Place, files_below, read_text, read_texts

SKILL_FILE: Final = "SKILL.md"
PREFIX: Final = "source-command-"
MAX_NAME: Final = 64
_FRONT_MATTER: Final = re.compile(r"---\r?\n(?P<head>(?:(?!---).*+\r?\n)*+)---\r?\n?")
_DESCRIPTION: Final = re.compile(r"description:[ \t]*+(?P<text>\S.*+)")
# What the other agent replaces before its model sees the text; skills have no such step.
_DYNAMIC: Final = re.compile(r"\$ARGUMENTS|\$[0-9]|!`|(?:\A|\s)@[\w./~-]")
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")


class SkillText(NamedTuple):
    """A skill to write: its name, and its files by their path below its folder."""

    name: str
    files: dict[str, str]


def find_skills(place: Place) -> Iterator[Path]:
    """Yield the folders of skills that Treadle does not have yet.

    Raises:
        UnreadableSource: there are too many files.
    """
    for path in files_below(place.source / "skills"):
        folder = path.parent
        is_skill = path.name == SKILL_FILE and folder.parent == place.source / "skills"
        if is_skill and not (place.skills / folder.name / SKILL_FILE).exists():
            yield folder


def read_skill(folder: Path) -> SkillText:
    """Return a skill with all its text files; a file of another kind is an error.

    Raises:
        UnreadableSource: a file cannot be read.
    """
    files: dict[str, str] = {}
    for path, text in read_texts(files_below(folder)):
        name = path.relative_to(folder).as_posix()
        files[name] = for_treadle(text) if name == SKILL_FILE else text
    return SkillText(folder.name, files)


def find_commands(place: Place) -> Iterator[SkillText]:
    """Yield the commands that can be skills, and that Treadle does not have yet.

    A command with arguments, shell output or files in its text is left out.

    Raises:
        UnreadableSource: a file cannot be read.
    """
    folder = place.source / "commands"
    for path, text in read_texts(each for each in files_below(folder) if each.suffix == ".md"):
        words = _OTHER.sub("-", path.relative_to(folder).with_suffix("").as_posix()).strip("-")
        name = f"{PREFIX}{words.lower()}"
        if _DYNAMIC.search(text) or not words or len(name) > MAX_NAME:
            continue
        if not (place.skills / name / SKILL_FILE).exists():
            yield SkillText(name, {SKILL_FILE: _command(name, words, text)})


def _command(name: str, words: str, text: str) -> str:
    head = _FRONT_MATTER.match(text)
    found = _DESCRIPTION.search(head["head"]) if head else None
    about = found["text"].strip().strip("\"'") if found else f"Migrated source command `{words}`"
    body = text[head.end() :] if head else text
    return (
        f"---\nname: {json.dumps(name)}\ndescription: {json.dumps(about)}\n---\n\n# {name}\n\n"
        f"Use this skill when the user asks to run the migrated source command `{words}`.\n\n"
        f"## Command Template\n\n{for_treadle(body).strip()}\n"
    )


def find_instructions(place: Place) -> str | None:
    """Return the instructions of the other agent; `None` if Treadle has its own.

    Raises:
        UnreadableSource: a file cannot be read.
    """
    if place.instructions.is_symlink() or (read_text(place.instructions) or "").strip():
        return None
    texts = [text for path in _instruction_files(place) if (text := read_text(path))]
    if place.agent == "cursor":
        texts += _rules(place)
    joined = "\n\n".join(text.strip() for text in texts if text.strip())
    return f"{for_treadle(joined)}\n" if joined else None


def _instruction_files(place: Place) -> list[Path]:
    if place.agent == "cursor":
        return [] if place.cwd is None else [place.root / ".cursorrules"]
    inner = place.source / "CLAUDE.md"
    if place.cwd is None:
        return [inner]
    outer = place.root / "CLAUDE.md"
    return [outer if outer.is_file() else inner]


def _rules(place: Place) -> Iterator[str]:
    """Yield the rules of Cursor that always apply."""
    for path, text in read_texts(files_below(place.source / "rules")):
        head = _FRONT_MATTER.match(text) if path.suffix == ".mdc" else None
        if head and re.search(r"^alwaysApply:[ \t]*+true\b", head["head"], re.MULTILINE):
            yield text[head.end() :]


def for_treadle(text: str) -> str:
    """Return a text that names the files by which this server finds instructions."""
    return text.replace("CLAUDE.md", "AGENTS.md")
