"""Words whose value the shell decides when it runs, and what they may turn out to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from treadle.shell.scripts import program_name
from treadle.shell.words import Word


class Unclear(str):
    """A word as it is written, in whose place any words may come."""

    __slots__ = ()


class Glob(Unclear):
    """A word in whose place names come that fit it."""

    __slots__ = ()


class CommandTooComplex(Exception):
    """There is too much in a command to look at all of it."""


def values_of(words: Sequence[Word]) -> list[str]:
    """The words of a command after the expansion of braces, those that are not known marked.

    Raises:
        TooComplex: they would be too many.
    """
    found: list[str] = []
    for word in words:
        if word.expansion == "none":
            found.append(word.text)
        elif word.expansion == "text":
            found.append(Unclear(word.text))
        elif "{" in word.text:
            found += map(marked, _without_braces(word.text))
            if len(found) > _MAX_VALUES:
                raise CommandTooComplex
        else:
            # zsh takes `=git` for the path of git.
            found.append(marked(word.text.removeprefix("=")))
    return found


def marked(text: str) -> str:
    """A word that may have patterns in it, outside of quotes."""
    return Glob(text) if _GLOB.search(text) else text


def fitting(glob: Glob, names: Iterable[str]) -> list[str]:
    """Those of some names that a pattern may stand for, wherever they lie."""
    return _pattern(program_name(glob)).findall("\n".join(names))


def may_begin(words: Sequence[str], pattern: Sequence[Sequence[str]]) -> bool:
    """May the operands of a command turn out to be those of a pattern?"""
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
    return False  # it does begin so, which is another question


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
    """Names that fit; it may be wider than the shell's, as that only asks once too often."""
    is_wild = len(glob) > _MAX_GLOB or sum(map(glob.count, "*?[")) > _MAX_WILD
    middle = _ANY if is_wild else _joined(map(_translate, _PIECE.findall(glob)))
    return re.compile(f"^(?:.*/)?{middle}$", re.MULTILINE)


def _joined(pieces: Iterable[str]) -> str:
    """One expression that does not go back: what is between two stars counts where it comes first.

    With plain ones, a name of 40 letters took a second to compare with eight of them.
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
# A list in braces that is a whole element of another one.
_WHOLE_ELEMENT: Final = re.compile(r"(?<=[{,])\{([^{},]*,[^{}]*)\}(?=[,}])")
