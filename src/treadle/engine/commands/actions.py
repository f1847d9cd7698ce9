"""Classifies commands for display: read, list, search or unknown.

This is never used to decide what is safe. It follows the reference, compared with some hundred
command lines, including its wrong guesses.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from treadle.engine.commands.filters import is_filter
from treadle.engine.commands.operands import (
    awk_file,
    first_operand,
    is_path_like,
    operands,
    sed_file,
    short_path,
    single_operand,
    without_values,
)
from treadle.protocol.item import (
    CommandAction,
    ListFilesCommandAction,
    ReadCommandAction,
    SearchCommandAction,
    UnknownCommandAction,
)
from treadle.shell.scripts import display, plain_commands, script_of


def actions_of(argv: Sequence[str], cwd: str) -> list[CommandAction]:
    """The actions of a command; a single unknown action if any part is unknown."""
    script = script_of(argv)
    whole = script if script is not None else display(argv)
    commands = plain_commands(script) if script is not None else [list(argv)]
    if commands is None or len(argv) > _MAX_WORDS:
        return [UnknownCommandAction(command=whole)]
    parts = commands if len(commands) == 1 else [each for each in commands if not is_filter(each)]
    actions = _without_noise(_actions_of_parts(parts, cwd)) if parts else None
    if actions is None or any(isinstance(each, UnknownCommandAction) for each in actions):
        return [UnknownCommandAction(command=whole)]
    if len(actions) == 1 and isinstance(actions[0], ReadCommandAction) and _prints_lines(commands):
        read = actions[0]
        return [ReadCommandAction(command=whole, name=read.name, path=read.path)]
    return actions


def _actions_of_parts(parts: Sequence[list[str]], cwd: str) -> list[CommandAction]:
    actions: list[CommandAction] = []
    for command in parts:
        if command[0] == "cd":
            cwd = os.path.normpath(os.path.join(cwd, _folder(command[1:])))  # noqa: PTH118 - lexical
            continue
        action = _action(command, cwd)
        # Consecutive identical actions are shown once.
        if not actions or actions[-1] != action:
            actions.append(action)
    return actions


def _without_noise(actions: list[CommandAction]) -> list[CommandAction]:
    """Omit parts without meaning: `echo` at the start, `true`, `nl` in a pipe."""
    first = 0
    while first < len(actions) - 1 and _is_echo(actions[first]):
        first += 1
    actions = actions[first:]
    kept = [each for each in actions if not _is_noise(each)]
    return kept if len(actions) > 1 and kept else actions


def _is_echo(action: CommandAction) -> bool:
    is_unknown = isinstance(action, UnknownCommandAction)
    return is_unknown and (action.command == "echo" or action.command.startswith("echo "))


def _is_noise(action: CommandAction) -> bool:
    if not isinstance(action, UnknownCommandAction):
        return False
    first, *rest = action.command.split(" ")
    return action.command == "true" or (
        first == "nl" and all(word.startswith("-") for word in rest)
    )


def _prints_lines(commands: Sequence[Sequence[str]]) -> bool:
    """Whether the output is cut to some lines: then the reference shows the whole pipe."""
    return len(commands) > 1 and any(command[:2] == ["sed", "-n"] for command in commands[1:])


def _folder(args: Sequence[str]) -> str:
    """The folder of a `cd`: its last operand, or the current one."""
    named = [arg for arg in args if not arg.startswith("-")]
    return named[-1] if named else "."


def _action(command: list[str], cwd: str) -> CommandAction:
    name, *args = command
    line = display(command)
    reader = _READERS.get(name)
    if reader is not None:
        path = reader(args)
        return _read(line, path, cwd) if path is not None else UnknownCommandAction(command=line)
    valued = _LISTERS.get(name)
    if valued is not None:
        return _list(line, first_operand(args, valued))
    searcher = _SEARCHERS.get(name)
    if searcher is not None:
        return searcher(line, args)
    if name == "git":
        return _git(line, args)
    if _walks_files(name, args):
        return _list(line, None)
    return UnknownCommandAction(command=line)


def _read(line: str, path: str, cwd: str) -> CommandAction:
    whole = os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118 - lexical
    return ReadCommandAction(command=line, name=short_path(path), path=whole)


def _list(line: str, path: str | None) -> CommandAction:
    return ListFilesCommandAction(command=line, path=None if path is None else short_path(path))


def _search(line: str, query: str | None, path: str | None) -> CommandAction:
    shown = None if path is None else short_path(path)
    return SearchCommandAction(command=line, query=query, path=shown)


def _search_operands(line: str, words: Sequence[str]) -> CommandAction:
    return _search(line, *[*words, None, None][:2])


# One function for each search program


def _rg(line: str, args: Sequence[str]) -> CommandAction:
    words = [arg for arg in without_values(args, _RG_VALUED) if not arg.startswith("-")]
    if "--files" in args:
        return _list(line, words[0] if words else None)
    return _search_operands(line, words)


def _ag(line: str, args: Sequence[str]) -> CommandAction:
    words = [arg for arg in without_values(args, _AG_VALUED) if not arg.startswith("-")]
    return _search_operands(line, words)


def _grep(line: str, args: Sequence[str]) -> CommandAction:
    pattern: str | None = None
    words: list[str] = []
    at = 0
    while at < len(args):
        arg = args[at]
        at += 1
        if arg == "--":
            words.extend(args[at:])
            break
        if arg in _GREP_PATTERN and at < len(args):
            pattern = pattern or args[at]
            at += 1
        elif arg in _GREP_VALUED:
            at += 1
        elif not arg.startswith("-"):
            words.append(arg)
    return _search_operands(line, words if pattern is None else [pattern, *words])


def _fd(line: str, args: Sequence[str]) -> CommandAction:
    words = [arg for arg in without_values(args, _FD_VALUED) if not arg.startswith("-")]
    if not words:
        return _list(line, None)
    if len(words) == 1 and is_path_like(words[0]):
        return _list(line, words[0])
    return _search_operands(line, words)


def _find(line: str, args: Sequence[str]) -> CommandAction:
    path = next(
        (arg for arg in args if not arg.startswith("-") and arg not in {"!", "(", ")"}), None
    )
    for option, value in pairwise(args):
        if option in _FIND_TESTS:
            return _search(line, value, path)
    return _list(line, path)


def _git(line: str, args: Sequence[str]) -> CommandAction:
    if args[:1] == ["grep"]:
        return _grep(line, args[1:])
    if args[:1] == ["ls-files"]:
        return _list(line, first_operand(args[1:], _LS_FILES_VALUED))
    return UnknownCommandAction(command=line)


def _walks_files(name: str, args: Sequence[str]) -> bool:
    if not name.startswith("python") or "-c" not in args[:-1]:
        return False
    script = args[list(args).index("-c") + 1]
    return any(word in script for word in _WALKING)


# One function for each program that reads; `None` if the file is unclear


def _head(args: Sequence[str]) -> str | None:
    return _lines_file(args, signs="")


def _tail(args: Sequence[str]) -> str | None:
    return _lines_file(args, signs="+")


def _lines_file(args: Sequence[str], signs: str) -> str | None:
    if len(args) == 1 and not args[0].startswith("-"):
        return args[0]
    if args[:1] == ["-n"] and len(args) > 1:
        count, rest = args[1], args[2:]
    elif args and args[0].startswith("-n"):
        count, rest = args[0][2:], args[1:]
    else:
        return None
    if not count.lstrip(signs).isdecimal():
        return None
    return next((arg for arg in rest if not arg.startswith("-")), None)


def _nl(args: Sequence[str]) -> str | None:
    return next(iter(operands(args, _NL_VALUED)), None)


# The limit of a script.
_MAX_WORDS: Final = 1000
_RG_VALUED: Final = frozenset(
    """
    -g --glob --iglob -t --type --type-add --type-not -m --max-count -A -B -C --context --max-depth
    """.split()
)
_AG_VALUED: Final = frozenset(
    "-G -g --file-search-regex --ignore-dir --ignore-file --path-to-ignore".split()
)
_GREP_PATTERN: Final = frozenset("-e --regexp -f --file".split())
_GREP_VALUED: Final = frozenset(
    "-m --max-count -A --after-context -B --before-context -C --context".split()
)
_FD_VALUED: Final = frozenset("-t --type -e --extension -E --exclude --search-path".split())
_FIND_TESTS: Final = frozenset("-name -iname -path -regex".split())
_LS_FILES_VALUED: Final = frozenset("--exclude --exclude-from --pathspec-from-file".split())
_NL_VALUED: Final = frozenset("-s -w -v -i -b".split())
_WALKING: Final = ("os.walk", "os.listdir", "os.scandir", "glob.glob", "glob.iglob", ".rglob(")

_LISTERS: Final[Mapping[str, frozenset[str]]] = {
    "ls": frozenset("-I -w --block-size --format --time-style --color --quoting-style".split()),
    "eza": frozenset("-I --ignore-glob --color --sort --time-style --time".split()),
    "exa": frozenset("-I --ignore-glob --color --sort --time-style --time".split()),
    "tree": frozenset("-L -P -I --charset --filelimit --sort".split()),
    "du": frozenset("-d --max-depth -B --block-size --exclude --time-style".split()),
}

_BAT_VALUED: Final = frozenset(
    "--theme --language --style --terminal-width --tabs --line-range --map-syntax".split()
)
_LESS_VALUED: Final = frozenset(
    "-p -P -x -y -z -j --pattern --prompt --tabs --shift --jump-target".split()
)

_READERS: Final[Mapping[str, Callable[[Sequence[str]], str | None]]] = {
    "awk": awk_file,
    "bat": lambda args: single_operand(args, _BAT_VALUED),
    "batcat": lambda args: single_operand(args, _BAT_VALUED),
    "cat": lambda args: single_operand(args, frozenset()),
    "head": _head,
    "less": lambda args: single_operand(args, _LESS_VALUED),
    "more": lambda args: single_operand(args, frozenset()),
    "nl": _nl,
    "sed": sed_file,
    "tail": _tail,
}

_SEARCHERS: Final[Mapping[str, Callable[[str, Sequence[str]], CommandAction]]] = {
    "ack": _ag,
    "ag": _ag,
    "egrep": _grep,
    "fd": _fd,
    "fgrep": _grep,
    "find": _find,
    "grep": _grep,
    "pt": _ag,
    "rg": _rg,
    "rga": _rg,
}
