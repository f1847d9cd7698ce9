"""Scripts that are handed to a shell, as argument vectors and as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from treadle.shell.syntax import parse

_SHELLS: Final = frozenset("bash sh zsh".split())
_FLAGS: Final = frozenset("-l --login --norc --noprofile".split())
_SCRIPT_FLAGS: Final = frozenset("-c -lc -cl".split())


def script_of(argv: Sequence[str]) -> str | None:
    """The script of `bash -lc SCRIPT` and its like; None for every other command."""
    if len(argv) < 3 or PurePosixPath(argv[0]).name not in _SHELLS:
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
    return " ".join(_quote(word) for word in argv)


_BARE: Final = frozenset("+-./:@]_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_NOT_SINGLE: Final = frozenset("'\\^")
_NOT_DOUBLE: Final = frozenset("`$!^")
_ALL_WAYS: Final = frozenset("bare single double".split())
_ONLY_SINGLE: Final = frozenset(["single"])
_ESCAPES: Final = str.maketrans({'"': '\\"', "\\": "\\\\"})


def _quote(word: str) -> str:
    if not word:
        return "''"
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
    starts_with_caret = text[start] == "^"
    ways = _ONLY_SINGLE if starts_with_caret else _ALL_WAYS
    end = start + 1 if starts_with_caret else start
    while end < len(text) and (left := ways - _unfit(text[end])):
        ways = left
        end += 1
    run = text[start:end]
    if "bare" in ways:
        return end, run
    if "single" in ways:
        return end, f"'{run}'"
    return end, f'"{run.translate(_ESCAPES)}"'


def _unfit(character: str) -> set[str]:
    unfit: set[str] = set()
    if character not in _BARE:
        unfit.add("bare")
    if character in _NOT_SINGLE:
        unfit.add("single")
    if character in _NOT_DOUBLE:
        unfit.add("double")
    return unfit
