"""Commands that destroy or take over: somebody is asked about them whatever the policy.

Unlike the list of safe commands this one may err on both sides, so it looks everywhere: into
scripts, substitutions, and behind programs that start others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice, pairwise
from pathlib import PurePosixPath
from typing import Final

from treadle.shell.syntax import parse


def is_dangerous(argv: Sequence[str]) -> bool:
    """Would the command delete by force, throw work away, become another user, or halt?"""
    return any(_is_dangerous_alone(command) for command in every_command(argv))


def is_forced_removal(argv: Sequence[str]) -> bool:
    """Is there an `rm -f` in it? The reference asks about these, and about no other danger."""
    return any(_name(command) == "rm" and _is_forced(command) for command in every_command(argv))


def every_command(
    argv: Sequence[str], names: AbstractSet[str] = frozenset()
) -> Iterator[list[str]]:
    """All commands that a command may start: itself, those of its scripts, those it passes on.

    `names` are programs that the caller looks for, besides the dangerous ones.
    """
    wanted = _INTERESTING | names
    seen: set[str] = set()
    budget = _MAX_TEXT
    pending = [list(argv)]
    while pending:
        command = pending.pop()
        if not command:
            continue
        yield command
        tails = list(_passed_on(command, wanted)) if _name(command) in _STARTERS else []
        yield from tails
        for each in (command, *tails):
            script = _script_in(each)
            # Each script is read once: one that repeats itself could keep us busy for ever.
            if script is not None and script not in seen and budget >= 0:
                seen.add(script)
                budget -= len(script)
                pending.extend(_of_script(script, wanted))


def _passed_on(command: list[str], wanted: AbstractSet[str]) -> Iterator[list[str]]:
    """What a program that starts others may start: its options are not known, so any tail."""
    starts = (at for at in range(1, len(command)) if _name(command[at : at + 1]) in wanted)
    for at in islice(starts, _MAX_TAILS):
        yield command[at : at + _MAX_TAIL]


def _script_in(command: list[str]) -> str | None:
    name = _name(command)
    if name == "eval":
        return " ".join(command[1:])
    if name not in _SHELLS:
        return None
    for flag, script in pairwise(command[1:]):
        if flag.startswith("-") and not flag.startswith("--") and "c" in flag:
            return script
    return None


def _of_script(script: str, wanted: AbstractSet[str]) -> Iterator[list[str]]:
    parsed = parse(script)
    if parsed is not None:
        yield from ([word.text for word in each.words] for each in parsed.commands)
        return
    # Not understood: every word may be the name of a command, and runs to the end of its line.
    for line in re.split(r"[\n;&|()`{}]", script):
        words = ["", *re.split(r"[\s'\"<>$\\]+", line)]
        yield from _passed_on(words, wanted)


def _is_dangerous_alone(command: Sequence[str]) -> bool:
    name = _name(command)
    if name in _ALWAYS or name.startswith("mkfs."):
        return True
    check = _CHECKED.get(name)
    return check is not None and check(command)


def _name(command: Sequence[str]) -> str:
    return PurePosixPath(command[0]).name if command else ""


def _flags(command: Sequence[str]) -> set[str]:
    """Short options, one letter each, and long ones by name."""
    found: set[str] = set()
    for arg in command[1:]:
        if arg.startswith("--"):
            found.add(arg.partition("=")[0])
        elif arg.startswith("-"):
            found.update(arg[1:])
    return found


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

_MAX_TEXT: Final = 1_000_000
_MAX_TAILS: Final = 100
_MAX_TAIL: Final = 1000
_SHELLS: Final = frozenset("bash sh zsh dash ksh".split())
_ALWAYS: Final = frozenset(
    "sudo doas su pkexec mkfs shred wipefs shutdown reboot halt poweroff".split()
)
_STARTERS: Final = frozenset(
    """
    sudo doas pkexec env command builtin exec nohup nice ionice time timeout xargs find stdbuf
    setsid chroot unshare busybox parallel watch
    """.split()
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

_INTERESTING: Final = _ALWAYS | _STARTERS | _SHELLS | _CHECKED.keys() | {"eval"}
