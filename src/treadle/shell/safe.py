"""Commands that are known only to read, and may run unasked.

The list began as the reference's own, found by trying. It differs where noted: a command that can
write or start a program by one of its options is safe only without that option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from treadle.shell.scripts import script_of
from treadle.shell.syntax import Redirection, Simple, parse
from treadle.shell.words import Word


def is_known_safe(argv: Sequence[str]) -> bool:
    """Does the command, with everything that it would start, only look?"""
    return _is_safe_argv(tuple(Word(text) for text in argv), 0)


def _is_safe_argv(words: Sequence[Word], depth: int) -> bool:
    if not words or depth > _MAX_DEPTH:
        return False
    if all(word.expansion == "none" for word in words):
        script = script_of([word.text for word in words])
        if script is not None:
            return _program(words[0]) is not None and _is_safe_script(script, depth + 1)
    name = _program(words[0])
    if name in _ANY_ARGUMENTS:
        return True
    check = _CHECKED.get(name) if name is not None else None
    if check is None or not all(_is_known(word) for word in words[1:]):
        return False
    return check([word.text for word in words[1:]])


def _is_safe_script(script: str, depth: int) -> bool:
    parsed = parse(script)
    if parsed is None or parsed.has_control or not parsed.commands:
        return False
    return all(_is_safe_simple(command, depth) for command in parsed.commands) and not (
        _leaves_for_git(parsed.commands)
    )


def _is_safe_simple(command: Simple, depth: int) -> bool:
    # An assignment may change what a later command is: PATH, LD_PRELOAD, GIT_EXTERNAL_DIFF.
    if command.has_assignments or not all(map(_is_harmless, command.redirections)):
        return False
    return not command.words or _is_safe_argv(command.words, depth)


def _leaves_for_git(commands: Sequence[Simple]) -> bool:
    """Does the script change the folder and call git? Its settings there may name programs."""
    # The reference does not look at this.
    names = {command.words[0].text for command in commands if command.words}
    return "cd" in names and any(PurePosixPath(name).name == "git" for name in names)


def _is_harmless(redirection: Redirection) -> bool:
    target, operator = redirection.target, redirection.operator
    if operator in {"<<", "<<-", "<<<"}:
        return True
    if target.expansion != "none":
        return False
    if operator == "<":
        # bash opens a connection for these names.
        return not target.text.startswith(("/dev/tcp/", "/dev/udp/"))
    if operator in {"<&", ">&"}:
        return target.text.isdecimal() or target.text == "-"
    return operator != "<>" and target.text == "/dev/null"


def _program(word: Word) -> str | None:
    """The name of a program, if it is found on PATH or lies in a folder of the system."""
    if word.text == "[" and word.is_bare:
        return word.text
    if word.expansion != "none":
        return None
    # The reference looks at the last part of any path, so that ./ls is safe for it.
    folder, slash, name = word.text.rpartition("/")
    return name if not slash or folder in SYSTEM_FOLDERS else None


def _is_known(word: Word) -> bool:
    """Is the word what it seems, or at least names of files that cannot be taken for options?"""
    if word.expansion == "paths":
        return word.text[:1] not in _MAY_BECOME_OPTION
    return word.expansion == "none"


def _has_option(args: Sequence[str], letters: str, words: Sequence[str], valued: str = "") -> bool:
    """Is an option given, alone, among other letters, or cut short as GNU programs permit?

    What follows `--` is looked at as well: `--` may be the value of the option before it.
    """
    for arg in args:
        if arg.startswith("--") and len(arg) > 2:
            name = arg.partition("=")[0]
            if any(word.startswith(name) for word in words):
                return True
        elif arg.startswith("-"):
            for letter in arg[1:]:
                if letter in letters:
                    return True
                if letter in valued:
                    break
    return False


def _operands(args: Sequence[str]) -> list[str]:
    return [arg for arg in args if not arg.startswith("-") or arg == "-"]


def _is_safe_rg(args: Sequence[str]) -> bool:
    words = ("--pre", "--hostname-bin", "--search-zip")
    return not _has_option(args, "z", words, valued="ABCEMTdefgjmrt")


def _is_safe_find(args: Sequence[str]) -> bool:
    return not any(arg.startswith(_FIND_ACTIONS) for arg in args)


def _is_safe_sed(args: Sequence[str]) -> bool:
    if len(args) not in {2, 3} or args[0] != "-n" or not _SED_PRINT.fullmatch(args[1]):
        return False
    return not any(arg.startswith("-") for arg in args[2:])


def _is_safe_git(args: Sequence[str]) -> bool:
    rest = list(args)
    while rest and rest[0] in _GIT_PAGING:
        del rest[0]
    if not rest or rest[0] not in _GIT_READERS:
        return False
    command, *options = rest
    if _has_option(options, "O" if command == "grep" else "", _GIT_OPTIONS):
        return False
    return _GIT_READERS[command](options)


def _is_branch_list(args: Sequence[str]) -> bool:
    options = [arg for arg in args if arg.startswith("-")]
    if not all(arg in _BRANCH_OPTIONS or arg.startswith("--format=") for arg in options):
        return False
    # A bare name makes a branch, unless the list is asked for.
    return len(options) == len(args) or "--list" in options


def _is_safe_date(args: Sequence[str]) -> bool:
    return all(_DATE_OPTION.match(arg) for arg in args)


def _is_safe_tree(args: Sequence[str]) -> bool:
    # -o and -R write files.
    return not _has_option(args, "oR", ("--output",), valued="LPI")


_Check = Callable[[Sequence[str]], bool]


def _without(letters: str, *words: str, valued: str = "") -> _Check:
    return lambda args: not _has_option(args, letters, words, valued)


_MAX_DEPTH: Final = 8
SYSTEM_FOLDERS: Final = frozenset(
    "/bin /sbin /usr/bin /usr/sbin /usr/local/bin /opt/homebrew/bin".split()
)
_MAY_BECOME_OPTION: Final = frozenset(["", *"-*?[{="])
_SED_PRINT: Final = re.compile(r"(\d+|\$)(,(\d+|\$))?p")
_DATE_OPTION: Final = re.compile(r"\+|-u$|-R$|-I|--utc$|--iso-8601|--rfc-|--date=")
_FIND_ACTIONS: Final = ("-exec", "-ok", "-delete", "-fls", "-fprint")
_GIT_PAGING: Final = frozenset("--no-pager -P -p --paginate".split())
_GIT_OPTIONS: Final = (
    "--output",
    "--ext-diff",
    "--textconv",
    "--exec",
    "--filters",
    "--open-files-in-pager",
)
_BRANCH_OPTIONS: Final = frozenset(
    "-a --all -r --remotes -v -vv --verbose -l --list --show-current --no-color".split()
)

# Whatever these are given, they read, print and end.
_ANY_ARGUMENTS: Final = frozenset(
    """
    : basename cat cd cksum cmp comm cut dirname df du echo egrep expand expr false fgrep fold
    grep groups head id join ls md5sum nl nproc numfmt od paste pwd readlink realpath rev seq
    sha1sum sha256sum sha512sum stat strings tac tail tr true type uname wc which whoami
    """.split()
)

_GIT_READERS: Final[Mapping[str, _Check]] = {
    "blame": lambda _: True,
    "branch": _is_branch_list,
    "diff": lambda _: True,
    "grep": lambda _: True,
    "log": lambda _: True,
    "ls-files": lambda _: True,
    "ls-tree": lambda _: True,
    "merge-base": lambda _: True,
    "remote": lambda args: all(arg in {"-v", "--verbose"} for arg in args),
    "rev-parse": lambda _: True,
    "show": lambda _: True,
    "status": lambda _: True,
}

_CHECKED: Final[Mapping[str, _Check]] = {
    # A subscript after -v is evaluated, and may run commands.
    "[": lambda args: args[-1:] == ["]"] and "-v" not in args,
    "test": lambda args: "-v" not in args,
    "base64": _without("o", "--output", valued="bwi"),
    "command": lambda args: len(args) == 2 and args[0] in {"-v", "-V"},
    "date": _is_safe_date,
    "diff": _without("l", "--paginate"),
    "find": _is_safe_find,
    "git": _is_safe_git,
    "hostname": lambda args: not args,
    "printf": lambda args: not args[:1] or not args[0].startswith("-"),
    "rg": _is_safe_rg,
    "sed": _is_safe_sed,
    "sort": _without("oT", "--output", "--compress-program", "--temporary-directory", valued="kSt"),
    "tree": _is_safe_tree,
    # A second name is where it writes; the reference lets that pass.
    "uniq": lambda args: len(_operands(args)) <= 1 and not any(set("*?[{") & set(a) for a in args),
}
