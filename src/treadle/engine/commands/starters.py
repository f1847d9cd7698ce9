"""Programs that start others: which of their arguments are programs, and which are scripts."""

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


def without_options(command: Sequence[str]) -> Sequence[str]:
    """A git command without the options before its sub-command; empty for other commands."""
    if name_of(command) != "git":
        return ()
    at = 1
    while at < len(command) and command[at].startswith("-"):
        at += 2 if command[at] in _GIT_VALUED else 1
    return [command[0], *command[at:]] if at > 1 else ()


def started_by(command: Sequence[str], targets: AbstractSet[str]) -> Iterator[list[str]]:
    """The commands that a program may start: its options are not known, so every tail."""
    if not _is_starter(command):
        return
    command = _with_input(command)
    starts = [at for at, word in enumerate(command) if at and program_name(word) in targets]
    unclear = _operand(command)
    if unclear is not None and isinstance(command[unclear], Unclear):
        starts.append(unclear)
    for at in starts[:_MAX_TAILS]:
        tail = list(command[at : at + _MAX_TAIL])
        if name_of(command) in _APPENDING and not reads_input(tail):
            tail.append(_READ)
            operand = _operand(tail)
            # What is read may be the program that the tail starts.
            if operand == len(tail) - 1 and _is_starter(tail):
                yield [_READ]
        yield tail
    if len(starts) > _MAX_TAILS:
        raise CommandTooComplex


def _with_input(command: Sequence[str]) -> Sequence[str]:
    """The command with what it reads or finds marked as not known, where it puts that in words."""
    name = name_of(command)
    if name == "parallel":
        return [_filled(word, _BRACED.sub("$@", word)) for word in command]
    if name not in {"find", "xargs"}:
        return command
    mark, words = "{}", list(command)
    for at, word in enumerate(words[:_MAX_TAIL] if name == "xargs" else ()):
        if word in {"-I", "-J"} and at + 1 < len(words):
            mark = words[at + 1]
            del words[at : at + 2]
            break
        if match := _REPLACED.match(word):
            mark = match[1]
            break
    return [_filled(word, word.replace(mark, "$@")) if mark else word for word in words]


def _filled(word: str, filled: str) -> str:
    return word if filled == word else Unclear(filled)


def _is_starter(command: Sequence[str]) -> bool:
    name = name_of(command)
    if name in _RUNNERS:  # which also do other things
        return not _RUNS.isdisjoint(command[1:_MAX_TAIL])
    return name in STARTERS or command[0] in _MODIFIERS or _LOADER.match(name) is not None


def scripts_in(command: Sequence[str]) -> Iterator[str]:
    """The arguments of a command that it runs, or may run, as scripts."""
    name = name_of(command)
    if name == "eval":
        yield " ".join(command[1:])
    elif name in SHELLS:
        yield from dict.fromkeys(_shell_scripts(command))
    elif name == "alias":
        yield from (word.partition("=")[2] for word in command[1:_MAX_TAIL])
    elif name in _EVALUATING:
        # Only substitutions run.
        yield from (f": {word}" for word in command[1:_MAX_TAIL] if _SUBSCRIPT.search(word))
    elif name in _STRING_STARTERS:
        starts = [at for at, word in enumerate(command) if at and _STRING.search(word)]
        if name == "env":
            starts = [at for at in starts if not _ASSIGNMENT.match(command[at])]
        if len(starts) > _MAX_TAILS:
            raise CommandTooComplex
        for at in starts:
            text = _OPTION.sub("", command[at], count=1)
            words = [text, *command[at + 1 : at + _MAX_TAIL]]
            # `env -S` reads `\_` as a blank, and ignores everything after a `\c`.
            yield " ".join(words).replace("\\_", " ")
            yield " ".join(word.partition("\\c")[0] for word in words).replace("\\_", " ")


def reads_input(command: Sequence[str]) -> bool:
    """Whether a command runs its input instead of a file or an argument."""
    name = name_of(command)
    if name in _SOURCING:
        return any(map(_INPUT.fullmatch, command[1:2]))
    if name not in SHELLS:
        return False
    at, flags = _after_options(command)
    if "c" in flags or not _ONLY_SAYS.isdisjoint(command):
        return False
    return "s" in flags or at >= len(command) or bool(_INPUT.fullmatch(command[at]))


def gives_names(command: Sequence[str]) -> bool:
    """Whether a command defines another name by which later commands may start a program."""
    name = name_of(command)
    if name == "hash":  # in zsh it takes assignments
        return any(word.startswith("-p") or "=" in word for word in command[1:])
    return name == "alias" and any("=" in word for word in command[1:])


def _shell_scripts(command: Sequence[str]) -> Iterator[str]:
    at, flags = _after_options(command)
    if "c" in flags and at < len(command):
        yield command[at]
    for flag, script in pairwise(command[1:]):
        if flag.startswith("-") and not flag.startswith("--") and "c" in flag:
            yield script
            return


def _after_options(command: Sequence[str]) -> tuple[int, str]:
    """The index of a shell's first operand, and the letters of the options before it."""
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
    """The likely index of the program that a command starts."""
    if name_of(command) == "find":
        return next((at + 1 for at, word in enumerate(command[:-1]) if word in _FIND_STARTS), None)
    for at, word in enumerate(command[1:], start=1):
        if isinstance(word, Glob) or not _BEFORE_PROGRAM.match(word):
            return at
    return None


_GIT_VALUED: Final = frozenset(
    """
    -C -c --attr-source --config-env --git-dir --namespace --super-prefix --work-tree
    """.split()
)
_MAX_TAILS: Final = 100
_MAX_TAIL: Final = 1000
SHELLS: Final = frozenset(
    """
    ash bash bash-static csh dash elvish fish hush ksh ksh93 lksh mksh nu oksh posh pwsh rbash rksh
    rzsh sh static-sh tcsh xonsh yash zsh zsh-static
    """.split()
)
# These also accept a command in one word.
_STRING_STARTERS: Final = frozenset(
    """
    env flock parallel runuser screen script sg ssh-agent su tmux trap watch xvfb-run systemd-run
    compgen complete entr hyperfine mapfile readarray watchexec
    """.split()
)
STARTERS: Final = _STRING_STARTERS | frozenset(
    """
    sudo doas pkexec command builtin exec nohup nice ionice time timeout xargs find stdbuf setsid
    chroot unshare busybox toybox strace ltrace taskset chrt prlimit setpriv nsenter setarch
    linux32 linux64 fakeroot numactl valgrind perf bwrap firejail unbuffer rlwrap catchsegv
    dbus-run-session systemd-inhibit cgexec faketime coproc choom uclampset coresched runcon capsh
    gosu su-exec run0 tini dumb-init eatmydata proxychains proxychains4 torsocks cpulimit chronic
    start-stop-daemon gdb lldb rr proot fakechroot npx bunx uvx
    """.split()
)
# These append their input to the arguments of a command.
_APPENDING: Final = frozenset({"parallel", "xargs"})
_BRACED: Final = re.compile(r"\{[^{}\s]{0,20}\}")
_REPLACED: Final = re.compile(r"(?:-[Ii]|--replace=)(.+)")
# Input is unknown, as a variable of the shell is.
_READ: Final = Unclear("$@")
# These start a program after some subcommands; after others the same names are packages.
_RUNNERS: Final = frozenset(
    "bundle conda direnv hatch mamba mise npm pdm pipenv pnpm poetry uv".split()
)
_RUNS: Final = frozenset({"exec", "run", "x"})
_LOADER: Final = re.compile(r"ld(?:-[\w.-]+)?\.so")
# Shell commands that evaluate subscripts and the substitutions in them.
_EVALUATING: Final = frozenset(
    "[ declare export getopts let local printf read readonly test typeset unset wait".split()
)
_SUBSCRIPT: Final = re.compile(r"\[(?:[^\[\]`$]|\$(?!\())*(?:\$\(|`)")
# Prefixes of commands in zsh.
_MODIFIERS: Final = frozenset("noglob nocorrect repeat -".split())
_SOURCING: Final = frozenset({"source", "."})
_INPUT: Final = re.compile(
    r"-|<\(\)|/dev/stdin|/dev/fd/\d+|/proc/(?:self|thread-self|\$\$|\d+)/fd/\d+"
)
_ONLY_SAYS: Final = frozenset({"--version", "--help"})
_WITH_FILE: Final = frozenset({"--rcfile", "--init-file"})
_FIND_STARTS: Final = frozenset("-exec -execdir -ok -okdir".split())
_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_BEFORE_PROGRAM: Final = re.compile(rf"[-+]|{_ASSIGNMENT.pattern}|[0-9.]+[a-z]?$|0x[0-9a-f]+$")
_OPTION: Final = re.compile(r"^(?:--[\w-]+=|-\w*?[Sc])")
_STRING: Final = re.compile(rf"\s|\\[_c]|{_OPTION.pattern}")
