"""Where another agent keeps its files, and where Treadle keeps the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from treadle.protocol.base import JsonValue
from treadle.support.files.unlinked import read_unlinked

MAX_BYTES: Final = 1024 * 1024
"""The maximum size of a file that is read or written here."""

MAX_ENTRIES: Final = 2000
"""The maximum number of entries that are looked at below a folder."""

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of the texts that are read together: all are in memory at once."""

AgentName: TypeAlias = Literal["claude", "cursor"]


class UnreadableSource(Exception):
    """A file of the other agent cannot be read, or is not what it should be."""


class Place(Struct, frozen=True):
    """The user's home folder, or the root of a project, without links on its path."""

    agent: AgentName
    root: Path
    # The folder as the protocol names it; `None` for the home.
    cwd: str | None
    # Treadle's home, which has the configuration of the user.
    home: Path
    # The home folder of the user.
    home_of_user: Path

    @property
    def source(self) -> Path:
        """The folder of the other agent."""
        return self.root / f".{self.agent}"

    @property
    def config(self) -> Path:
        """The configuration file to write."""
        return (self.home if self.cwd is None else self.root / ".codex") / "config.toml"

    @property
    def skills(self) -> Path:
        """The folder of skills to write."""
        return self.root / ".agents" / "skills"

    @property
    def instructions(self) -> Path:
        """The file of instructions to write."""
        return (self.home if self.cwd is None else self.root) / "AGENTS.md"

    @property
    def hooks(self) -> Path:
        """The file of hooks to write."""
        return self.config.with_name("hooks.json")


def read_text(path: Path) -> str | None:
    """Return the text of a file; `None` if there is none.

    Raises:
        UnreadableSource: it is too large, not UTF-8, a folder or a link.
    """
    try:
        return read_unlinked(path, MAX_BYTES).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableSource(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableSource(f"{path}: not UTF-8 at byte {error.start}") from error


def read_texts(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield files with their texts.

    Raises:
        UnreadableSource: one cannot be read, or they are too large together.
    """
    left = MAX_TEXT_BYTES
    for path in paths:
        text = read_text(path) or ""
        left -= len(text.encode())
        if left < 0:
            raise UnreadableSource(f"{path.parent}: more than {MAX_TEXT_BYTES} bytes of text")
        yield path, text


def read_object(path: Path) -> Mapping[str, JsonValue]:
    """Return the JSON object in a file; empty if there is no file.

    Raises:
        UnreadableSource: it cannot be read, or is not a JSON object.
    """
    text = read_text(path)
    if not text:
        return {}
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableSource(f"{path}: {error}") from error
    return _object(document, str(path))


def part(document: Mapping[str, JsonValue], key: str, where: Path) -> Mapping[str, JsonValue]:
    """Return the object under a key; empty if there is none.

    Raises:
        UnreadableSource: the value is something else.
    """
    return _object(document.get(key) or {}, f"{where}: {key}")


def _object(value: JsonValue, what: str) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise UnreadableSource(f"{what}: expected an object")
    return value


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder in order, without following links.

    Raises:
        UnreadableSource: there are too many.
    """
    left = MAX_ENTRIES
    for at, folders, names in os.walk(folder):
        folders.sort()
        left -= len(folders) + len(names)
        if left < 0:
            raise UnreadableSource(f"{folder}: more than {MAX_ENTRIES} entries")
        for name in sorted(names):
            path = Path(at, name)
            if path.is_file() and not path.is_symlink():
                yield path
