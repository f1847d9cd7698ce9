"""Reads the YAML that people write in small metadata files, without a YAML library.

Block mappings and sequences, flow collections on one line, quoted, plain, literal and folded
scalars, and comments. Anchors, aliases, tags and several documents are errors. A scalar is a text:
the caller knows which of them are numbers or booleans.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn, TypeAlias

import msgspec

YamlValue: TypeAlias = "str | list[YamlValue] | dict[str, YamlValue] | None"

MAX_DEPTH: Final = 16
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BLOCK: Final = re.compile(r"([|>])([+-]?)\Z")
_KEY: Final = re.compile(
    r"(\"(?:[^\"\\]|\\.)*+\"|'(?:[^']|'')*+'|[^\s\"'#\[\]{},&*!|>%@`][^:#]*+):(?:\s++|\Z)"
)
_BLANKS: Final = re.compile(r"\s*+")
_END_OF_PLAIN: Final = re.compile(r"[,\]}]")
_RESERVED: Final = "&*!%@`"
_BAD_QUOTES: Final = "unterminated or invalid quoted text"
_NO_KEY: Final = "expected `key: value`"


class BadYaml(ValueError):
    """The text is not YAML, or uses what is not supported; the message names the line."""


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def read_yaml(text: str) -> YamlValue:
    """Return the value of a document; an empty one is null.

    Raises:
        BadYaml: the text is invalid or not supported.
    """
    return _Reader(text).read()


class _Reader:
    """Reads the lines of one document from the first to the last."""

    def __init__(self, text: str) -> None:
        self._source = text.split("\n")
        self._lines = [line for line in map(_line, range(len(self._source)), self._source) if line]
        if self._lines and self._lines[0].text == "---":
            del self._lines[0]
        self._at = 0

    def read(self) -> YamlValue:
        if not self._lines:
            return None
        value = self._block(self._lines[0].indent, 0)
        if self._at < len(self._lines):
            self._fail("unexpected indentation")
        return value

    def _fail(self, message: str) -> NoReturn:
        at = min(self._at, len(self._lines) - 1)
        raise BadYaml(f"{message} at line {self._lines[at].number}")

    def _peek(self, indent: int) -> _Line | None:
        """Return the next line if it belongs to the block with this indentation."""
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at]
        return line if line.indent == indent else None

    def _block(self, indent: int, depth: int) -> YamlValue:
        if depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels")
        line = self._lines[self._at]
        if _is_entry(line.text):
            return self._sequence(indent, depth)
        if _KEY.match(line.text):
            return self._mapping(indent, depth)
        self._at += 1
        return self._scalar(line.text, indent - 1)

    def _sequence(self, indent: int, depth: int) -> list[YamlValue]:
        values: list[YamlValue] = []
        while (line := self._peek(indent)) is not None and _is_entry(line.text):
            rest = line.text[1:].lstrip(" ")
            if not rest:
                self._at += 1
                values.append(self._below(indent, depth))
            else:
                # The entry's own block begins where its text begins.
                inner = indent + len(line.text) - len(rest)
                self._lines[self._at] = _Line(line.number, inner, rest)
                values.append(self._block(inner, depth + 1))
        return values

    def _mapping(self, indent: int, depth: int) -> dict[str, YamlValue]:
        values: dict[str, YamlValue] = {}
        while (line := self._peek(indent)) is not None:
            match = _KEY.match(line.text)
            if match is None:
                self._fail(_NO_KEY)
            key = _key(match[1])
            if key is None or key in values:
                self._fail(f"repeated or invalid key {match[1][:60]!r}")
            self._at += 1
            rest = line.text[match.end() :]
            values[key] = (
                self._scalar(rest, indent) if rest else self._below(indent, depth, of_key=True)
            )
        return values

    def _below(self, indent: int, depth: int, *, of_key: bool = False) -> YamlValue:
        """Return the value on the following lines, if these are indented; null otherwise."""
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at]
        is_list = of_key and line.indent == indent and _is_entry(line.text)
        if line.indent > indent or is_list:
            return self._block(line.indent, depth + 1)
        return None

    def _scalar(self, text: str, indent: int) -> YamlValue:
        """Return the value that begins with this text, on a line of this indentation."""
        if block := _BLOCK.match(text):
            return self._block_scalar(indent, is_folded=block[1] == ">", chomps=block[2])
        if text[0] in _RESERVED:
            self._at -= 1
            self._fail("anchors, aliases and tags are not supported")
        parts = [text]
        while self._at < len(self._lines) and self._lines[self._at].indent > indent:
            parts.append(self._lines[self._at].text)
            self._at += 1
        joined = " ".join(parts)
        if text[0] in "[{":
            try:
                return _Flow(joined).read()
            except ValueError as error:
                self._fail(str(error))
        if text[0] in "\"'":
            unquoted = _unquote(joined)
            if unquoted is None:
                self._fail(_BAD_QUOTES)
            return unquoted
        return None if joined in _NULLS else joined

    def _block_scalar(self, indent: int, *, is_folded: bool, chomps: str) -> str:
        first = self._lines[self._at - 1].number
        lines: list[str] = []
        for at in range(first, len(self._source)):
            raw = self._source[at]
            if raw.strip() and len(raw) - len(raw.lstrip(" ")) <= indent:
                break
            lines.append(raw)
        while self._at < len(self._lines) and self._lines[self._at].number <= first + len(lines):
            self._at += 1
        filled = [line for line in lines if line.strip()]
        margin = min((len(line) - len(line.lstrip(" ")) for line in filled), default=0)
        cut = [line[margin:].rstrip("\r") for line in lines]
        text = "\n".join(cut).rstrip("\n")
        if is_folded:
            text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
        return text if chomps == "-" or not text else text + "\n"


class _Flow:
    """Reads a flow collection, at a position that only moves on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> YamlValue:
        value = self._value(0)
        if self._next():
            raise ValueError("unexpected text after a collection")
        return value

    def _next(self) -> str:
        """Return the next character that is not blank, or an empty text."""
        self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]  # matches
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> YamlValue:
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels")
        match self._next():
            case "[":
                return self._sequence(depth)
            case "{":
                return self._mapping(depth)
            case '"' | "'":
                return self._quoted()
            case _:
                start = self._at
                mark = _END_OF_PLAIN.search(self._text, start)
                self._at = mark.start() if mark else len(self._text)
                plain = self._text[start : self._at].strip()
                return None if plain in _NULLS else plain

    def _quoted(self) -> str:
        start = self._at
        self._at = _end_of_quoted(self._text, start)
        unquoted = _unquote(self._text[start : self._at])
        if unquoted is None:
            raise ValueError(_BAD_QUOTES)
        return unquoted

    def _sequence(self, depth: int) -> list[YamlValue]:
        values: list[YamlValue] = []
        self._at += 1
        while self._next() != "]":
            values.append(self._value(depth + 1))
            self._end_value("]")
        self._at += 1
        return values

    def _mapping(self, depth: int) -> dict[str, YamlValue]:
        values: dict[str, YamlValue] = {}
        self._at += 1
        while self._next() != "}":
            match = _KEY.match(self._text, self._at)
            key = match and _key(match[1])
            if match is None or key is None:
                raise ValueError(_NO_KEY)
            self._at = match.end()
            values[key] = self._value(depth + 1)
            self._end_value("}")
        self._at += 1
        return values

    def _end_value(self, end: str) -> None:
        found = self._next()
        if found == ",":
            self._at += 1
        elif found != end:
            raise ValueError(f"expected `,` or `{end}`")


def _is_entry(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _line(at: int, raw: str) -> _Line | None:
    """Return a line without its comment; `None` if nothing is left."""
    text = _without_comment(raw.rstrip("\r")).rstrip()
    stripped = text.lstrip(" ")
    if not stripped:
        return None
    if stripped[0] == "\t":
        raise BadYaml(f"tab in the indentation at line {at + 1}")
    return _Line(at + 1, len(text) - len(stripped), stripped)


def _without_comment(text: str) -> str:
    quote = ""
    before = " "
    for at, character in enumerate(text):
        if quote:
            if character == quote and not (quote == '"' and before == "\\"):
                quote = ""
            before = "" if before == "\\" and character == "\\" else character
            continue
        if character == "#" and before in " \t":
            return text[:at]
        if character in "\"'" and before in " \t[{,:-":
            quote = character
        before = character
    return text


def _end_of_quoted(text: str, start: int = 0) -> int:
    """Return where the quoted text that begins there ends."""
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 1
        elif text[at] == quote:
            if quote == '"' or text[at + 1 : at + 2] != "'":
                return at + 1
            at += 1
        at += 1
    return len(text)


def _key(text: str) -> str | None:
    return _unquote(text) if text[0] in "\"'" else text.strip()


def _unquote(text: str) -> str | None:
    """Return the content of a quoted text; `None` if it is invalid."""
    if len(text) < 2 or text[-1] != text[0] or _end_of_quoted(text) != len(text):
        return None
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return None
