"""Secrets in requests: which values they are, and how to remove them from text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

REDACTED: Final = "[redacted]"
MAX_TEXT: Final = 64 * 1024
"""The maximum number of characters of an error text that are searched; the rest is dropped."""

# A shorter value protects nothing, and replacing it would mutilate ordinary words.
_MIN_CHARS: Final = 6
_MIN_BASE64_CHARS: Final = 8
# Tokens are renewed, and an error may belong to an earlier request.
_MAX_SECRETS: Final = 32
_SECRET_NAME: Final = re.compile(r"key|token|secret|auth|pass|sig|cred|cookie", re.IGNORECASE)
# Values that errors need to quote, and that grant no access.
_PUBLIC_NAME: Final = re.compile(r"version|accept|content-type|user-agent", re.IGNORECASE)


class Secrets:
    """The secrets of the latest requests to one service."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, None] = {}
        self._forms: frozenset[bytes] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Store secrets; beyond the limit, the oldest are dropped."""
        for value in values:
            if len(value) >= _MIN_CHARS:
                self._values.pop(value, None)
                self._values[value] = None
        while len(self._values) > _MAX_SECRETS:
            del self._values[next(iter(self._values))]
        self._forms = None

    def redact(self, text: str, *, limit: int | None = MAX_TEXT) -> str:
        """Replace each secret in a text, in any case and in the usual encodings.

        A text beyond the limit is cut, including a possible part of a secret at its end.
        """
        if self._forms is None:
            forms = (form for value in self._values for form in _forms(value))
            self._forms = frozenset(form.encode("utf-8", "replace").lower() for form in forms)
        data = text[:limit].encode("utf-8", "surrogatepass")
        # Lowering bytes affects ASCII only, so that positions in both are the same.
        ranges = _find_ranges(data.lower(), self._forms)
        if limit is not None and len(text) > limit:
            longest = max(map(len, self._forms), default=0)
            ranges = [*ranges, (max(0, len(data) - longest), len(data))]
        return _replace_ranges(data, ranges).decode("utf-8", "replace") if ranges else text


def _find_ranges(text: bytes, forms: Iterable[bytes]) -> list[tuple[int, int]]:
    ranges = []
    for form in forms:
        start = text.find(form)
        while start >= 0:
            ranges.append((start, start + len(form)))
            start = text.find(form, start + len(form))
    return ranges


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
