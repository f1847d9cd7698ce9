"""Guesses the commands in a script that cannot be parsed."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from typing import Final

from treadle.engine.commands.unclear import CommandTooComplex, Glob, Unclear, values_of
from treadle.shell.words import Word


def guesses(script: str, targets: AbstractSet[str]) -> Iterator[list[str]]:
    """Treat every word that names a target as a command up to the end of its line.

    Raises:
        CommandTooComplex: there are too many of them.
    """
    script = script.replace("\\\n", "")  # line continuations
    yield from _named(script, targets, _BETWEEN.split)
    # A name may contain quotes; without quotes, unclear words are visible too.
    bare = _QUOTES.sub("", script)
    yield from _named(bare, targets, _words)
    yield from _unclear(bare)


def _named(
    script: str, targets: AbstractSet[str], split: Callable[[str], list[str]]
) -> Iterator[list[str]]:
    places = (
        match.start() for match in _pattern(frozenset(targets)).finditer(script.translate(_SMALL))
    )
    starts = list(islice(filter(_begins_word(script), places), _MAX_STARTS + 1))
    if len(starts) > _MAX_STARTS:
        raise CommandTooComplex
    for start in starts:
        line = _LINE.match(script, start, start + _MAX_LINE)
        yield split(line[0].strip()) if line else []


def _unclear(script: str) -> Iterator[list[str]]:
    """Commands whose program is a variable, a pattern or a list in braces.

    Raises:
        CommandTooComplex: there are too many of them, or of places where a command may start.
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
    """A command whose name contains a pattern in parentheses."""
    name = _GROUPED.match(script, at, at + _MAX_LINE)
    if name is not None:
        line = _REST.match(script, name.end(), name.end() + _MAX_LINE)
        yield [Glob(_GROUP.sub("*", name[0])), *(_words(line[0]) if line else [])]


def _program(script: str, at: int) -> int:
    """Find the first word of a command after its variable assignments."""
    end = at + _MAX_LINE
    while (blanks := _ASSIGNED.match(script, at, end)) is not None:
        at = blanks.end()
    return at


def _words(line: str) -> list[str]:
    return values_of(
        [Word(each, "text" if "$" in each else "paths") for each in _BLANK.split(line.strip())]
    )


def _begins_word(script: str) -> Callable[[int], bool]:
    """Return a check whether a word, or the last part of a path, starts at an offset."""

    def begins(at: int) -> bool:
        # zsh expands `=git` to the path of git.
        if at and script[at - 1] == "=":
            at -= 1
        return at == 0 or script[at - 1] == "/" or bool(_ENDS_WORD.match(script, at - 1))

    return begins


@lru_cache(maxsize=16)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    """Matches one of these names at the end of a word; the text before it is checked later."""
    each = "|".join(map(re.escape, sorted(names)))
    return re.compile(f"(?:{each})/*(?:$|(?={_ENDS_WORD.pattern}))")


# Of the same length: programs are found without regard to case.
_SMALL: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
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
# With the following blanks; more blanks than these count as a command.
_START: Final = re.compile(rf"{_BEGINS}[ \t]{{0,200}}")
# With a non-empty parenthesis directly after it.
_WORD: Final = re.compile(r"[^\s;&|()<>`]+(?:(?<!\$)\((?=[^()\s]))?")
# A name with a pattern in parentheses, as in zsh, or in bash with `extglob`.
_GROUPED: Final = re.compile(r"[^\s;&|()<>`$]+(?:\([^()\s]+\)[^\s;&|()<>`$]*)+(?=[ \t])")
_GROUP: Final = re.compile(r"[@+?!*]?\([^()]*\)")
_UNCLEAR: Final = frozenset("$*?[{(")
_ASSIGNED: Final = re.compile(r"\w+(?:\[[^\]]*\])?\+?=[^\s;&|()<>`]*[ \t]*")
# The operands of a test are not commands.
_TEST: Final = re.compile(rf"({_BEGINS}[ \t]{{0,200}})\[\[[ \t][^()`\n;]{{0,250}}?[ \t]\]\]")
