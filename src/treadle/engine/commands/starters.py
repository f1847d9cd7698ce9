"""Programs that start others: which words of theirs are programs, and which are scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final

from treadle.engine.commands.unclear import CommandTooComplex, Glob, Unclear
from treadle.shell.scripts import program_name


def name_of(command: Sequence[str]) -> str:
    """The name of a command's program, without its folder."""
    return program_name(command[0]) if command else ""


def passed_on(command: Sequence[str], wanted: AbstractSet[str]) -> Iterator[list[str]]:
    """What a program that starts others may start: its options are not known, so any tail."""
    if name_of(command) not in STARTERS and command[0] not in _MODIFIERS:
        return
    starts = [at for at, word in enumerate(command) if at and program_name(word) in wanted]
    unclear = _operand(command)
    if unclear is not None and isinstance(command[unclear], Unclear):
        starts.append(unclear)
    for at in starts[:_MAX_TAILS]:
        yield list(command[at : at + _MAX_TAIL])
    if len(starts) > _MAX_TAILS:
        raise CommandTooComplex


def scripts_in(command: Sequence[str]) -> Iterator[str]:
    """The texts among the words of a command that it runs as scripts, or may run."""
    name = name_of(command)
    if name == "eval":
        yield " ".join(command[1:])
    elif name in SHELLS:
        yield from dict.fromkeys(_handed_over(command))
    elif name in _STRING_STARTERS:
        starts = [at for at, word in enumerate(command) if at and _STRING.search(word)]
        if name == "env":
            starts = [at for at in starts if not _ASSIGNMENT.match(command[at])]
        if len(starts) > _MAX_TAILS:
            raise CommandTooComplex
        for at in starts:
            text = _OPTION.sub("", command[at], count=1)
            # `env -S` takes this for a blank.
            yield " ".join([text, *command[at + 1 : at + _MAX_TAIL]]).replace("\\_", " ")


def reads_input(command: Sequence[str]) -> bool:
    """Does it run what it reads, rather than a file or a text among its words?"""
    name = name_of(command)
    if name in _SOURCING:
        return any(word in _INPUTS for word in command[1:2])
    if name not in SHELLS:
        return False
    at, flags = _after_options(command)
    if "c" in flags or not _ONLY_SAYS.isdisjoint(command):
        return False
    return "s" in flags or at >= len(command) or command[at] in _INPUTS


def _handed_over(command: Sequence[str]) -> Iterator[str]:
    at, flags = _after_options(command)
    if "c" in flags and at < len(command):
        yield command[at]
    for flag, script in pairwise(command[1:]):
        if flag.startswith("-") and not flag.startswith("--") and "c" in flag:
            yield script
            return


def _after_options(command: Sequence[str]) -> tuple[int, str]:
    """Where the operands of a shell begin, and the letters of the options before them."""
    at, flags = 1, ""
    while at < len(command):
        word = command[at]
        if word in {"-", "--"}:
            return at + 1, flags
        if word.startswith("--"):
            at += 2 if word in _WITH_FILE else 1
        elif len(word) > 1 and word[0] in "-+":
            flags += word[1:] if word[0] == "-" else ""
            at += 1 + word.count("o") + word.count("O")
        else:
            break
    return at, flags


def _operand(command: Sequence[str]) -> int | None:
    """Where the program is that a command starts, as far as that can be said of any of them."""
    if name_of(command) == "find":
        return next((at + 1 for at, word in enumerate(command[:-1]) if word in _FIND_STARTS), None)
    for at, word in enumerate(command[1:], start=1):
        if isinstance(word, Glob) or not _BEFORE_PROGRAM.match(word):
            return at
    return None


_MAX_TAILS: Final = 100
_MAX_TAIL: Final = 1000
SHELLS: Final = frozenset("ash bash dash fish ksh mksh rbash sh zsh".split())
# These take a command in one word, too.
_STRING_STARTERS: Final = frozenset(
    """
    env flock parallel runuser screen script sg ssh-agent su tmux trap watch xvfb-run systemd-run
    """.split()
)
STARTERS: Final = _STRING_STARTERS | frozenset(
    """
    sudo doas pkexec command builtin exec nohup nice ionice time timeout xargs find stdbuf setsid
    chroot unshare busybox toybox strace ltrace taskset chrt prlimit setpriv nsenter setarch
    linux32 linux64 fakeroot numactl valgrind perf bwrap firejail unbuffer rlwrap catchsegv
    dbus-run-session systemd-inhibit cgexec faketime coproc
    """.split()
)
# Words of zsh that stand before a command.
_MODIFIERS: Final = frozenset("noglob nocorrect repeat -".split())
_SOURCING: Final = frozenset({"source", "."})
_INPUTS: Final = frozenset(
    {"-", "<()", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/$$/fd/0"}
)
_ONLY_SAYS: Final = frozenset({"--version", "--help"})
_WITH_FILE: Final = frozenset({"--rcfile", "--init-file"})
_FIND_STARTS: Final = frozenset("-exec -execdir -ok -okdir".split())
_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_BEFORE_PROGRAM: Final = re.compile(rf"[-+]|{_ASSIGNMENT.pattern}|[0-9.]+[a-z]?$|0x[0-9a-f]+$")
_OPTION: Final = re.compile(r"^(?:--[\w-]+=|-\w*?[Sc])")
_STRING: Final = re.compile(rf"\s|\\_|{_OPTION.pattern}")
