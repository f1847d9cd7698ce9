"""Finds the line of a value in a TOML document, for messages about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from treadle.config.file import MAX_CONFIG_BYTES
from treadle.config.hooks.parse import Path
from treadle.support.files.reading import read_whole

_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\\]*+"|'[^']*+')"""
_KEYS: Final = rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+"
_HEADER: Final = re.compile(rf"[ \t]*+(\[\[?+)[ \t]*+({_KEYS})[ \t]*+\]\]?+[ \t]*+(?:#.*+)?")
_ENTRY: Final = re.compile(rf"[ \t]*+({_KEYS})[ \t]*+=")
_part: Final = re.compile(_PART)
_QUOTES: Final = re.compile("\"\"\"|'''")


class TomlTable:
    """A table of a configuration file, which is read when a line of it is needed.

    The file may have changed since its hooks were read: then a line may be that of another value.
    """

    def __init__(self, file: str, keys: tuple[str, ...] = ()) -> None:
        self._file = file
        self._keys = keys

    @cached_property
    def _lines(self) -> Mapping[Path, int]:
        try:
            return lines_of(read_whole(self._file, MAX_CONFIG_BYTES).decode("utf-8"))
        except (OSError, ValueError):
            return {}

    def line_of(self, path: Path) -> int | None:
        """Return the line of a value, or of the innermost table or key around it."""
        whole = (*self._keys, *path)
        ends = range(len(whole), 0, -1)
        return next((self._lines[whole[:end]] for end in ends if whole[:end] in self._lines), None)


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each table and each key, not of what is in arrays and inline tables."""
    lines: dict[Path, int] = {}
    for place, line in _places(text):
        lines.setdefault(place, line)
    return lines


def _places(text: str) -> Iterator[tuple[Path, int]]:
    """Yield the path of each table and of each key, with its line."""
    counts: dict[Path, int] = {}
    table: Path = ()
    quotes: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        was_open = quotes is not None
        quotes = _open_quotes(line, quotes)
        if was_open:
            continue
        if header := _HEADER.fullmatch(line.rstrip("\r")):
            table = _table(counts, _keys(header[2]), is_array=len(header[1]) > 1)
            yield table, number
        elif entry := _ENTRY.match(line):
            yield (*table, *_keys(entry[1])), number


def _table(counts: dict[Path, int], keys: list[str], *, is_array: bool) -> Path:
    """Return the path of a table; each array of tables on the way is at its last element."""
    at: Path = ()
    for depth, key in enumerate(keys, 1):
        at = (*at, key)
        if is_array and depth == len(keys):
            counts[at] = counts.get(at, -1) + 1
        if at in counts:
            at = (*at, counts[at])
    return at


def _keys(text: str) -> list[str]:
    return [part.strip("\"'") for part in _part.findall(text)]


def _open_quotes(line: str, quotes: str | None) -> str | None:
    """Return the quotes of the string that is open after a line, if it continues."""
    for mark in _QUOTES.findall(line):
        if quotes is None:
            quotes = mark
        elif quotes == mark:
            quotes = None
    return quotes
