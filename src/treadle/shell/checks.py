"""Decides whether `find`, `sed`, `test` and a few other commands only read, by their arguments.

Shells differ in what their own commands do. zsh and ksh evaluate each number that `test` compares
and `printf` prints, and evaluating can run commands; so numbers must be written as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

Check = Callable[[Sequence[str]], bool]


def _accepts_find(args: Sequence[str]) -> bool:
    at = 0
    while at < len(args) and args[at] in _FIND_FIRST:
        at += 1
    while at < len(args) and args[at][:1] not in _FIND_EXPRESSION:
        at += 1
    while at < len(args):
        arg = args[at]
        at += 1
        if arg in _FIND_TESTS or _FIND_NEWER.fullmatch(arg):
            # Where a test takes no value, this word would be a test or an action itself.
            if at == len(args) or not _FIND_VALUE.match(args[at]):
                return False
            at += 1
        elif arg not in _FIND_ALONE:
            return False
    return True


def _accepts_sed(args: Sequence[str]) -> bool:
    if len(args) not in {2, 3} or args[0] != "-n" or not _SED_PRINT.fullmatch(args[1]):
        return False
    return not any(arg.startswith("-") for arg in args[2:])


def _accepts_date(args: Sequence[str]) -> bool:
    # Any other operand sets the clock, and so may a second one.
    formats = sum(arg.startswith("+") for arg in args)
    return formats <= 1 and all(arg[:1] == "+" or _DATE_OPTION.fullmatch(arg) for arg in args)


def _accepts_printf(args: Sequence[str]) -> bool:
    if not args:
        return True
    found = _PRINTF_FORMAT.fullmatch(args[0])
    if found is None or args[0].startswith("-"):
        return False
    letters = [match[1] for match in _PRINTF_CONVERSION.finditer(args[0]) if match[1]]
    if not letters:
        return True
    # The format is used again until all operands are printed.
    return all(
        letters[at % len(letters)] in _PRINTF_TEXT or _NUMBER.fullmatch(arg)
        for at, arg in enumerate(args[1:])
    )


def _accepts_test(args: Sequence[str]) -> bool:
    rest = args[1:] if args[:1] == ["!"] else args
    match rest:
        case [] | [_]:
            return True
        case ["-t", stream]:
            return _NUMBER.fullmatch(stream) is not None
        case [operator, _]:
            return operator in _TEST_UNARY
        case [left, operator, right]:
            if operator in _TEST_NUMBERS:
                return all(_NUMBER.fullmatch(each) for each in (left, right))
            return operator in _TEST_BINARY
        case _:
            return False


def _accepts_bracket(args: Sequence[str]) -> bool:
    return args[-1:] == ["]"] and _accepts_test(args[:-1])


def _accepts_command(args: Sequence[str]) -> bool:
    return len(args) == 2 and args[0] in {"-v", "-V"} and not args[1].startswith("-")


CHECKS: Final[Mapping[str, Check]] = {
    "[": _accepts_bracket,
    "command": _accepts_command,
    "date": _accepts_date,
    "expr": lambda _: True,
    "find": _accepts_find,
    "printf": _accepts_printf,
    "sed": _accepts_sed,
    "test": _accepts_test,
}
"""By program name: whether it only reads with these arguments, none of which expands."""

_NUMBER: Final = re.compile(r"[-+]?[0-9]+")
_SED_PRINT: Final = re.compile(r"([0-9]+|\$)(,([0-9]+|\$))?p")
_DATE_OPTION: Final = re.compile(
    r"-u|-R|-I(date|hours|minutes|seconds|ns)?|--utc|--universal|--rfc-email|--rfc-3339=[a-z]+"
    r"|--iso-8601(=[a-z]+)?|--date=.*",
    re.DOTALL,
)

# Escapes that stand for a character by its number are left out: it might be a percent sign.
# A zero may be a flag or a digit: it is read in one way only, or many take quadratic time.
_PRINTF_WIDTH: Final = r"[-+ #0]*+[0-9]*+(?:\.[0-9]*+)?"
_PRINTF_CONVERSION: Final = re.compile(rf"%(?:%|{_PRINTF_WIDTH}([bcdeEfFgGioqsuxX]))")
_PRINTF_FORMAT: Final = re.compile(
    rf"(?:[^%\\]|\\[abefnrtv\\\"]|%(?:%|{_PRINTF_WIDTH}[bcdeEfFgGioqsuxX]))*"
)
_PRINTF_TEXT: Final = frozenset("bcqs")

_TEST_UNARY: Final = frozenset(
    "-b -c -d -e -f -g -h -k -L -n -p -r -s -S -u -w -x -z -O -G".split()
)
_TEST_BINARY: Final = frozenset("= == != -nt -ot -ef".split())
_TEST_NUMBERS: Final = frozenset("-eq -ne -lt -le -gt -ge".split())

_FIND_FIRST: Final = frozenset("-H -L -P -E -X -x -s".split())
_FIND_EXPRESSION: Final = frozenset(["", *"-(!,)"])
_FIND_ALONE: Final = frozenset(
    """
    ( ) ! , -a -and -o -or -not -empty -readable -writable -executable -nouser -nogroup -mount
    -xdev -follow -depth -d -daystart -noleaf -ignore_readdir_race -noignore_readdir_race -warn
    -nowarn -true -false -print -print0 -ls -prune -quit
    """.split()
)
_FIND_TESTS: Final = frozenset(
    """
    -name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -lname -ilname -type
    -xtype -size -mtime -atime -ctime -mmin -amin -cmin -newer -anewer -cnewer -user -group -uid
    -gid -perm -links -inum -samefile -maxdepth -mindepth -fstype -used -printf
    """.split()
)
_FIND_NEWER: Final = re.compile(r"-newer[aBcm][aBcmt]")
_FIND_VALUE: Final = re.compile(r"[^-]|-[0-9]+[A-Za-z]?$|$")
