"""The commands that may be in a script which is not understood."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from typing import Final

from treadle.engine.commands.unclear import CommandTooComplex, Glob, Unclear, values_of
from treadle.shell.words import Word


def guesses(script: str, wanted: AbstractSet[str]) -> Iterator[list[str]]:
    """Every word may be the name of a command, and runs to the end of its line.

    Raises:
        TooComplex: there are too many of them.
    """
    script = script.replace("\\\n", "")  # which the next line continues
    yield from _named(script, wanted, _BETWEEN.split)
    # A name may have quotes in it; without them, it also shows which words are not known.
    bare = _QUOTES.sub("", script)
    yield from _named(bare, wanted, _words)
    yield from _unclear(bare)


def _named(
    script: str, wanted: AbstractSet[str], split: Callable[[str], list[str]]
) -> Iterator[list[str]]:
    found = (match.start() for match in _pattern(frozenset(wanted)).finditer(script))
    starts = list(islice(filter(_begins_word(script), found), _MAX_STARTS + 1))
    if len(starts) > _MAX_STARTS:
        raise CommandTooComplex
    for start in starts:
        line = _LINE.match(script, start, start + _MAX_LINE)
        yield split(line[0].strip()) if line else []


def _unclear(script: str) -> Iterator[list[str]]:
    """Commands whose program is not a name, but a variable, a pattern or a list in braces.

    Raises:
        TooComplex: there are too many of them, or of places where a command may begin.
    """
    if script.count("[[") > _MAX_COMMANDS:
        raise CommandTooComplex
    script = _TEST.sub(r"\1[[ ]]", _SUM.sub("0", script))
    unclear = 0
    for count, start in enumerate(_START.finditer(script)):
        if count > _MAX_COMMANDS or unclear > _MAX_STARTS:
            raise CommandTooComplex
        at = _program(script, start.end())
        word = _WORD.match(script, at, at + _MAX_LINE)
        if word is None or _UNCLEAR.isdisjoint(word[0]):
            continue
        # The last branch of a `case`.
        if word[0] == "*" and script.startswith(")", word.end()):
            continue
        if word[0][-1] == "(":
            yield from _grouped(script, at)
            if _UNCLEAR.isdisjoint(word[0][:-1]):
                continue
        unclear += 1
        line = _REST.match(script, at, at + _MAX_LINE)
        words = _words(line[0]) if line else []
        if words and (isinstance(words[0], Unclear) or "{" in word[0]):
            yield words


def _grouped(script: str, at: int) -> Iterator[list[str]]:
    """The command whose name has a pattern in parentheses."""
    name = _GROUPED.match(script, at, at + _MAX_LINE)
    if name is not None:
        line = _REST.match(script, name.end(), name.end() + _MAX_LINE)
        yield [Glob(_GROUP.sub("*", name[0])), *(_words(line[0]) if line else [])]


def _program(script: str, at: int) -> int:
    """Find the first word of a command after the variables that are set for it."""
    end = at + _MAX_LINE
    while (blanks := _ASSIGNED.match(script, at, end)) is not None:
        at = blanks.end()
    return at


def _words(line: str) -> list[str]:
    return values_of(
        [Word(each, "text" if "$" in each else "paths") for each in _BLANK.split(line.strip())]
    )


def _begins_word(script: str) -> Callable[[int], bool]:
    """Whether a word begins at a place, or the last part of a path."""

    def begins(at: int) -> bool:
        # zsh takes `=git` for the path of git.
        if at and script[at - 1] == "=":
            at -= 1
        return at == 0 or script[at - 1] == "/" or bool(_ENDS_WORD.match(script, at - 1))

    return begins


@lru_cache(maxsize=16)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    """One of these names at the end of a word; what is before it is not looked at, for speed."""
    each = "|".join(map(re.escape, sorted(names)))
    return re.compile(f"(?:{each})/*(?:$|(?={_ENDS_WORD.pattern}))")


_MAX_STARTS: Final = 350
_MAX_COMMANDS: Final = 1000
_MAX_LINE: Final = 2000
_ENDS_WORD: Final = re.compile(r"[\s'\"<>$\\;&|()`{}]")
_LINE: Final = re.compile(r"[^\n;&|()`{}]+")
_REST: Final = re.compile(r"[^\n;&|()`]+")
_BETWEEN: Final = re.compile(r"[\s'\"<>$\\]+")
_BLANK: Final = re.compile(r"[\s<>]+")
_QUOTES: Final = re.compile(r"['\"\\]")
_SUM: Final = re.compile(r"\$\(\([^()`\n]*\)\)")
_BEGINS: Final = r"(?:^|[\n;&|()`]|\b(?:if|then|elif|else|while|until|do|time)[ \t]|[!{][ \t])"
# With the blanks behind it: more than these are taken for a command.
_START: Final = re.compile(rf"{_BEGINS}[ \t]{{0,200}}")
# With the parenthesis that touches it and has something in it.
_WORD: Final = re.compile(r"[^\s;&|()<>`]+(?:(?<!\$)\((?=[^()\s]))?")
# A name with a pattern in parentheses, as zsh has them, and bash with `extglob`.
_GROUPED: Final = re.compile(r"[^\s;&|()<>`$]+(?:\([^()\s]+\)[^\s;&|()<>`$]*)+(?=[ \t])")
_GROUP: Final = re.compile(r"[@+?!*]?\([^()]*\)")
_UNCLEAR: Final = frozenset("$*?[{(")
_ASSIGNED: Final = re.compile(r"\w+(?:\[[^\]]*\])?\+?=[^\s;&|()<>`]*[ \t]*")
# What is compared in there is not a command.
_TEST: Final = re.compile(rf"({_BEGINS}[ \t]{{0,200}})\[\[[ \t][^()`\n;]{{0,250}}?[ \t]\]\]")
