"""Files that git ignores: the patterns of a `.gitignore` or `.ignore` file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from treadle.support.concurrency.threads import give_way

MAX_BYTES: Final = 128 * 1024
"""Maximum size of a file of patterns; a larger one has no effect."""

MAX_PATTERNS: Final = 2000
"""Maximum number of patterns of a file that have an effect."""

MAX_CHARACTERS: Final = 512
"""Maximum length of a pattern; a longer one has no effect."""

# No other thread runs during a comparison, which takes up to ten nanoseconds for each character of
# the patterns and of the path: some milliseconds for patterns together, or for one and a long path.
_TOGETHER: Final = 2048
_LONG_PATH: Final = 256

_CLASS: Final = re.compile(r"\[([!^]?)(\]?(?:\\.|[^\]\\])*)\]")


class IgnoreRule(NamedTuple):
    """One pattern."""

    matches: re.Pattern[str]
    includes: bool
    """A path that matches is not ignored, whatever an earlier pattern says."""
    folders_only: bool
    is_name: bool
    """Compared with the last name of a path, instead of all of it."""
    size: int
    """The length of the pattern."""


class IgnoreRules:
    """The patterns of one file, for the paths below its folder."""

    def __init__(self, text: str) -> None:
        lines = islice(text.removeprefix("\ufeff").splitlines(), MAX_PATTERNS)
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]
        self._names = _together([rule for rule in self._rules if rule.is_name])
        self._paths = _together([rule for rule in self._rules if not rule.is_name])
        self.size = sum(rule.size for rule in self._rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def judge(self, path: str, name: str, *, is_folder: bool) -> bool | None:
        """Return whether a path is ignored; None if no pattern matches it."""
        if len(path) <= _LONG_PATH and not (
            _matches(self._names, name) or _matches(self._paths, path)
        ):
            return None
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            give_way()
            if rule.matches.match(name if rule.is_name else path):
                return not rule.includes
        return None


def _together(rules: Sequence[IgnoreRule]) -> list[re.Pattern[str]]:
    """Return a few expressions that match what any of the rules matches."""
    groups: list[list[str]] = []
    room = 0
    for rule in rules:
        if rule.size > room:
            groups.append([])
            room = _TOGETHER
        groups[-1].append(f"(?:{rule.matches.pattern})")
        room -= rule.size
    return [re.compile("|".join(group), re.DOTALL) for group in groups]


def _matches(patterns: Sequence[re.Pattern[str]], text: str) -> bool:
    for pattern in patterns:
        if pattern.match(text):
            return True
        give_way()
    return False


def _rule(line: str) -> IgnoreRule | None:
    give_way()
    pattern = line.rstrip("\r")
    # Blanks at the end count only after a backslash.
    while pattern.endswith((" ", "\t")) and not pattern.endswith(("\\ ", "\\\t")):
        pattern = pattern[:-1]
    if not pattern or pattern.startswith("#"):
        return None
    includes = pattern.startswith("!")
    pattern = pattern.removeprefix("!") if includes else pattern
    folders_only = pattern.endswith("/")
    pattern = pattern.rstrip("/") if folders_only else pattern
    is_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    if not 0 < len(pattern) <= MAX_CHARACTERS:
        return None
    try:
        matches = re.compile(_regex(pattern.split("/")), re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(matches, includes, folders_only, is_name, len(pattern))


def _regex(names: list[str]) -> str:
    """Return a regular expression for a path, whose time does not grow with the stars squared.

    After a star, the first place where the text up to the next star matches is as good as any
    later one. An atomic group says so.
    """
    groups = [""]
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        if name == "**":
            if is_last:
                groups[-1] += "[^/].*+" if index else ".*+"
            else:
                groups.append("")
            continue
        groups[-1] += _name_regex(name) + ("" if is_last else "/")
    first, *middle = groups
    if not middle:
        return f"{first}\\Z"
    *middle, last = middle
    folders = "(?:[^/]*+/)*?"
    return first + "".join(f"(?>{folders}{group})" for group in middle) + f"{folders}{last}\\Z"


def _name_regex(name: str) -> str:
    parts = [""]
    position = 0
    while position < len(name):
        character = name[position]
        group = _CLASS.match(name, position) if character == "[" else None
        if group is not None:
            negation, content = group.groups()
            escaped = re.sub(r"\\(.)|([\[&~|^])", _escape, content)
            escaped = f"\\{escaped}" if escaped.startswith("]") else escaped
            parts[-1] += f"(?!/)[{'^' if negation else ''}{escaped}]"
            position = group.end()
            continue
        position += 1
        if character == "*":
            if parts[-1] or len(parts) == 1:
                parts.append("")
        elif character == "?":
            parts[-1] += "[^/]"
        else:
            if character == "\\" and position < len(name):
                character = name[position]
                position += 1
            parts[-1] += re.escape(character)
    first, *rest = parts
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{part})" for part in middle) + f"[^/]*{last}"


def _escape(match: re.Match[str]) -> str:
    return re.escape(match[1] or match[2])
