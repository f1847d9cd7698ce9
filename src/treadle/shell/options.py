"""Allow lists of options and operands, by program.

Only listed options are allowed, so an option that a new release adds, or that only one
implementation has, is never considered harmless.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from treadle.shell.words import Word

Shape = Literal["any", "number", "format"]
"""The kind of a value; a format must not make git verify signatures, which runs a program."""


class _Option(Struct, frozen=True):
    """Whether an option takes a value, and where it is."""

    value: Literal["none", "required", "optional", "separate"] = "none"
    shape: Shape = "any"


class AllowedArguments:
    """The allowed arguments of one program.

    `text` names the options, separated by blanks:

    - `-abc` letters without a value, which may be joined
    - `-n:` a letter whose value follows it in the same word, or is the next word
    - `-n;` a letter that ends its word, and whose value is the next word
    - `-I?` a letter whose value, if there is one, follows it in the same word
    - `-#` a number by itself, as in `-5`
    - `--name`, `--name=`, `--name?` long options without, with, and with an optional value

    A value may be marked: `-n:#` must be a number, `--format=%` a format of git's. Long options
    must be spelled out.

    `max_operands` limits the operands. `options_first` refuses options behind an operand, which
    some systems take as operands. `takes_anything` says that no option of any implementation
    writes or starts a program, so that the shell may put what it likes in a word's place.
    `has_end` says that `--` ends the options.
    """

    def __init__(
        self,
        text: str = "",
        *,
        max_operands: int | None = None,
        options_first: bool = False,
        takes_anything: bool = False,
        has_end: bool = True,
    ) -> None:
        self._short: dict[str, _Option] = {}
        self._long: dict[str, _Option] = {}
        self._has_numbers = False
        self._max_operands = max_operands
        self._options_first = options_first
        self._takes_anything = takes_anything
        self._has_end = has_end
        for each in text.split():
            self._add(each)

    def _add(self, text: str) -> None:
        if text == "-#":
            self._has_numbers = True
            return
        match = _ENTRY.fullmatch(text)
        if match is None:
            raise ValueError(f"not an option: {text!r}")
        dashes, name, sign, mark = match.groups()
        option = _Option(_VALUES[sign], _SHAPES[mark])
        if dashes == "--":
            self._long[name] = option
        elif sign:
            self._short[name] = option
        else:
            self._short.update(dict.fromkeys(name, option))

    def accepts(self, words: Sequence[Word]) -> bool:
        """Return whether all words of a program are allowed."""
        operands = at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word.expansion == "none" and word.text == "--":
                rest = words[at:]
                return self._has_end and self._accepts_operands(rest, operands + len(rest))
            if not _is_option(word):
                operands += 1
                if not self._accepts_expansion(word):
                    return False
                continue
            if self._options_first and operands:
                return False
            option = self._find(word.text)
            if option is None:
                return False
            if option.value in {"required", "separate"}:
                if at == len(words) or not _is_separate_value(words[at], option.shape):
                    return False
                at += 1
        return self._accepts_operands((), operands)

    def _accepts_operands(self, rest: Sequence[Word], count: int) -> bool:
        if self._max_operands is None:
            return True
        return count <= self._max_operands and all(word.expansion == "none" for word in rest)

    def _accepts_expansion(self, word: Word) -> bool:
        """Return whether the word, after expansion, can only be operands."""
        if word.expansion == "none" or self._takes_anything:
            return True
        # A word that does not begin with a wildcard begins with its literal text.
        is_name = word.expansion == "paths" and word.text[:1] not in _MAY_BECOME_OPTION
        return is_name and self._max_operands is None

    def _find(self, text: str) -> _Option | None:
        """Return the option whose value is still to come, or a plain one; None if not allowed."""
        if text.startswith("--"):
            return self._find_long(text)
        if self._has_numbers and _NUMBER.fullmatch(text[1:]):
            return _PLAIN
        for at, letter in enumerate(text[1:], start=2):
            option = self._short.get(letter)
            if option is None:
                return None
            if option.value == "none":
                continue
            rest = text[at:]
            if option.value == "optional":
                return _PLAIN
            if not rest:
                return option
            is_attached = option.value == "required" and _fits(rest, option.shape)
            return _PLAIN if is_attached else None
        return _PLAIN

    def _find_long(self, text: str) -> _Option | None:
        name, equals, value = text[2:].partition("=")
        option = self._long.get(name)
        if option is None or not equals:
            return _PLAIN if option is not None and option.value == "optional" else option
        is_given = option.value != "none" and _fits(value, option.shape)
        return _PLAIN if is_given else None


def _is_option(word: Word) -> bool:
    return word.expansion == "none" and word.text[:1] == "-" and word.text != "-"


def _is_separate_value(word: Word, shape: Shape) -> bool:
    """Return whether a word may be a value; otherwise it is an option or operand."""
    if word.expansion != "none" or not _fits(word.text, shape):
        return False
    is_option = word.text[:1] == "-" and word.text != "-"
    return not is_option or _NEGATIVE.fullmatch(word.text) is not None


def _fits(value: str, shape: Shape) -> bool:
    if shape == "number":
        return _NUMBER.fullmatch(value) is not None
    return shape == "any" or _SIGNATURE.search(value) is None


_ENTRY: Final = re.compile(r"(--?)([A-Za-z0-9@.,%-]*[A-Za-z0-9@.,%])([:;=?]?)([#%]?)")
_VALUES: Final[dict[str, Literal["none", "required", "optional", "separate"]]] = {
    "": "none",
    ":": "required",
    "=": "required",
    ";": "separate",
    "?": "optional",
}
_SHAPES: Final[dict[str, Shape]] = {"": "any", "#": "number", "%": "format"}
_PLAIN: Final = _Option()
_NUMBER: Final = re.compile(r"[0-9]+")
_NEGATIVE: Final = re.compile(r"-[0-9]+[A-Za-z]*")
_SIGNATURE: Final = re.compile(r"%[-+ ]?G|signature")
_MAY_BECOME_OPTION: Final = frozenset(["", *"-*?[{="])
