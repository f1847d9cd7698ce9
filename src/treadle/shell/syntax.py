"""A small parser of shell scripts: enough of bash to say which programs run, with which words.

It lists every simple command, wherever in the script it stands. What it does not understand makes
the whole script not understood: a caller that judges safety must never guess. A script that is too
long, or has too many pieces, is not understood either, so that reading one takes a bounded time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from treadle.shell.words import WORD_END, UnparsedScript, Word, WordReader


class Document(Struct):
    """The text of a here-document; `is_literal` says that nothing in it is expanded."""

    is_literal: bool
    text: str = ""


class Redirection(Struct, frozen=True):
    """Where a stream goes or comes from: an operator and its target."""

    operator: str
    target: Word
    document: Document | None = None


class Simple(Struct, frozen=True):
    """A simple command; without words it only assigns or redirects.

    `ends_group` says that it stands for the redirections of a group, and runs nothing.
    """

    words: tuple[Word, ...]
    has_assignments: bool = False
    redirections: tuple[Redirection, ...] = ()
    ends_group: bool = False


class ParsedScript(Struct, frozen=True):
    """All simple commands of a script, those in groups and substitutions among them.

    `is_plain` says that it is nothing but plain words, joined by `|`, `&&`, `||`, `;` and newlines.
    `has_control` says that some of it may run often or never: loops and conditions.
    """

    commands: tuple[Simple, ...]
    is_plain: bool
    has_control: bool


MAX_SCRIPT: Final = 128 * 1024
"""The longest script that is read, in characters; Linux starts no program with a longer word."""


def parse(script: str) -> ParsedScript | None:
    """Read a script; None if any part of it is not understood."""
    return None if len(script) > MAX_SCRIPT else _parse(script)


# One command is judged by several functions, each of which reads its script.
@lru_cache(maxsize=8)
def _parse(script: str) -> ParsedScript | None:
    if _STRANGE_CHARACTERS.search(script):
        return None
    parser = _Parser(script, _Found([]), 0)
    try:
        parser.read_list("")
    except UnparsedScript:
        return None
    return ParsedScript(tuple(parser.found.commands), parser.is_plain, parser.has_control)


# Carriage returns are among them: bash takes one as a letter, and people read it as a line's end.
# Shells disagree about the others: where they end words, and what a byte that is not text becomes.
_STRANGE_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\xa0\ud800-\udfff]")
_MAX_DEPTH: Final = 20
_MAX_STEPS: Final = 1000

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# In zsh and ksh, letters of any language make a name.
_ASSIGNMENT: Final = re.compile(r"[^\W\d]\w*(\[[^\]]*\])?\+?=")
_SUBSCRIPT: Final = re.compile(r"[^\W\d]\w*\[")
_REDIRECT: Final = re.compile(r"([0-9]*)(<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>)")
_EMPTY_LINES: Final = re.compile(r"[ \t\n]*")
_ENDS_COMMAND: Final = frozenset({"", "\n", ";", "&", "|", ")", "#"})

_LEADING: Final = frozenset("if then elif else while until do".split())
_CLOSING: Final = frozenset("fi done".split())
_REFUSED: Final = frozenset("case esac select function coproc [[ ]] }".split())
# The reference's grammar has rules of their own for these, so they are not plain commands there.
_DECLARING: Final = frozenset("declare export local readonly typeset unset unsetenv".split())


class _Found(Struct):
    """What a parser and those of its substitutions share."""

    commands: list[Simple]
    steps: int = 0


class _Parser(WordReader):
    """Reads lists of commands; those of substitutions join the same list."""

    def __init__(self, text: str, found: _Found, depth: int) -> None:
        super().__init__(text)
        self.found = found
        self.is_plain = True
        self.has_control = False
        self._depth = depth
        self._documents: list[tuple[str, bool, Document]] = []

    def count_step(self) -> None:
        """Count one more piece of the script; a script may have only so many."""
        self.found.steps += 1
        if self.found.steps > _MAX_STEPS:
            raise UnparsedScript

    def read_list(self, closing: str) -> None:
        """Read commands up to the closing character, or up to the end if it is empty."""
        self._depth += 1
        if self._depth > _MAX_DEPTH or self._documents:
            raise UnparsedScript
        is_wanted = False
        while True:
            self._skip_lines()
            if self._closes(closing):
                break
            self._read_command()
            is_wanted = self._read_operator(closing)
            if is_wanted:
                self._skip_lines()
                if self._closes(closing):
                    raise UnparsedScript
        self._depth -= 1

    def read_inner(self, script: str) -> None:
        """Read a script that was cut out of this text."""
        inner = _Parser(script, self.found, self._depth)
        inner.read_list("")
        self.has_control = self.has_control or inner.has_control

    # Lists and operators

    def _closes(self, closing: str) -> bool:
        if self._at == len(self._text):
            if closing or self._documents:
                raise UnparsedScript
            return True
        if not closing or self.peek() != closing:
            return False
        after = self._text[self._at + 1 : self._at + 2]
        if closing == "}" and after and after not in WORD_END:
            return False
        # Shells differ in where such a document begins.
        if self._documents:
            raise UnparsedScript
        self._at += 1
        return True

    def _read_operator(self, closing: str) -> bool:
        """Go past what ends a command; true if another command has to follow."""
        self.count_step()
        self.skip_blanks()
        self._skip_comment()
        if self.take("&&") or self.take("||"):
            return True
        if self.take("|&"):
            self.is_plain = False
            return True
        if self.take("|"):
            return True
        # `&>` is one operator for bash, and for sh the end of a command and another one.
        if self.peek() == "&" and not self._text.startswith("&>", self._at):
            self._at += 1
            self.is_plain = False
            return False
        if self.peek() == ";" and not self._text.startswith(";;", self._at):
            self._at += 1
            return False
        if self.peek() in {"", "\n"} or (closing == ")" and self.peek() == ")"):
            return False
        raise UnparsedScript

    def _skip_comment(self) -> None:
        if self.peek() == "#":
            self.is_plain = False
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end

    def _skip_lines(self) -> None:
        while True:
            self.skip_blanks()
            self._skip_comment()
            if not self.take("\n"):
                return
            self.count_step()
            if self._documents:
                self._read_documents()
            elif match := _EMPTY_LINES.match(self._text, self._at):
                self._at = match.end()

    # Commands

    def _read_command(self) -> None:
        if self.peek() == "(" and not self._text.startswith("((", self._at):
            self._read_group("(", ")")
            return
        word = self.peek_bare()
        if word in _REFUSED:
            raise UnparsedScript
        if word == "{":
            self._read_group("{", "}")
        elif word == "!":
            self.is_plain = False
            self._at += 1
            self.skip_blanks()
            self._read_again()
        elif word in _LEADING:
            self._enter_control(word)
            self._skip_lines()
            self._read_again()
        elif word in _CLOSING:
            self._enter_control(word)
            self._read_end_of_group()
        elif word == "for":
            self._enter_control(word)
            self._read_loop_head()
        else:
            self._read_simple()

    def _read_again(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnparsedScript
        self._read_command()
        self._depth -= 1

    def _enter_control(self, word: str) -> None:
        self.is_plain = False
        self.has_control = True
        self._at += len(word)

    def _read_group(self, opening: str, closing: str) -> None:
        self.is_plain = False
        self._at += len(opening)
        self.read_list(closing)
        self._read_end_of_group()

    def _read_end_of_group(self) -> None:
        redirections: list[Redirection] = []
        self.skip_blanks()
        while (redirection := self._read_redirection()) is not None:
            redirections.append(redirection)
            self.skip_blanks()
        if redirections:
            command = Simple((), redirections=tuple(redirections), ends_group=True)
            self.found.commands.append(command)

    def _read_loop_head(self) -> None:
        self.skip_blanks()
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise UnparsedScript
        self._at = name.end()
        self.skip_blanks()
        if self.peek_bare() != "in":
            raise UnparsedScript
        self._at += 2
        self.skip_blanks()
        while self.peek() not in {"", "\n", ";"}:
            self.read_word()
            self.skip_blanks()

    def _read_simple(self) -> None:
        words: list[Word] = []
        redirections: list[Redirection] = []
        has_assignments = False
        while True:
            self.skip_blanks()
            if (redirection := self._read_redirection()) is not None:
                redirections.append(redirection)
                continue
            if self.peek() in _ENDS_COMMAND:
                break
            start = self._at
            word = self.read_word()
            if not words and _ASSIGNMENT.match(self._text, start, self._at):
                has_assignments = True
                continue
            # An assignment whose subscript has blanks or brackets in it.
            if not words and _SUBSCRIPT.match(self._text, start, self._at):
                raise UnparsedScript
            words.append(word)
        if not (words or redirections or has_assignments):
            raise UnparsedScript
        command = Simple(tuple(words), has_assignments, tuple(redirections))
        self.found.commands.append(command)
        self.is_plain = self.is_plain and _is_plain(command)

    # Redirections

    def _read_redirection(self) -> Redirection | None:
        match = _REDIRECT.match(self._text, self._at)
        if match is None:
            return None
        # In zsh and dash only one digit names a stream, and two are a word.
        if len(match[1]) > 1:
            raise UnparsedScript
        self._at = match.end()
        operator = match[2]
        # bash ends the operator `>&-` here, whatever follows; other shells read a word.
        if operator in {"<&", ">&"} and self.peek() == "-" and self.peek_bare() != "-":
            raise UnparsedScript
        self.skip_blanks()
        # This would begin a comment.
        if self.peek() == "#":
            raise UnparsedScript
        begin = self._at
        target = self.read_word()
        document: Document | None = None
        if operator in {"<<", "<<-"}:
            raw = self._text[begin : self._at]
            if target.expansion == "text" or not target.text or "\n" in raw:
                raise UnparsedScript
            document = Document(raw != target.text)
            self._documents.append((target.text, operator == "<<-", document))
        return Redirection(operator, target, document)

    def _read_documents(self) -> None:
        documents, self._documents = self._documents, []
        for end, strips_tabs, document in documents:
            body = self._read_until_line(end, strips_tabs=strips_tabs)
            document.text = body
            if document.is_literal:
                continue
            # A line that ends like this is joined with the next, which then does not end the text.
            if "\\\n" in body:
                raise UnparsedScript
            inner = _Parser(body, self.found, self._depth)
            inner.read_expandable()
            self.has_control = self.has_control or inner.has_control

    def _read_until_line(self, end: str, *, strips_tabs: bool) -> str:
        """Read the lines before one, and go past it.

        Line by line: an expression takes quadratic time if the end begins with tabs, too.
        """
        start = self._at
        while self._at < len(self._text):
            begin, newline = self._at, self._text.find("\n", self._at)
            stop = len(self._text) if newline < 0 else newline
            self._at = min(stop + 1, len(self._text))
            line = self._text[begin:stop]
            if (line.lstrip("\t") if strips_tabs else line) == end:
                return self._text[start:begin]
        raise UnparsedScript


def _is_plain(command: Simple) -> bool:
    if command.has_assignments or command.redirections or not command.words:
        return False
    first = command.words[0]
    is_name = first.is_bare and first.text not in _DECLARING and not first.text.isdecimal()
    return is_name and all(word.is_plain for word in command.words)
