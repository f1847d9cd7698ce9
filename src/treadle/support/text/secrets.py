"""Secrets in requests: which values they are, and how to remove them from text."""

from __future__ import annotations

import base64
import json
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

REDACTED: Final = "[redacted]"
MAX_TEXT: Final = 64 * 1024
"""The maximum number of characters of an error text that are searched; the rest is dropped."""

# A shorter value protects nothing, and replacing it would mutilate ordinary words.
_MIN_CHARS: Final = 6
_MIN_BASE64_CHARS: Final = 8
# Tokens are renewed, and an error may belong to an earlier request. No request has this many.
_MAX_SECRETS: Final = 256
_SECRET_NAME: Final = re.compile(r"key|token|secret|auth|pass|sig|cred|cookie", re.IGNORECASE)
# The escapes of JSON, of literals in programs, of URLs and of HTML, in lower case. In HTML the
# semicolon may be missing where another character follows.
_ESCAPE: Final = re.compile(
    rb"\\(?:u(?P<wide>000[01][0-9a-f]{4})|u(?!000[01][0-9a-f]{0,3}\Z)(?P<unit>[0-9a-f]{4})"
    rb"|x(?P<literal>[0-9a-f]{2})"
    rb"|[ux]\{0*+(?P<braced>[0-9a-f]{1,6})\}|(?P<octal>[0-3][0-7]{2})"
    rb"|(?P<itself>[ -/:-@\[-`{-~]))"
    rb"|%(?P<byte>[0-9a-f]{2})"
    rb"|&(?:\#x0*+(?P<hex>[0-9a-f]{1,6})(?:;|(?=[^0-9a-f]))"
    rb"|\#0*+(?P<decimal>[0-9]{1,7})(?:;|(?=[^0-9]))|(?P<name>[a-z]{2,24}[0-9]{0,2});)"
)
_ENTITIES: Final = {b"amp": b"&", b"quot": b'"', b"apos": b"'", b"lt": b"<", b"gt": b">"}
# An escape that a cut has left unfinished.
_OPEN_ESCAPE: Final = re.compile(
    rb"(?:\\(?:u(?:[0-9a-f]{0,7}|\{[0-9a-f]{0,6})|x(?:[0-9a-f]?|\{[0-9a-f]{0,6})|[0-3][0-7]?)?"
    rb"|%[0-9a-f]?|&[#a-z0-9]{0,9})\Z"
)
# What wraps a long line of base64, also where a document shows it escaped.
_LINE_BREAK: Final = re.compile(rb"(?:\\?[\r\n]|\\[rn])++[ \t]*+")
# Fewer characters of a secret may remain before a cut: they are part of many words.
_MIN_PART: Final = 4
# A proxy may quote the quotation of another service.
_MAX_LAYERS: Final = 3
# Values that errors need to quote, and that grant no access.
_PUBLIC_NAME: Final = re.compile(r"version|accept|content-type|user-agent", re.IGNORECASE)


class Secrets:
    """The secrets of the latest requests to one service."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, None] = {}
        self._forms: frozenset[bytes] | None = None
        self.add(values)

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, values: Iterable[str]) -> None:
        """Store secrets; beyond the limit, the oldest are dropped."""
        for value in values:
            if len(value) >= _MIN_CHARS:
                # Every request adds its secrets; the forms of known ones stay.
                if value not in self._values:
                    self._forms = None
                self._values.pop(value, None)
                self._values[value] = None
        while len(self._values) > _MAX_SECRETS:
            del self._values[next(iter(self._values))]

    def redact(self, text: str, *, limit: int | None = MAX_TEXT, is_cut: bool = False) -> str:
        """Replace each secret in a text, in any case and in the usual encodings.

        A text beyond the limit is cut. At the end of one that is cut, or that the caller knows to
        be incomplete, a possible part of a secret is replaced too.
        """
        if self._forms is None:
            forms = (form for value in self._values for form in _forms(value))
            self._forms = frozenset(_lowered(form.encode("utf-8", "replace")) for form in forms)
        data = text[:limit].encode("utf-8", "surrogatepass")
        is_cut = is_cut or (limit is not None and len(text) > limit)
        ranges = []
        # The blank ends an escape at the end of a whole text.
        for layer in _layers(data if is_cut else data + b" "):
            ranges += [layer.original(found) for found in find_ranges(layer.text, self._forms)]
            start = _start_of_part(layer.text, self._forms) if is_cut else None
            if start is not None:
                ranges.append(layer.original((start, len(layer.text))))
        if not ranges:
            return text[:limit]
        return _replace_ranges(data, ranges).decode("utf-8", "replace")


class _Layer:
    """A text without some of the escapes of the original, and the positions of its bytes there."""

    def __init__(self, text: bytes, starts: Sequence[int], ends: Sequence[int]) -> None:
        self.text = text
        self._starts = starts
        self._ends = ends

    def original(self, found: tuple[int, int]) -> tuple[int, int]:
        """Return the range of the original text from which a range of this one comes."""
        start, end = found
        return self._starts[start], self._ends[end - 1]

    def unescaped(self) -> _Layer | None:
        """Return the text with each escape replaced by its character; nothing without any."""
        return self._replaced(_ESCAPE, _character)

    def joined(self) -> _Layer | None:
        """Return the text without line breaks; nothing without any."""
        return self._replaced(_LINE_BREAK, lambda _found: b"")

    def _replaced(
        self, pattern: re.Pattern[bytes], plain_of: Callable[[re.Match[bytes]], bytes]
    ) -> _Layer | None:
        pieces: list[bytes] = []
        starts, ends = array("L"), array("L")
        at = 0
        for escape in pattern.finditer(self.text):
            first, last = escape.span()
            plain = plain_of(escape)
            pieces += [self.text[at:first], plain]
            starts.extend(self._starts[at:first])
            ends.extend(self._ends[at:first])
            starts.extend([self._starts[first]] * len(plain))
            ends.extend([self._ends[last - 1]] * len(plain))
            at = last
        if not pieces:
            return None
        starts.extend(self._starts[at:])
        ends.extend(self._ends[at:])
        return _Layer(_lowered(b"".join([*pieces, self.text[at:]])), starts, ends)


def _layers(data: bytes) -> Iterator[_Layer]:
    """Yield a text in lower case as it is, then without one layer of escapes after the other.

    Which characters a service escapes, and how often, is its own choice: comparing the characters
    that the text stands for covers each choice in linear time.
    """
    places = range(len(data) + 1)
    layer: _Layer | None = _Layer(_lowered(data), places[:-1], places[1:])
    for _ in range(_MAX_LAYERS + 1):
        if layer is None:
            return
        yield layer
        joined = layer.joined()
        if joined is not None:
            yield joined
        layer = layer.unescaped()


def _lowered(text: bytes) -> bytes:
    """Return a text in lower case whose positions are those of the original."""
    if text.isascii():
        return text.lower()
    # Bytes that are not UTF-8 stay as they are.
    lowered = text.lower().decode("utf-8", "surrogateescape").translate(_lower_letters())
    return lowered.encode("utf-8", "surrogateescape")


@cache
def _lower_letters() -> dict[int, str]:
    """Return the letters outside ASCII whose lower case takes as many bytes."""
    letters = map(chr, range(0x80, 0x2000))
    pairs = ((letter, letter.lower()) for letter in letters)
    return {
        ord(letter): lower for letter, lower in pairs if len(lower.encode()) == len(letter.encode())
    }


def _entity(name: bytes) -> bytes | None:
    """Return the character that a name in lower case means in HTML."""
    try:
        return _entities().get(name)
    except (ImportError, OSError):  # no descriptors are left
        return _ENTITIES.get(name)


@cache
def _entities() -> dict[bytes, bytes]:
    from html.entities import html5  # few services name characters

    # The last one wins, an ASCII character before others.
    names = sorted(html5.items(), key=lambda pair: (pair[1].isascii(), pair[0].islower()))
    return {name.rstrip(";").lower().encode(): value.encode() for name, value in names}


def _character(escape: re.Match[bytes]) -> bytes:
    """Return the character of an escape sequence: a byte, or a code point in UTF-8."""
    kind = escape.lastgroup
    value = escape[kind] if kind else b""
    if kind == "itself":
        return value
    if kind == "name":
        return _entity(value) or escape[0]
    number = int(value, 10 if kind == "decimal" else 8 if kind == "octal" else 16)
    if kind in ("byte", "literal", "octal"):
        return bytes([number])
    return chr(number).encode("utf-8", "surrogatepass") if number <= sys.maxunicode else b"?"


def find_ranges(text: bytes, forms: Iterable[bytes]) -> list[tuple[int, int]]:
    """Return where any of these forms occurs."""
    ranges = []
    for form in forms:
        start = text.find(form)
        while start >= 0:
            ranges.append((start, start + len(form)))
            start = text.find(form, start + len(form))
    return ranges


def _start_of_part(text: bytes, forms: Iterable[bytes]) -> int | None:
    """Return where the first part of a form begins that the end of a text cuts off."""
    escape = _OPEN_ESCAPE.search(text, max(0, len(text) - 12))
    end = len(text) if escape is None else escape.start()
    starts = []
    for form in forms:
        start = text.find(form[:_MIN_PART], max(0, end - len(form)), end)
        while start >= 0 and not form.startswith(text[start:end]):
            start = text.find(form[:_MIN_PART], start + 1, end)
        if start >= 0:
            starts.append(start)
    return min(starts, default=None)


def _replace_ranges(text: bytes, ranges: list[tuple[int, int]]) -> bytes:
    """Replace ranges, which may overlap, with one mark each."""
    pieces = []
    end_of_last = 0
    for start, end in sorted(ranges):
        if start >= end_of_last:
            pieces += [text[end_of_last:start], REDACTED.encode()]
        end_of_last = max(end_of_last, end)
    return b"".join([*pieces, text[end_of_last:]])


def secrets_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of configured headers, and the credentials inside these values."""
    for name, value in headers.items():
        if _is_public(name):
            continue
        yield value
        if name.lower() == "cookie":
            yield from (part.partition("=")[2].strip() for part in value.split(";"))
        elif _SECRET_NAME.search(name):
            scheme, _, credentials = value.partition(" ")
            yield credentials
            if scheme.lower() == "basic":
                yield from _of_basic(credentials)


def secrets_of_parameters(parameters: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the values of query parameters that may be secret: all but versions."""
    return (value for name, value in parameters if not _is_public(name))


def secrets_of_url(url: str) -> Iterator[str]:
    """Yield the password and the query parameters of a URL."""
    try:
        parts = urlsplit(url)
        values = [parts.password or "", *secrets_of_parameters(parse_qsl(parts.query))]
    except ValueError:
        return
    yield from (unquote(value) for value in values)


def secrets_of_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of the variables whose names mark them as secret."""
    return (value for name, value in environ.items() if _SECRET_NAME.search(name))


def _is_public(name: str) -> bool:
    return _PUBLIC_NAME.search(name) is not None and _SECRET_NAME.search(name) is None


def _of_basic(credentials: str) -> Iterator[str]:
    try:
        yield base64.b64decode(credentials).decode().partition(":")[2]
    except ValueError:
        return


def _forms(secret: str) -> Iterator[str]:
    """Yield the spellings in which a service or a library may quote a secret."""
    yield secret
    yield secret.replace(" ", "+")
    yield secret.replace(" ", "\u00a0")
    # What some services take the bytes of a header for.
    for cased in (secret, secret.upper(), secret.lower()):
        yield cased.encode("utf-8", "replace").decode("latin-1")
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield repr(secret.encode("utf-8", "replace"))[2:-1]
    for form in _base64_forms(secret.encode("utf-8", "replace")):
        if len(form) >= _MIN_BASE64_CHARS:
            yield form
            yield form.replace("+", "-").replace("/", "_")


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the characters that base64 has for a secret after any number of other bytes."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + secret).decode().rstrip("=")
        # The first characters depend on what precedes, the last one may on what follows.
        first = (offset * 8 + 5) // 6
        has_open_end = (offset + len(secret)) % 3 != 0
        yield encoded[first : -1 if has_open_end else None]
