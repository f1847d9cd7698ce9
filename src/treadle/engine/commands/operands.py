"""Which words of a command are the files that it works on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SED_RANGE: Final = re.compile(r"\d+(,\d+)?p")
_SED_VALUED: Final = frozenset("-e --expression -f --file".split())
_AWK_VALUED: Final = frozenset("-F -v -f --field-separator --assign --file".split())
_AWK_SCRIPT: Final = frozenset("-f --file".split())
# Folders that say little about what is in them.
_DULL: Final = frozenset("build dist node_modules src".split())


def without_values(args: Sequence[str], valued: frozenset[str]) -> list[str]:
    """The words without those that are values of the options named; `--` goes, too."""
    kept: list[str] = []
    is_value = False
    for at, arg in enumerate(args):
        if is_value:
            is_value = False
        elif arg == "--":
            kept.extend(args[at + 1 :])
            break
        elif arg in valued:
            is_value = True
        else:
            kept.append(arg)
    return kept


def operands(args: Sequence[str], valued: frozenset[str]) -> list[str]:
    """The words that are neither options nor their values; after `--` all of them."""
    at = list(args).index("--") if "--" in args else len(args)
    before = without_values(args[:at], valued)
    return [*(arg for arg in before if not arg.startswith("-")), *args[at + 1 :]]


def first_operand(args: Sequence[str], valued: frozenset[str]) -> str | None:
    """The first operand, if there is one."""
    return next(iter(operands(args, valued)), None)


def single_operand(args: Sequence[str], valued: frozenset[str]) -> str | None:
    """The operand, if there is exactly one."""
    found = operands(args, valued)
    return found[0] if len(found) == 1 else None


def sed_file(args: Sequence[str]) -> str | None:
    """The file of which `sed -n` prints a range of lines."""
    if "-n" not in args:
        return None
    scripts = [args[at + 1] for at, arg in enumerate(args[:-1]) if arg in _SED_VALUED]
    found = operands(args, _SED_VALUED)
    if not scripts:
        scripts, found = found[:1], found[1:]
    if not any(_SED_RANGE.fullmatch(script) for script in scripts):
        return None
    return found[0] if found else None


def awk_file(args: Sequence[str]) -> str | None:
    """The first file that an awk script is applied to."""
    found = operands(args, _AWK_VALUED)
    if not any(arg in _AWK_SCRIPT for arg in args):
        found = found[1:]
    return found[0] if found else None


def is_path_like(text: str) -> bool:
    """Is it more likely a path than something to search for?"""
    return text in {".", ".."} or "/" in text or "\\" in text


def short_path(path: str) -> str:
    """The last part of a path that says something."""
    trimmed = path.replace("\\", "/").rstrip("/")
    telling = [part for part in trimmed.split("/") if part and part not in _DULL]
    return telling[-1] if telling else trimmed
