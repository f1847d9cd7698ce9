"""A query: words that a path must match, each in its own way.

`app` matches with gaps, `'app` without, `^app` at the start, `app$` at the end and `^app$` as a
whole. `!app` excludes paths that match without gaps. A backslash makes a special character or a
space ordinary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from treadle.server.file_search import scores
from treadle.server.file_search.scores import Alignment, Matcher, Text
from treadle.server.file_search.text import classes, without_accents, without_case

_WORDS: Final = re.compile(r"(?:\\\s|\S)+")


class SearchWord(NamedTuple):
    """One word of a query."""

    needle: str
    match: Matcher
    excludes: bool
    has_accents: bool


class Query:
    """What a client searches for."""

    def __init__(self, text: str) -> None:
        words = map(_parse, _WORDS.findall(text))
        self.words: Sequence[SearchWord] = [word for word in words if word.needle]
        self.filters: Sequence[Callable[[str], object]] = [
            _subsequence(word.needle)
            for word in self.words
            if not (word.excludes or word.has_accents)
        ]
        """What rejects most paths that do not match; given a path without case and accents."""

    def align(self, path: str, plain: str) -> Alignment | None:
        """Return the score of a path and the characters that match; `plain` is without accents."""
        text = Text(plain, classes(path))
        score, positions = 0, set[int]()
        for word in self.words:
            compared = Text(without_case(path), text.classes) if word.has_accents else text
            found = word.match(compared, word.needle)
            if word.excludes:
                if found is not None:
                    return None
            elif found is None:
                return None
            else:
                score += found[0]
                positions.update(found[1])
        return score, sorted(positions)

    @property
    def plain_needle(self) -> str | None:
        """The query, if it is a single word of letters and digits.

        A path in which it follows a slash has the highest possible score.
        """
        if len(self.words) != 1:
            return None
        needle, match, _, _ = self.words[0]
        is_plain = match is scores.fuzzy and needle.isascii() and needle.isalnum()
        return needle if is_plain else None


def _parse(word: str) -> SearchWord:
    excludes = word.startswith("!")
    if word.startswith(("!", "\\!")):
        word = word[1:]
    match = scores.fuzzy
    if word.startswith("^"):
        match, word = scores.prefix, word[1:]
    elif word.startswith("'"):
        match, word = scores.substring, word[1:]
    elif word.startswith(("\\^", "\\'")):
        word = word[1:]
    end = ""
    if word.endswith("\\$"):
        word, end = word[:-2], "$"
    elif word.endswith("$"):
        match = scores.suffix if match is scores.fuzzy else scores.exact
        word = word[:-1]
    if excludes and match is scores.fuzzy:
        match = scores.substring
    needle = without_case(re.sub(r"\\(\s)", r"\1", word)) + end
    return SearchWord(needle, match, excludes, without_accents(needle) != needle)


def _subsequence(needle: str) -> Callable[[str], object]:
    # Without backtracking: what is skipped never contains the character that is looked for.
    parts = (f"[^{re.escape(character)}]*+{re.escape(character)}" for character in needle)
    return re.compile("".join(parts)).match
