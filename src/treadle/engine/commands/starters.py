"""Programs that start others: which of their arguments are programs, and which are scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise, takewhile
from posixpath import normpath
from typing import Final

from treadle.engine.commands.unclear import CommandTooComplex, Glob, Unclear
from treadle.shell.scripts import program_name


def name_of(command: Sequence[str]) -> str:
    """The name of a command's program without its folder, as file systems without case read it."""
    return program_name(command[0]).lower() if command else ""


def without_options(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """A git command without the options before its sub-command, in every way to read them.

    The word after an option that is not known may be its value.
    """
    if name_of(command) != "git":
        return
    at = 1
    while at < len(command) and command[at].startswith("-"):
        word = command[at]
        at += 2 if word in _GIT_VALUED else 1
        is_known = word in _GIT_VALUED or word in _GIT_FLAGS or "=" in word
        if not is_known and at < len(command) and not command[at].startswith("-"):
            yield [command[0], *command[at : at + _MAX_TAIL]]
            at += 1
    if at > 1:
        yield [command[0], *command[at:]]


def started_by(command: Sequence[str], targets: AbstractSet[str]) -> Iterator[list[str]]:
    """The commands that a program may start: its options are not known, so every tail."""
    filling = 0
    for tail in _tails_of(command, targets):
        yield tail
        # The tail may put input into words of the commands that it starts.
        if name_of(tail) in _FILLING:
            filling += 1
            if filling > _MAX_FILLING:
                raise CommandTooComplex
            yield from _tails_of(tail, targets)


def _tails_of(command: Sequence[str], targets: AbstractSet[str]) -> Iterator[list[str]]:
    if not _is_starter(command):
        return
    command = _with_input(command)
    starts = [at for at, word in enumerate(command) if at and name_of([word]) in targets]
    unclear = _operand(command)
    if unclear is not None and isinstance(command[unclear], Unclear):
        starts.append(unclear)
    for at in starts[:_MAX_TAILS]:
        tail = list(command[at : at + _MAX_TAIL])
        if name_of(command) == "parallel":
            tail = list(takewhile(lambda word: not _SOURCE.match(word), tail))
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
    words = list(command)
    marks = ["{}"]
    if name == "xargs":
        words, found = _without_marks(words)
        marks += found
    for mark in dict.fromkeys(marks):
        words = [_filled(word, word.replace(mark, "$@")) for word in words]
    return words


def _without_marks(words: list[str]) -> tuple[list[str], list[str]]:
    """An xargs command without `-I MARK`, and all marks: the words that input replaces."""
    kept = words[:1]
    marks: list[str] = []
    at = 1
    while at < len(words):
        word = words[at]
        is_option = len(marks) < _MAX_MARKS and word.startswith("-")
        if is_option and _MARKING.fullmatch(word) and at + 1 < len(words):
            marks.append(words[at + 1])
            at += 1
        else:
            if is_option and (match := _REPLACED.match(word)):
                marks.append(match[1])
            kept.append(word)
        at += 1
    return kept, [mark for mark in marks if mark]


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
        return any(map(_is_input, command[1:2]))
    if name in READERS_WITHOUT_PROGRAM:
        return _has_no_program(name, command)
    if name not in SHELLS:
        return False
    if any(word in _WITH_FILE and _is_input(file) for word, file in pairwise(command[:_MAX_TAIL])):
        return True
    at, flags = _after_options(command)
    if "c" in flags or not _ONLY_SAYS.isdisjoint(command):
        return False
    return "s" in flags or at >= len(command) or _is_input(command[at])


def _is_input(word: str) -> bool:
    """Whether a shell that reads this file reads its own input, or that of a process."""
    return _INPUT.fullmatch(normpath(word)) is not None


def _has_no_program(name: str, command: Sequence[str]) -> bool:
    """Whether a starter may have no program to start, so that it starts a shell or its input."""
    if name in _WITH_COMMAND:
        return not any(_COMMAND.match(word) for word in command[1:])
    if name in _WITH_SHELL:
        return any(_SHELL_OPTION.match(word) for word in command[1:])
    before, left = "", _OPERANDS.get(name, 0)
    for word in command[1:]:
        if name == "parallel" and _SOURCE.match(word):
            return True
        # The word after an option may be its value.
        is_value = before.startswith("-") and before != "--" and before not in _FLAGS
        if not is_value and not _BEFORE_PROGRAM.match(word):
            if left == 0 or (name in _SETARCH and not _ARCHITECTURE.fullmatch(word)):
                return False
            left -= 1
        before = word
    return True


def gives_names(command: Sequence[str]) -> bool:
    """Whether a command starts a program, or lets later commands do so, by another name."""
    name = name_of(command)
    if name in _REPEATING:  # a changed copy of an earlier command
        return not any(word.startswith("-") and "l" in word for word in command[1:])
    if name == "hash":  # in zsh it takes assignments
        return any(word.startswith("-p") or "=" in word for word in command[1:])
    return name == "alias" and any("=" in word for word in command[1:])


def _shell_scripts(command: Sequence[str]) -> Iterator[str]:
    at, flags = _after_options(command)
    if "c" in flags and at < len(command):
        yield command[at]
    for flag, script in pairwise(command[1:]):
        if flag.startswith(("-", "+")) and not flag.startswith("--") and "c" in flag:
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
            # bash and dash read `+c` like `-c`.
            flags += word[1:]
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
    -C -c --attr-source --config-env --git-dir --namespace --shallow-file --super-prefix
    --work-tree
    """.split()
)
_GIT_FLAGS: Final = frozenset(
    """
    -p -P -v -h --paginate --no-pager --bare --no-replace-objects --literal-pathspecs
    --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-optional-locks --no-lazy-fetch
    --no-advice --exec-path --html-path --man-path --info-path --version --help
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
    compgen complete emulate entr hyperfine mapfile readarray sched watchexec zpty
    """.split()
)
STARTERS: Final = _STRING_STARTERS | frozenset(
    """
    sudo doas pkexec command builtin exec nohup nice ionice time timeout xargs find stdbuf setsid
    chroot unshare busybox toybox strace ltrace taskset chrt prlimit setpriv nsenter setarch
    linux32 linux64 uname26 i386 x86_64 newgrp login
    fakeroot numactl valgrind perf bwrap firejail unbuffer rlwrap catchsegv
    dbus-run-session systemd-inhibit cgexec faketime coproc choom uclampset coresched runcon capsh
    gosu su-exec run0 tini dumb-init eatmydata proxychains proxychains4 torsocks cpulimit chronic
    start-stop-daemon gdb lldb rr proot fakechroot npx bunx uvx jobs
    """.split()
)
# These append their input to the arguments of a command.
_APPENDING: Final = frozenset({"parallel", "xargs"})
_BRACED: Final = re.compile(r"\{[^{}\s]{0,20}\}")
# These put input into words of a command.
_FILLING: Final = _APPENDING | {"find"}
_MAX_FILLING: Final = 10
_MARKING: Final = re.compile(r"-[0oprtx]*[IJ]")
_REPLACED: Final = re.compile(r"(?:-[0oprtx]*[IJi]|--r[a-z]*=)(.+)")
_MAX_MARKS: Final = 5
# Where the arguments of `parallel` come from.
_SOURCE: Final = re.compile(r":::")
_SETARCH: Final = frozenset({"setarch", "linux32", "linux64", "uname26", "i386", "x86_64"})
_ARCHITECTURE: Final = re.compile(
    r"(?:linux|uname|i\d86|x86|arm|aarch|ppc|s390|mips|ia64|alpha|sparc|parisc|risc|loong)\w*"
)
_WITH_COMMAND: Final = frozenset({"script", "su", "runuser", "newgrp", "sg", "login"})
_COMMAND: Final = re.compile(r"-[A-Za-z]*c|--c")
_WITH_SHELL: Final = frozenset({"sudo", "doas", "run0"})
_SHELL_OPTION: Final = re.compile(r"-[A-Za-z]*[si]|--shell|--login")
_OPERANDS: Final = {"chroot": 1, "proot": 0, **dict.fromkeys(_SETARCH, 1)}
READERS_WITHOUT_PROGRAM: Final = (
    _SETARCH
    | _WITH_COMMAND
    | _WITH_SHELL
    | {"unshare", "nsenter", "chroot", "fakeroot", "fakechroot", "firejail", "proot", "parallel"}
)
"""Starters that run a shell, or their input, if they get no program."""
# Options without a value of these.
_FLAGS: Final = frozenset(
    """
    -R -v -B -F -I -L -S -T -X -Z -3 -4 --uname-2.6 --addr-no-randomize -r -f -n -m -u -i -p -C
    --fork --map-root-user --net --mount --user --uts --ipc --pid --keep-order -k -q -t -0
    --dry-run --bar --eta --progress --verbose --will-cite --null --pipe --ungroup --line-buffer
    """.split()
)
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
    """
    [ break continue declare exit export float getopts integer let local printf read readonly
    repeat return shift test typeset unset wait
    """.split()
)
_SUBSCRIPT: Final = re.compile(r"\[(?:[^\[\]`$]|\$(?!\())*(?:\$\(|`)")
# Prefixes of commands in zsh, and in fish.
_MODIFIERS: Final = frozenset("noglob nocorrect repeat - and begin not or".split())
_REPEATING: Final = frozenset({"fc", "hist"})
_SOURCING: Final = frozenset({"source", "."})
# In any folder: the one that a command runs in is not known.
_INPUT: Final = re.compile(r"-|<\(\)|(?:.*/)?stdin|(?:.*/)?fd/\d+", re.DOTALL)
_ONLY_SAYS: Final = frozenset({"--version", "--help"})
_WITH_FILE: Final = frozenset({"--rcfile", "--init-file"})
_FIND_STARTS: Final = frozenset("-exec -execdir -ok -okdir".split())
_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_BEFORE_PROGRAM: Final = re.compile(rf"[-+]|{_ASSIGNMENT.pattern}|[0-9.]+[a-z]?$|0x[0-9a-f]+$")
_OPTION: Final = re.compile(r"^(?:--[\w-]+=|-\w*?[Sc])")
_STRING: Final = re.compile(rf"\s|\\[_c]|{_OPTION.pattern}")
