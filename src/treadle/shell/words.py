"""The words of a shell script: quotes, escapes, expansions, and how certain their value is.

Knows nothing of commands and operators; a substitution hands over to the reader of lists. What
bash, zsh, ksh and dash read differently is not understood: a judgement has to hold for all of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Final, Literal

from msgspec import Struct

Expansion = Literal["none", "paths", "text"]
"""What the shell may put in a word's place: nothing, names of files, or unknown text."""


class Word(Struct, frozen=True):
    """One word of a command; `text` has its quotes removed, and expansions as they are written.

    `is_plain` says that the reference takes it as it stands, `is_bare` that it has no quotes.
    """

    text: str
    expansion: Expansion = "none"
    is_plain: bool = True
    is_bare: bool = True


class UnparsedScript(Exception):
    """The script uses something that this parser does not know, or is not a script at all."""


WORD_END: Final = frozenset(" \t\n;&|<>()")

_BLANKS: Final = re.compile(r"(?:[ \t]+|\\\n)*")
# Where a line may be continued: after these, nothing that follows makes another operator of them.
_BEFORE_JOIN: Final = re.compile(r"(?:^|[ \t\n]|&&|\|\|)\Z")
_UNTIL_WORD_END: Final = re.compile(r"[^ \t\n;&|<>()]*")
# Runs of characters that are read at once, outside and inside double quotes and backquotes.
_BARE_RUN: Final = re.compile(r"[^ \t\n;&|<>()'\"\\$`]+")
_STRING_RUN: Final = re.compile(r"[^\"\\$`]+")
_DOCUMENT_RUN: Final = re.compile(r"[^\\$`]+")
_BACKQUOTED_RUN: Final = re.compile(r"[^`\\]+")
_ANSI_RUN: Final = re.compile(r"[^'\\]+")

_ENDS_COUNT: Final = re.compile(r"$|[\s\"'`;&|()<>/.,\]}%]")
_MODIFIER: Final = re.compile(r":[A-Za-z#&]")
_PARAMETER: Final = re.compile(r"\{#?[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
# Names are left out: the shell evaluates a variable's value too, and that may run commands.
_SUM: Final = re.compile(r"\(\([0-9+*/%<>=&|^!~?: \t-]*\)\)")
# No quote among them: a shell that does not know this quoting would take it as the closing one.
_ANSI: Final = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|[abeEfnrtv\\\"?])")
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_PATH_CHARACTERS: Final = re.compile(r"[*?\[\]{}~]")
_NOT_PLAIN: Final = re.compile(r"[*?\[\]{}~^#]")
# zsh ends a group at a brace that stands alone, wherever that is.
_BRACES: Final = frozenset({"{", "}"})


class WordReader(ABC):
    """Reads words from one text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @abstractmethod
    def read_list(self, closing: str) -> None:
        """Read the commands of a substitution, up to the closing character."""

    @abstractmethod
    def read_inner(self, script: str) -> None:
        """Read a script that was cut out of this text."""

    @abstractmethod
    def count_step(self) -> None:
        """Count one more piece of the script; a script may have only so many."""

    def read_word(self) -> Word:
        """Read one word, which must be there."""
        self.count_step()
        word = _WordBuilder()
        start = self._at
        if self._text.startswith("<(", self._at):
            self._at += 2
            self.read_list(")")
            word.add_process()
        while (character := self.peek()) and character not in WORD_END:
            if run := _BARE_RUN.match(self._text, self._at):
                word.add_bare(run[0])
                self._at = run.end()
                continue
            self.count_step()
            self._at += 1
            self._read_special(word, character)
        # A parenthesis that touches a word defines a function, is its own kind of pattern, or
        # makes a process part of the word.
        if self._at == start or self._text.startswith(("(", "<(", ">("), self._at):
            raise UnparsedScript
        # `{name}<file` assigns the variable `name`.
        if self.peek() in {"<", ">"} and self._text[self._at - 1] == "}":
            raise UnparsedScript
        return word.build()

    def _read_special(self, word: _WordBuilder, character: str) -> None:
        if character == "'":
            word.add_quoted(self._read_until_quote())
        elif character == '"':
            word.add_quoted("")
            self._read_string(word, '"')
            self._at += 1
        elif character == "\\":
            # Joined with the next line, this may be another word, operator or expansion.
            if self.peek() == "\n":
                raise UnparsedScript
            self._read_escape(word)
        else:
            self._read_expansion(word, character, is_quoted=False)

    def read_expandable(self) -> None:
        """Read the whole text as the body of a here-document, for the commands that are in it."""
        self._read_string(_WordBuilder(), "")

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._at : self._at + 1]

    def peek_bare(self) -> str:
        """The next word as it is written."""
        match = _UNTIL_WORD_END.match(self._text, self._at)
        return match[0] if match else ""

    def take(self, text: str) -> bool:
        """Go past a text, if it comes next."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def skip_blanks(self) -> None:
        """Go past blanks and continued line ends."""
        # Shells join lines first, so that what stands before and after may be one operator.
        if self._text.startswith("\\\n", self._at) and not _BEFORE_JOIN.search(
            self._text, max(0, self._at - 2), self._at
        ):
            raise UnparsedScript
        if match := _BLANKS.match(self._text, self._at):
            self._at = match.end()

    def _read_until_quote(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise UnparsedScript
        text = self._text[self._at : end]
        self._at = end + 1
        return text

    def _read_escape(self, word: _WordBuilder) -> None:
        character = self.peek()
        if not character:
            raise UnparsedScript
        self._at += 1
        if character != "\n":
            word.add_quoted(character)
            word.is_plain = False

    def _read_string(self, word: _WordBuilder, end: str) -> None:
        """Read what stands between double quotes; the closing one is left for the caller."""
        plain = _STRING_RUN if end else _DOCUMENT_RUN
        while (character := self.peek()) != end:
            if not character:
                raise UnparsedScript
            if run := plain.match(self._text, self._at):
                word.parts.append(run[0])
                self._at = run.end()
                continue
            self.count_step()
            self._at += 1
            if character == "\\" and self.peek() and self.peek() in '$`"\\\n':
                self._read_escape(word)
            elif character in "$`":
                self._read_expansion(word, character, is_quoted=True)
            else:
                word.parts.append(character)

    def _read_expansion(self, word: _WordBuilder, character: str, *, is_quoted: bool) -> None:
        word.is_plain = False
        start = self._at - 1
        if character == "`":
            self._read_backquoted(is_quoted=is_quoted)
        elif match := _SUM.match(self._text, self._at):
            self._at = match.end()
        elif self.peek() in {"{", "[", "("} and not self._is_simple_expansion():
            raise UnparsedScript
        elif self.take("("):
            self.read_list(")")
        elif match := _PARAMETER.match(self._text, self._at):
            self._at = match.end()
            # zsh evaluates the subscript, and that may assign variables and run commands. It may
            # also stand at the beginning of the next line.
            if self._text.startswith(("[", "\\\n"), self._at):
                raise UnparsedScript
            # zsh reads `$#name[...]` as a length, and evaluates what modifiers such as `:F` name.
            if match[0] == "#" and not _ENDS_COUNT.match(self._text, self._at):
                raise UnparsedScript
            if _MODIFIER.match(self._text, self._at):
                raise UnparsedScript
        else:
            self._read_dollar_quoted(word, is_quoted=is_quoted)
            return
        word.add_text(self._text[start : self._at])

    def _is_simple_expansion(self) -> bool:
        if self.peek() == "(":
            return not self._text.startswith("((", self._at)
        return _PARAMETER.match(self._text, self._at) is not None

    def _read_dollar_quoted(self, word: _WordBuilder, *, is_quoted: bool) -> None:
        # Not every shell knows these quotes; the others take the dollar sign as it is.
        if not is_quoted and self.take("'"):
            word.add_text("")
            self._read_ansi_quoted(word)
        elif not is_quoted and self.take('"'):
            word.add_text("")
            self._read_string(word, '"')
            self._at += 1
        elif self._text.startswith(("\\\n", "=", "^", "~", "+"), self._at) or self.peek().isalpha():
            # The shell joins lines first, so that this may yet become a substitution. The other
            # characters are flags of an expansion in zsh, where any letter may begin a name.
            raise UnparsedScript
        else:
            word.parts.append("$")

    def _read_ansi_quoted(self, word: _WordBuilder) -> None:
        parts: list[str] = []
        while (character := self.peek()) != "'":
            if not character:
                raise UnparsedScript
            if run := _ANSI_RUN.match(self._text, self._at):
                parts.append(run[0])
                self._at = run.end()
                continue
            self.count_step()
            match = _ANSI.match(self._text, self._at)
            if match is None:
                raise UnparsedScript
            parts.append(_unescape(match[1]))
            self._at = match.end()
        self._at += 1
        word.add_quoted("".join(parts))

    def _read_backquoted(self, *, is_quoted: bool) -> None:
        parts: list[str] = []
        while (character := self.peek()) != "`":
            if not character:
                raise UnparsedScript
            if run := _BACKQUOTED_RUN.match(self._text, self._at):
                parts.append(run[0])
                self._at = run.end()
                continue
            self.count_step()
            self._at += 1
            following = self.peek()
            if following and following in "$`\\":
                character = following
                self._at += 1
            elif following == "\n" or (following == '"' and is_quoted):
                # Shells differ in whether the inner script sees the backslash.
                raise UnparsedScript
            parts.append(character)
        self._at += 1
        self.read_inner("".join(parts))


class _WordBuilder:
    """Collects the pieces of one word."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.is_plain = True
        self._is_bare = True
        self._expansion: Expansion = "none"

    def add_bare(self, run: str) -> None:
        # In zsh `=ls` stands for the path of ls.
        is_expanded = _PATH_CHARACTERS.search(run) is not None or (
            run[0] == "=" and not any(self.parts)
        )
        self.parts.append(run)
        if is_expanded or _NOT_PLAIN.search(run):
            self.is_plain = False
        if is_expanded and self._expansion == "none":
            self._expansion = "paths"

    def add_quoted(self, text: str) -> None:
        self.parts.append(text)
        self._is_bare = False

    def add_text(self, text: str) -> None:
        self.parts.append(text)
        self.is_plain = False
        self._is_bare = False
        self._expansion = "text"

    def add_process(self) -> None:
        """Add the path under which a process is read."""
        self.parts.append("<()")
        self.is_plain = False
        self._is_bare = False
        self._expansion = "paths"

    def build(self) -> Word:
        text = "".join(self.parts)
        if self._is_bare and text in _BRACES:
            raise UnparsedScript
        return Word(text, self._expansion, self.is_plain, self._is_bare)


def _unescape(escape: str) -> str:
    if escape[0] == "x":
        return chr(int(escape[1:], 16))
    if escape[0] in "01234567":
        return chr(int(escape, 8) & 0xFF)
    return _ANSI_LETTERS.get(escape, escape)
