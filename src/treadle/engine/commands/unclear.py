"""Words that the shell expands at run time, and their possible values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from treadle.shell.scripts import program_name
from treadle.shell.words import Word


class Unclear(str):
    """A word in its source form, which may expand to any words."""

    __slots__ = ()


class Glob(Unclear):
    """A word that expands to the names that match it."""

    __slots__ = ()


class CommandTooComplex(Exception):
    """A command is too complex to search completely."""


def values_of(words: Sequence[Word]) -> list[str]:
    """The words of a command after brace expansion, with unknown ones as `Unclear`.

    Raises:
        CommandTooComplex: there would be too many.
    """
    values: list[str] = []
    for word in words:
        if word.expansion == "none":
            values.append(word.text)
        elif word.expansion == "text":
            values.append(Unclear(word.text))
        elif "{" in word.text:
            values += map(marked, _without_braces(word.text))
            if len(values) > _MAX_VALUES:
                raise CommandTooComplex
        else:
            # zsh expands `=git` to the path of git.
            values.append(marked(word.text.removeprefix("=")))
    return values


def marked(text: str) -> str:
    """A word that may contain patterns outside of quotes."""
    return Glob(text) if _GLOB.search(text) else text


def fitting(glob: Glob, names: Iterable[str]) -> list[str]:
    """The names that a pattern may match, in any folder."""
    return _pattern(program_name(glob)).findall("\n".join(names))


def may_begin(words: Sequence[str], pattern: Sequence[Sequence[str]]) -> bool:
    """Whether the operands of a command may expand to those of a pattern."""
    for at, alternatives in enumerate(pattern[1:], start=1):
        if at >= len(words):
            return False
        word = words[at]
        if isinstance(word, Glob):
            return bool(fitting(word, alternatives))
        if isinstance(word, Unclear):
            return True
        if word not in alternatives:
            return False
    return False  # a certain match is not a possible one


def _without_braces(text: str) -> list[str]:
    if len(text) > _MAX_BRACED:
        raise CommandTooComplex
    for _ in range(_MAX_NESTING):
        text, count = _WHOLE_ELEMENT.subn(r"\1", text)
        if not count:
            break
    done: list[str] = []
    pending = [text]
    while pending:
        each = pending.pop()
        match = _BRACES.search(each)
        if match is None:
            done.append(_RANGE.sub("*", each))
        else:
            before, after = each[: match.start()], each[match.end() :]
            pending += [f"{before}{part}{after}" for part in reversed(match[1].split(","))]
        if len(done) + len(pending) > _MAX_EXPANDED:
            raise CommandTooComplex
    return [each for each in done if each]


def _pattern(glob: str) -> re.Pattern[str]:
    """A regular expression for a pattern; a wider match only causes an extra approval."""
    is_wild = len(glob) > _MAX_GLOB or sum(map(glob.count, "*?[")) > _MAX_WILD
    middle = _ANY if is_wild else _joined(map(_translate, _PIECE.findall(glob)))
    return re.compile(f"^(?:.*/)?{middle}$", re.MULTILINE | re.IGNORECASE)


def _joined(pieces: Iterable[str]) -> str:
    """An expression without backtracking: text between two stars matches where it comes first.

    With backtracking, a name of 40 letters took a second to compare with eight stars.
    """
    fixed = [""]
    for piece in pieces:
        if piece == _ANY:
            fixed.append("")
        else:
            fixed[-1] += piece
    if len(fixed) == 1:
        return fixed[0]
    first, *between, last = fixed
    return "".join([first, *(f"(?>.*?{each})" for each in between if each), _ANY, last])


def _translate(piece: str) -> str:
    if piece == "?":
        return "."
    if _CLASS.fullmatch(piece):
        return piece
    return _ANY if piece[0] == "*" or len(piece) > 1 else re.escape(piece)


_ANY: Final = ".*"
_MAX_GLOB: Final = 1000
_MAX_NESTING: Final = 10
_MAX_EXPANDED: Final = 1000
_MAX_VALUES: Final = 10_000
_MAX_BRACED: Final = 4000
_MAX_WILD: Final = 8
_GLOB: Final = re.compile(r"[*?\[]")
_PIECE: Final = re.compile(r"\*+|\[[A-Za-z0-9_.]+\]|\[.*\]|[^\n]")
_CLASS: Final = re.compile(r"\[[A-Za-z0-9_.]+\]")
_BRACES: Final = re.compile(r"\{([^{},]*,[^{}]*)\}")
_RANGE: Final = re.compile(r"\{[^{},.]*\.\.[^{},]*\}")
# A list in braces that is an element of another one.
_WHOLE_ELEMENT: Final = re.compile(r"(?<=[{,])\{([^{},]*,[^{}]*)\}(?=[,}])")
