"""The commands that may be in a script which is not understood."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from typing import Final

from treadle.engine.commands.unclear import TooComplex, Unclear, values_of
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
        raise TooComplex
    for start in starts:
        line = _LINE.match(script, start, start + _MAX_LINE)
        yield split(line[0].strip()) if line else []


def _unclear(script: str) -> Iterator[list[str]]:
    """Commands whose program is not a name, but a variable, a pattern or a list in braces."""
    script = _TEST.sub(r"\1[[ ]]", _SUM.sub("0", script))
    for count, match in enumerate(_UNCLEAR_PROGRAM.finditer(script)):
        if count > _MAX_STARTS:
            raise TooComplex
        # The last branch of a `case`.
        if match["word"] == "*" and script.startswith(")", match.end()):
            continue
        line = _REST.match(script, match.start("word"), match.start("word") + _MAX_LINE)
        words = _words(line[0]) if line else []
        if words and (isinstance(words[0], Unclear) or "{" in match["word"]):
            yield words


def _words(line: str) -> list[str]:
    return values_of(
        [Word(each, "text" if "$" in each else "paths") for each in _BLANK.split(line.strip())]
    )


def _begins_word(script: str) -> Callable[[int], bool]:
    """Whether a word begins at a place, or the last part of a path."""
    return lambda at: at == 0 or script[at - 1] == "/" or bool(_ENDS_WORD.match(script, at - 1))


@lru_cache(maxsize=16)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    """One of these names at the end of a word; what is before it is not looked at, for speed."""
    each = "|".join(map(re.escape, sorted(names)))
    return re.compile(f"(?:{each})/*(?:$|(?={_ENDS_WORD.pattern}))")


_MAX_STARTS: Final = 400
_MAX_LINE: Final = 2000
_ENDS_WORD: Final = re.compile(r"[\s'\"<>$\\;&|()`{}]")
_LINE: Final = re.compile(r"[^\n;&|()`{}]+")
_REST: Final = re.compile(r"[^\n;&|()`]+")
_BETWEEN: Final = re.compile(r"[\s'\"<>$\\]+")
_BLANK: Final = re.compile(r"[\s<>]+")
_QUOTES: Final = re.compile(r"['\"\\]")
_SUM: Final = re.compile(r"\$\(\([^()`\n]*\)\)")
_START: Final = r"(?:^|[\n;&|()`]|\b(?:if|then|elif|else|while|until|do|time)[ \t]|[!{][ \t])[ \t]*"
# What is compared in there is no command.
_TEST: Final = re.compile(rf"({_START})\[\[[ \t][^()`\n;]{{0,300}}?[ \t]\]\]")
_UNCLEAR_PROGRAM: Final = re.compile(
    rf"{_START}(?:\w+\+?=[^\s;&|()<>`]*[ \t]+)*(?!\w+(?:\[[^\]]*\])?\+?=)"
    r"(?P<word>[^\s;&|()<>`$*?\[{]*[$*?\[{][^\s;&|()<>`]*)"
)
