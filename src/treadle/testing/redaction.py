"""Removal of secrets from recordings, by name, by shape and by their use in requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode

from treadle.protocol.base import JsonValue

REDACTED: Final = "[redacted]"
# Shorter values are ordinary words and would match everywhere.
_MIN_SECRET: Final = 8

# Not `key` and `token` alone, which have other meanings: keyboard keys and model tokens.
_SECRET_NAME: Final = re.compile(
    r"(api[-_]?key|secret[-_]?key|private[-_]?key|authorization|cookie|password|passwd|secret"
    r"|(access|refresh|id|auth|bearer|session|security)[-_]?token)$",
    re.IGNORECASE,
)
_SECRET_QUERY: Final = re.compile(r"key|token|secret|password|auth|sig|code", re.IGNORECASE)
_SECRET_HEADER: Final = re.compile(r"auth|key|token|cookie|secret|account|session", re.IGNORECASE)
_SECRET_VARIABLE: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$")
_SHAPES: Final = (
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"(?<=Bearer )[A-Za-z0-9._~+/=-]{16,}",
)
# Members that streams split: a secret may begin in one event and end in another.
_PIECES: Final = frozenset(
    {"delta", "text", "content", "arguments", "partial_json", "input", "thinking"}
)


class Redactor:
    """Replaces secrets of the environment, of requests, and of known shapes."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._known = {
            value for name, value in environ.items() if _SECRET_VARIABLE.search(name.upper())
        }
        self._pattern = self._compile()

    def learn(self, headers: Mapping[str, str]) -> None:
        """Add the secrets in the headers of a request."""
        for name, value in headers.items():
            if _SECRET_HEADER.search(name):
                # Includes the token after a scheme, and the values of cookies.
                self._known |= {value, *re.split(r"[\s=;]+", value)}
        self._pattern = self._compile()

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._pattern.sub(REDACTED, text)

    def value(self, value: JsonValue) -> JsonValue:
        """Return a document without secrets, including those known only by their names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {name: self._member(name, each) for name, each in value.items()}
        return value

    def path(self, path: str) -> str:
        """Return a path without secrets in its query."""
        plain, has_query, query = path.partition("?")
        pairs = [
            (name, REDACTED if _SECRET_QUERY.search(name) else self.text(value))
            for name, value in parse_qsl(query, keep_blank_values=True)
        ]
        return self.text(plain) + (f"?{urlencode(pairs)}" if has_query else "")

    def events(self, events: Sequence[str]) -> list[str]:
        """Return server-sent events without secrets, including those split over several events."""
        payloads = [_payload(event) for event in events]
        self._redact_pieces(payloads)
        return [
            self.text(event) if payload is None else _with_payload(event, self.value(payload))
            for event, payload in zip(events, payloads, strict=True)
        ]

    def _member(self, name: str, value: JsonValue) -> JsonValue:
        if isinstance(value, str) and value and _SECRET_NAME.search(name):
            return REDACTED
        return self.value(value)

    def _redact_pieces(self, payloads: Sequence[JsonValue]) -> None:
        """Remove secrets from texts that continue from one document to the next."""
        for name in _PIECES:
            leaves = [leaf for leaf in _leaves(payloads) if leaf[1] == name]
            whole = "".join(holder[key] for holder, key in leaves)
            # From the last match, so that earlier positions stay valid.
            for match in reversed(list(self._pattern.finditer(whole))):
                _cut(leaves, *match.span())

    def _compile(self) -> re.Pattern[str]:
        known = sorted((each for each in self._known if len(each) >= _MIN_SECRET), key=len)
        return re.compile("|".join([*map(re.escape, reversed(known)), *_SHAPES]))


def _leaves(value: JsonValue) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the strings of a document as pairs of container and name."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str):
                yield value, name
            else:
                yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)


def _cut(leaves: Sequence[tuple[dict[str, str], str]], start: int, end: int) -> None:
    at, replacement = 0, REDACTED
    for holder, name in leaves:
        text = holder[name]
        first, last = max(start - at, 0), min(end - at, len(text))
        at += len(text)
        if first < last:
            holder[name] = text[:first] + replacement + text[last:]
            replacement = ""


def _payload(event: str) -> JsonValue:
    """Return the JSON payload of an event; `None` if it has none."""
    lines = [line for line in event.splitlines() if line.startswith("data:")]
    try:
        return json.loads(lines[0].removeprefix("data:")) if len(lines) == 1 else None
    except ValueError:
        return None


def _with_payload(event: str, payload: JsonValue) -> str:
    """Return the event with another payload, unchanged if the payload is the same."""
    if payload == _payload(event):
        return event
    data = json.dumps(payload, separators=(",", ":"))
    return re.sub(r"(?m)^data:.*$", lambda _line: f"data: {data}", event, count=1)
