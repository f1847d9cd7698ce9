"""Finds patches in shell commands: a script that only applies a patch needs no shell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from treadle.engine.patch.syntax import BEGIN, END

_NAMES: Final = frozenset({"apply_patch", "applypatch"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_FLAGS: Final = frozenset({"-c", "-lc"})
_CALL: Final = re.compile(
    r"""\s*
    (?:cd\s+(?P<folder>'[^'\n]+'|"[^"$`\\\n]+"|[^\s'"$`\\;&|<>(){}*?\[\]~\#!]+)\s*&&\s*)?
    (?:apply_patch|applypatch)\s*
    (?:
        <<(?P<dash>-?)[ \t]*(?P<quote>['"]?)(?P<tag>\w+)(?P=quote)[ \t]*\n(?P<body>.*)
        |'(?P<argument>[^']+)'\s*
    )""",
    re.VERBOSE | re.DOTALL,
)


class HeredocPatch(Struct, frozen=True):
    """A patch, and the folder that the command changes to first, if any."""

    text: str
    folder: str | None = None


def find_patch(argv: Sequence[str]) -> HeredocPatch | None:
    """The patch that a command applies, if it does nothing else."""
    match argv:
        case [name, text] if name in _NAMES:
            return HeredocPatch(text)
        case [shell, flag, script] if _is_shell(shell) and flag in _FLAGS:
            return _in_script(script)
        case [shell, "-l", "-c", script] if _is_shell(shell):
            return _in_script(script)
        case _:
            return None


def _is_shell(path: str) -> bool:
    return path.rpartition("/")[2] in _SHELLS


def _in_script(script: str) -> HeredocPatch | None:
    bare = script.strip()
    if bare.startswith(f"{BEGIN}\n") and bare.endswith(f"\n{END}"):
        # The command is missing, but the script can only be a patch.
        return HeredocPatch(script)
    call = _CALL.fullmatch(script)
    if call is None:
        return None
    folder = call["folder"]
    if folder is not None and folder[0] in "'\"":
        folder = folder[1:-1]
    if call["argument"] is not None:
        return HeredocPatch(call["argument"], folder)
    text = _document(call["body"], call["tag"], is_dashed=bool(call["dash"]))
    return None if text is None else HeredocPatch(text, folder)


def _document(body: str, tag: str, *, is_dashed: bool) -> str | None:
    """The lines of the here-document; `None` if there are commands after it."""
    lines = body.split("\n")
    if is_dashed:
        lines = [line.lstrip("\t") for line in lines]
    if tag not in lines:
        return None
    end = lines.index(tag)
    return None if any(line.strip() for line in lines[end + 1 :]) else "\n".join(lines[:end])
