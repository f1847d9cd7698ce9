"""Reads `config.toml` and command-line overrides; `config.edit` writes the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from treadle.protocol.base import JsonValue
from treadle.support.files.descriptors import is_shortage
from treadle.support.files.reading import read_whole

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""Maximum size of a configuration file, which is parsed while a request waits."""
MAX_KEY_PARTS: Final = 32
"""Maximum number of names in a dotted key of a file: the parser takes quadratic time for them."""
MAX_SETTINGS: Final = 2000
"""Maximum number of settings, tables and list elements in one request."""
MAX_DEPTH: Final = 64
"""Maximum number of names in a dotted key: tables are merged recursively."""

# What begins a string or a comment, continues a key, or ends one.
_MARK: Final = re.compile(r"""\"{3}|'{3}|["'#.,=\[\]{}\n]""")
# What ends a string of each kind, after escapes. A long one may end with two more quotes.
_ENDS: Final = {
    '"': re.compile(r'\\.|["\n]'),
    "'": re.compile(r"['\n]"),
    '"""': re.compile(r'(?s:\\.)|"{3,5}'),
    "'''": re.compile(r"'{3,5}"),
    "#": re.compile(r"\n"),
}


class ConfigError(Exception):
    """The configuration cannot be used; the message names the place and what was expected there."""

    def __init__(self, message: str, *, key: str | None = None, file: Path | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.file = file


class Overrides(NamedTuple):
    """Values set on the command line, by dotted key."""

    values: Mapping[str, JsonValue]

    @classmethod
    def parse(
        cls, assignments: Iterable[str], *, enable: Iterable[str] = (), disable: Iterable[str] = ()
    ) -> Overrides:
        """Read `key=value` pairs; a value that is not TOML is a plain string.

        Raises:
            ConfigError: there is no `=`, or no key before it.
        """
        values: dict[str, JsonValue] = {}
        for assignment in assignments:
            key, equals, text = assignment.partition("=")
            if not equals or not key.strip():
                message = f"invalid override {assignment!r}: expected key=value"
                raise ConfigError(message)
            values[key.strip()] = _parse_value(text.strip())
        values |= {f"features.{name}": True for name in enable}
        values |= {f"features.{name}": False for name in disable}
        return cls(values)


def _parse_value(text: str) -> JsonValue:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip("\"'")


def read_toml(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, JsonValue]:
    """Read one file of at most `limit` bytes; a missing file is an empty table.

    Raises:
        ConfigError: the file cannot be read or is not TOML.
        OSError: the process is out of file descriptors.
    """
    try:
        text = read_whole(path, limit).decode()
        if (fault := fault_of_keys(text)) is not None:
            raise ConfigError(f"failed to load {path}: {fault}", file=path)
        return tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    # ValueError: also a number with too many digits. RecursionError: too many nested values.
    except (OSError, ValueError, RecursionError) as error:
        if is_shortage(error):
            raise
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        message = f"failed to load {path}: {reason}"
        raise ConfigError(message, file=path) from error


def fault_of_keys(text: str) -> str | None:
    """Return why a text is not parsed, if one of its keys has too many parts."""
    if (parts := longest_key(text)) <= MAX_KEY_PARTS:
        return None
    return f"a key has {parts} parts: expected at most {MAX_KEY_PARTS}"


def longest_key(text: str) -> int:
    """Return an upper limit of the number of parts of each key in a TOML text, in linear time."""
    if all(line.count(".") < MAX_KEY_PARTS for line in text.split("\n")):
        return MAX_KEY_PARTS
    longest, dots, at = 0, 0, 0
    while (found := _MARK.search(text, at)) is not None:
        mark, at = found[0], found.end()
        if mark in _ENDS:
            ends = (end for end in _ENDS[mark].finditer(text, at) if not end[0].startswith("\\"))
            end = next(ends, None)
            at = len(text) if end is None else end.end()
            is_cut = mark in ('"', "'", "#") and end is not None and end[0] == "\n"
            dots = 0 if is_cut else dots
        else:
            dots = dots + 1 if mark == "." else 0
            longest = max(longest, dots)
    return longest + 1


def nest(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Build a nested table from values keyed by dotted key.

    Raises:
        ConfigError: there are too many values, or a key has too many parts.
    """
    if count_values(values) > MAX_SETTINGS:
        raise ConfigError(f"too many settings: expected at most {MAX_SETTINGS}")
    table: dict[str, JsonValue] = {}
    for key, value in values.items():
        path = key.split(".")
        if len(path) > MAX_DEPTH:
            message = f"`{key[:60]}...` has {len(path)} parts: expected at most {MAX_DEPTH}"
            raise ConfigError(message, key=key[:60])
        _set(table, path, value)
    return table


def count_values(value: JsonValue | Mapping[str, JsonValue]) -> int:
    """Count the settings, tables and elements of lists in a value, and the value itself."""
    if not isinstance(value, Mapping | list):
        return 1
    parts = value.values() if isinstance(value, Mapping) else value
    return 1 + sum(map(count_values, parts))


def load_config(
    home: Path, overrides: Overrides, *, is_strict: bool = False
) -> dict[str, JsonValue]:
    """Read `config.toml` and apply the overrides.

    Raises:
        ConfigError: the file is not TOML or, when strict, has an unknown key.
    """
    path = home / "config.toml"
    config = read_toml(path)
    if is_strict:
        _refuse_unknown(config, path)
    for key, value in overrides.values.items():
        _set(config, key.split("."), value)
    return config


def _refuse_unknown(config: Mapping[str, JsonValue], path: Path) -> None:
    from treadle.config.settings import unknown_keys

    if unknown := unknown_keys(config):
        names = ", ".join(f"`{name}`" for name in unknown)
        message = f"unknown configuration field {names} in {path}"
        raise ConfigError(message, key=unknown[0], file=path)


def _set(table: dict[str, JsonValue], path: list[str], value: JsonValue) -> None:
    for name in path[:-1]:
        inner = table.get(name)
        table[name] = dict(inner) if isinstance(inner, dict) else {}
        table = table[name]
    table[path[-1]] = value
