"""Detects dangerous commands, which require approval under every policy that allows requests.

Unlike the list of safe commands, this detection may be wrong both ways. It searches scripts,
substitutions and the arguments of programs that start others. A command that is too complex to
search counts as dangerous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from treadle.engine.commands.every import every_command
from treadle.engine.commands.starters import name_of
from treadle.engine.commands.unclear import CommandTooComplex


def is_dangerous(argv: Sequence[str]) -> bool:
    """Whether a command forces a removal, discards work, changes the user or halts the machine."""
    return _is_dangerous(tuple(argv))


# A command is judged when it is requested, and again when a rule is proposed for it.
@lru_cache(maxsize=8)
def _is_dangerous(argv: tuple[str, ...]) -> bool:
    return _has_any(argv, _is_dangerous_alone)


def is_forced_removal(argv: Sequence[str]) -> bool:
    """Whether a command contains `rm -f`, the only danger for which the reference asks."""
    return _is_forced_removal(tuple(argv))


@lru_cache(maxsize=8)
def _is_forced_removal(argv: tuple[str, ...]) -> bool:
    return _has_any(argv, lambda command: name_of(command) == "rm" and _is_forced(command))


def _has_any(argv: Sequence[str], check: _Check) -> bool:
    try:
        return any(check(command) for command in every_command(argv, _INTERESTING))
    except CommandTooComplex:
        return True


def _is_dangerous_alone(command: Sequence[str]) -> bool:
    name = name_of(command)
    if name in _ALWAYS or name.startswith("mkfs."):
        return True
    check = _CHECKED.get(name)
    return check is not None and check(command)


def _flags(command: Sequence[str]) -> set[str]:
    """Short options as letters, and long options by name."""
    flags: set[str] = set()
    for arg in command[1:]:
        if arg.startswith("--"):
            flags.add(arg.partition("=")[0])
        elif arg.startswith("-"):
            flags.update(arg[1:])
    return flags


def _is_forced(command: Sequence[str]) -> bool:
    flags = _flags(command)
    return "f" in flags or any(len(flag) > 2 and "--force".startswith(flag) for flag in flags)


def _is_dangerous_git(command: Sequence[str]) -> bool:
    for at, word in enumerate(command[1:], start=1):
        check = _GIT.get(word)
        if check is not None:
            return check(command[at:])
    return False


_Check = Callable[[Sequence[str]], bool]

_ALWAYS: Final = frozenset(
    "sudo doas su pkexec mkfs shred wipefs shutdown reboot halt poweroff".split()
)

_GIT: Final[Mapping[str, _Check]] = {
    "branch": lambda rest: "D" in _flags(rest),
    "checkout": lambda rest: _is_forced(rest) or "--" in rest,
    "clean": _is_forced,
    "push": lambda rest: _is_forced(rest) or bool(_flags(rest) & {"--mirror", "--delete"}),
    "reset": lambda rest: "--hard" in rest,
    "stash": lambda rest: bool({"drop", "clear"} & set(rest[1:2])),
}

_CHECKED: Final[Mapping[str, _Check]] = {
    "dd": lambda command: any(arg.startswith("of=") for arg in command),
    "find": lambda command: "-delete" in command,
    "git": _is_dangerous_git,
    "rm": _is_forced,
}

_INTERESTING: Final = _ALWAYS | _CHECKED.keys()
