"""Finds the operands of a command, such as the files that it reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SED_RANGE: Final = re.compile(r"\d+(,\d+)?p")
_SED_VALUED: Final = frozenset("-e --expression -f --file".split())
_AWK_VALUED: Final = frozenset("-F -v -f --field-separator --assign --file".split())
_AWK_SCRIPT: Final = frozenset("-f --file".split())
# Folder names that say little about their contents.
_GENERIC: Final = frozenset("build dist node_modules src".split())


def without_values(args: Sequence[str], valued: frozenset[str]) -> list[str]:
    """The words without the values of these options, and without `--`."""
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
    """The words that are neither options nor their values, and all words after `--`."""
    at = list(args).index("--") if "--" in args else len(args)
    before = without_values(args[:at], valued)
    return [*(arg for arg in before if not arg.startswith("-")), *args[at + 1 :]]


def first_operand(args: Sequence[str], valued: frozenset[str]) -> str | None:
    """The first operand, if there is one."""
    return next(iter(operands(args, valued)), None)


def single_operand(args: Sequence[str], valued: frozenset[str]) -> str | None:
    """The operand, if there is exactly one."""
    words = operands(args, valued)
    return words[0] if len(words) == 1 else None


def sed_file(args: Sequence[str]) -> str | None:
    """The file from which `sed -n` prints a range of lines."""
    if "-n" not in args:
        return None
    scripts = [args[at + 1] for at, arg in enumerate(args[:-1]) if arg in _SED_VALUED]
    files = operands(args, _SED_VALUED)
    if not scripts:
        scripts, files = files[:1], files[1:]
    if not any(_SED_RANGE.fullmatch(script) for script in scripts):
        return None
    return files[0] if files else None


def awk_file(args: Sequence[str]) -> str | None:
    """The first file that an awk script is applied to."""
    files = operands(args, _AWK_VALUED)
    if not any(arg in _AWK_SCRIPT for arg in args):
        files = files[1:]
    return files[0] if files else None


def is_path_like(text: str) -> bool:
    """Whether a text is more likely a path than a search pattern."""
    return text in {".", ".."} or "/" in text or "\\" in text


def short_path(path: str) -> str:
    """The last specific part of a path."""
    trimmed = path.replace("\\", "/").rstrip("/")
    parts = [part for part in trimmed.split("/") if part and part not in _GENERIC]
    return parts[-1] if parts else trimmed
