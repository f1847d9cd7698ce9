"""Splits the command of a hook into the words that may name a file, and those that it runs.

This is deliberately coarser than a shell: a word too many only costs a look at a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Role: TypeAlias = Literal["program", "script", "other"]

_OPERATORS: Final = ";&|()<>`\n"
_BLANKS: Final = " \t\r"
_MAX_DEPTH: Final = 5
_ENDS: Final = re.compile(r"[\s;&|()<>`'\"]+")
_VARIABLE: Final = re.compile(r"\$(?:(\w++)|\{(\w++)([^}$]*+)\})")
_ASSIGNMENT: Final = re.compile(r"\w+=")
_CODE: Final = re.compile(r"-\w*[ce]")
_NO_FILE: Final = re.compile(r"-\w*[cem]")
_RUN_TEXTS: Final = ("eval", "trap")
_NUMBER: Final = re.compile(r"\d+[smhd]?")
_OF_PROCESS: Final = re.compile(r"/proc/[^/]+/cwd(?=/|\Z)")
_INTERPRETER: Final = re.compile(
    r"(?:|ba|z|da|k|a)sh|(?:python|node|ruby|perl|php|lua)[\d.]*|\.|source"
)
# A program or keyword whose next word is a program.
_LEADING: Final = frozenset(
    "! builtin command coproc do elif else env eval exec if ionice nice nohup setsid stdbuf sudo "
    "then time timeout trap until while xargs {".split()
)


class ScriptWord(NamedTuple):
    """A word of a command; a `program` or `script` may be run, although it does not exist yet."""

    text: str
    role: Role
    # Whether it follows something that the shell computes, such as `$(pwd)`.
    is_rest: bool = False


def words_of(command: str, env: Mapping[str, str], depth: int = 0) -> Iterator[ScriptWord]:
    """Yield the words of a command, also of commands in its quotes and substitutions."""
    role: Role = "program"
    later: Role | None = None  # after the target of a redirection
    is_code = is_rest = has_interpreter = False
    for piece in _pieces(command):
        if not piece.strip(_OPERATORS):  # others may begin with one, from inside quotes
            is_rest = piece[-1] in ")`"
            if piece[-1] in "<>":
                later = role
                role = "script" if piece == "<" and has_interpreter else "other"
            else:
                role, later, has_interpreter = "program", None, False
            continue
        text = _plain(piece)
        if depth < _MAX_DEPTH and (is_code or "$(" in piece or "`" in piece):
            yield from words_of(piece, env, depth + 1)
        whole, *parts = _meanings(text, env)
        is_name = not (text.startswith("-") or _ASSIGNMENT.match(text))
        yield ScriptWord(whole, role if is_name else "other", is_rest and whole.startswith("/"))
        yield from (ScriptWord(part, "other") for part in parts)
        has_interpreter |= role == "program" and _is_interpreter(text)
        is_code = text in _RUN_TEXTS or (has_interpreter and _CODE.fullmatch(text) is not None)
        role, later = later or _next_role(role, text), None
        is_rest = False


def _pieces(command: str) -> Iterator[str]:
    lexer = shlex.shlex(command.replace("\\\n", ""), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = _BLANKS, "", True
    try:
        pieces = list(lexer)
    except ValueError:  # a quotation mark without its other one, for example in a comment
        pieces = _ENDS.split(command)
    return filter(None, pieces)


def _plain(piece: str) -> str:
    """Return a piece without what belongs to the shell: `$'a'`, `{a,b}`."""
    # A brace of a variable stays.
    text = piece.removeprefix("$") if piece[:2] in ("$.", "$/") else piece
    return text if "${" in text else text.strip("{}") or piece


def _is_interpreter(text: str) -> bool:
    return _INTERPRETER.fullmatch(text.rpartition("/")[2]) is not None


def _next_role(role: Role, text: str) -> Role:
    if role == "other" or _ASSIGNMENT.match(text):
        return role
    if text.startswith("-"):
        # After `-m` and `-c` comes no file.
        return "other" if role == "script" and _NO_FILE.fullmatch(text) else role
    if role == "program":
        if text.rpartition("/")[2] in _LEADING or _NUMBER.fullmatch(text):
            return "program"
        if _is_interpreter(text):
            return "script"
    return "other"


def _meanings(text: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a word with its variables replaced, and the parts that may be names of their own."""
    replaced = _VARIABLE.sub(lambda found: env.get(found[1] or found[2], ""), text)
    yield _home(replaced, env)
    # What `${NAME:-other}` stands for without the variable, also around another one.
    yield from (found[3].lstrip(":-=+?") for found in _VARIABLE.finditer(text) if found[3])
    if "${" in replaced:
        yield _home(replaced.rpartition(":-")[2].rstrip("}"), env)
    if "=" in replaced:  # an option or a variable
        yield _home(replaced.partition("=")[2], env)
    if "," in text:  # one of several names in braces
        yield from text.split(",")
    if text.startswith("-") and not text.startswith("--"):
        yield text[2:]


def _home(text: str, env: Mapping[str, str]) -> str:
    if text.startswith("~+"):
        text = env.get("PWD", "") + text[2:]
    elif text == "~" or text.startswith("~/"):
        text = env.get("HOME", "~") + text[1:]
    return _OF_PROCESS.sub(lambda _found: env.get("PWD", ""), text)
