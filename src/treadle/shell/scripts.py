"""Scripts that are handed to a shell, as argument vectors and as text for people."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from treadle.shell.syntax import parse

_SHELLS: Final = frozenset("bash sh zsh".split())
_FLAGS: Final = frozenset("-l --login --norc --noprofile".split())
_SCRIPT_FLAGS: Final = frozenset("-c -lc -cl".split())


def program_name(path: str) -> str:
    """The last part of a program's path."""
    return path.rstrip("/").rpartition("/")[2]


def script_of(argv: Sequence[str]) -> str | None:
    """The script of `bash -lc SCRIPT` and its like; None for every other command."""
    if len(argv) < 3 or program_name(argv[0]) not in _SHELLS:
        return None
    *flags, before, script = argv[1:]
    if before not in _SCRIPT_FLAGS or not _FLAGS.issuperset(flags):
        return None
    return script


def plain_commands(script: str) -> list[list[str]] | None:
    """The argument vectors of a script that is only plain words joined by `|`, `&&`, `||`, `;`."""
    parsed = parse(script)
    if parsed is None or not parsed.is_plain or not parsed.commands:
        return None
    return [[word.text for word in command.words] for command in parsed.commands]


def commands_of(argv: Sequence[str]) -> list[list[str]]:
    """The plain commands that a command consists of; the command itself if it is not a script."""
    script = script_of(argv)
    plain = plain_commands(script) if script is not None else None
    return plain if plain is not None else [list(argv)]


def display(argv: Sequence[str]) -> str:
    """The command as a line for a shell, quoted as the reference quotes it."""
    return _display(tuple(argv))


# One command is shown by several functions: as an item, in a request, in the journal.
@lru_cache(maxsize=8)
def _display(argv: tuple[str, ...]) -> str:
    return " ".join(map(_quote, argv))


# The longest run from one place that each way of quoting can hold.
_BARE_RUN: Final = re.compile(r"[]+\-./:@_0-9A-Za-z]*")
_SINGLE_RUN: Final = re.compile(r"[^'\\^]*")
_DOUBLE_RUN: Final = re.compile(r"[^`$!^]*")
_ENDS_SINGLE: Final = "'\\^"
_MAX_ENDS: Final = 1000
_ESCAPES: Final = str.maketrans({'"': '\\"', "\\": "\\\\"})


def _quote(word: str) -> str:
    if not word:
        return "''"
    if sum(map(word.count, _ENDS_SINGLE)) > _MAX_ENDS:
        # Each of these characters may begin a run. Any quoting will do for so many.
        return shlex.quote(word)
    parts: list[str] = []
    start = 0
    while start < len(word):
        end, part = _quote_run(word, start)
        parts.append(part)
        start = end
    return "".join(parts)


def _quote_run(text: str, start: int) -> tuple[int, str]:
    """Quote the longest run that one way of quoting can hold; give where it ends, too."""
    # Some shells treat a caret in their own way, unless single quotes begin with it.
    if text[start] == "^":
        end = _end(_SINGLE_RUN, text, start + 1)
        return end, f"'{text[start:end]}'"
    single, double = _end(_SINGLE_RUN, text, start), _end(_DOUBLE_RUN, text, start)
    end = max(single, double)
    run = text[start:end]
    if _end(_BARE_RUN, text, start) == end:
        return end, run
    if single == end:
        return end, f"'{run}'"
    return end, f'"{run.translate(_ESCAPES)}"'


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
