"""Commands that destroy or take over: somebody is asked about them whatever the policy.

Unlike the list of safe commands this one may err on both sides, so it looks everywhere: into
scripts, substitutions, and behind programs that start others. A command in which there is too much
to look at counts as dangerous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final

from treadle.shell.scripts import program_name
from treadle.shell.syntax import MAX_SCRIPT, parse


class TooComplex(Exception):
    """There is too much in a command to look at all of it."""


def is_dangerous(argv: Sequence[str]) -> bool:
    """Would the command delete by force, throw work away, become another user, or halt?"""
    return _is_dangerous(tuple(argv))


# A command is judged when it is asked for, and again when a rule is proposed for it.
@lru_cache(maxsize=8)
def _is_dangerous(argv: tuple[str, ...]) -> bool:
    return _has_any(argv, _is_dangerous_alone)


def is_forced_removal(argv: Sequence[str]) -> bool:
    """Is there an `rm -f` in it? The reference asks about these, and about no other danger."""
    return _has_any(argv, lambda command: _name(command) == "rm" and _is_forced(command))


def _has_any(argv: Sequence[str], check: _Check) -> bool:
    try:
        return any(check(command) for command in every_command(argv))
    except TooComplex:
        return True


def every_command(
    argv: Sequence[str], names: AbstractSet[str] = frozenset()
) -> Iterator[list[str]]:
    """All commands that a command may start: itself, those of its scripts, those it passes on.

    `names` are programs that the caller looks for, besides the dangerous ones.

    Raises:
        TooComplex: it may start more than were found so far.
    """
    wanted = _INTERESTING | names
    seen: set[str] = set()
    characters, words = _MAX_CHARACTERS, _MAX_WORDS
    pending = [list(argv)]
    while pending:
        command = pending.pop()
        if not command:
            continue
        yield command
        is_starter = _name(command) in _STARTERS or command[0] in _MODIFIERS
        tails = list(_passed_on(command, wanted)) if is_starter else []
        yield from tails
        for each in (command, *tails):
            script = _script_in(each)
            # Each script is read once: one that repeats itself would be read without end.
            if script is None or script in seen:
                continue
            seen.add(script)
            characters -= len(script)
            if characters < 0:
                raise TooComplex
            found = list(_of_script(script, wanted))
            words -= sum(map(len, found))
            if words < 0:
                raise TooComplex
            pending.extend(found)


def _passed_on(command: Sequence[str], wanted: AbstractSet[str]) -> Iterator[list[str]]:
    """What a program that starts others may start: its options are not known, so any tail."""
    starts = [at for at, word in enumerate(command) if at and program_name(word) in wanted]
    if len(starts) > _MAX_TAILS:
        raise TooComplex
    for at in starts:
        yield list(command[at : at + _MAX_TAIL])


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
    if len(script) > MAX_SCRIPT:
        raise TooComplex
    parsed = parse(script)
    if parsed is not None:
        yield from ([word.text for word in each.words] for each in parsed.commands)
        return
    # Not understood: every word may be the name of a command, and runs to the end of its line,
    # which the next one may continue.
    script = script.replace("\\\n", "")
    found = (match.start() for match in _pattern(frozenset(wanted)).finditer(script))
    starts = list(islice(filter(_begins_word(script), found), _MAX_STARTS + 1))
    if len(starts) > _MAX_STARTS:
        raise TooComplex
    for start in starts:
        line = _LINE.match(script, start, start + _MAX_LINE)
        yield _BETWEEN.split(line[0].strip()) if line else []


def _begins_word(script: str) -> Callable[[int], bool]:
    """Whether a word begins at a place, or the last part of a path."""
    return lambda at: at == 0 or script[at - 1] == "/" or bool(_ENDS_WORD.match(script, at - 1))


@lru_cache(maxsize=16)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    """One of these names at the end of a word; what is before it is not looked at, for speed."""
    each = "|".join(map(re.escape, sorted(names)))
    return re.compile(f"(?:{each})/*(?:$|(?={_ENDS_WORD.pattern}))")


def _is_dangerous_alone(command: Sequence[str]) -> bool:
    name = _name(command)
    if name in _ALWAYS or name.startswith("mkfs."):
        return True
    check = _CHECKED.get(name)
    return check is not None and check(command)


def _name(command: Sequence[str]) -> str:
    return program_name(command[0]) if command else ""


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

# How much is looked at: of all scripts together, and behind the name of one program.
_MAX_CHARACTERS: Final = 2 * MAX_SCRIPT
_MAX_WORDS: Final = 10_000
_MAX_STARTS: Final = 400
_MAX_LINE: Final = 2000
_MAX_TAILS: Final = 100
_MAX_TAIL: Final = 1000
_ENDS_WORD: Final = re.compile(r"[\s'\"<>$\\;&|()`{}]")
_LINE: Final = re.compile(r"[^\n;&|()`{}]+")
_BETWEEN: Final = re.compile(r"[\s'\"<>$\\]+")
_SHELLS: Final = frozenset("ash bash dash fish ksh mksh sh zsh".split())
_ALWAYS: Final = frozenset(
    "sudo doas su pkexec mkfs shred wipefs shutdown reboot halt poweroff".split()
)
_STARTERS: Final = frozenset(
    """
    sudo doas pkexec env command builtin exec nohup nice ionice time timeout xargs find stdbuf
    setsid chroot unshare busybox parallel watch
    """.split()
)
# Words of zsh that stand before a command.
_MODIFIERS: Final = frozenset("noglob nocorrect repeat -".split())

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
