"""Detects commands that only format the output of others, and are not separate actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.commands.operands import awk_file, sed_file

_ALWAYS: Final = frozenset("wc tr cut sort uniq tee column yes printf".split())
_COUNTED: Final = frozenset("-n -c".split())


def is_filter(command: Sequence[str]) -> bool:
    """Whether a command formats the output of others instead of reading a file."""
    name, *args = command
    match name:
        case "xargs":
            return not _edits(args)
        case "awk":
            return awk_file(args) is None
        case "sed":
            return sed_file(args) is None
        case "head" | "tail":
            return _has_no_file(args)
        case _:
            return name in _ALWAYS


def _has_no_file(args: Sequence[str]) -> bool:
    if not args or (len(args) == 1 and args[0].startswith("-")):
        return True
    return len(args) == 2 and args[0] in _COUNTED and args[1].lstrip("+").isdecimal()


def _edits(args: Sequence[str]) -> bool:
    """Whether xargs starts a program that changes files in place."""
    for at, arg in enumerate(args):
        rest = args[at + 1 :]
        if arg in {"perl", "ruby"}:
            return any(_is_in_place(word) for word in rest)
        if arg == "sed":
            return any(word.startswith(("-i", "--in-place")) for word in rest)
        if arg == "rg":
            return "--replace" in rest
    return False


def _is_in_place(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and "i" in word
