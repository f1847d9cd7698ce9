"""Comparison of requests with recorded ones."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from treadle.protocol.base import JsonValue
from treadle.testing.redaction import REDACTED

PROMPTS: Final = frozenset({"instructions", "system", "tools"})
"""Members that change with every release of a program, unlike the conversation."""

VOLATILE: Final = frozenset(
    {"prompt_cache_key", "client_metadata", "metadata", "user", "safety_identifier"}
)
_TMP: Final = "|".join(
    sorted({re.escape(tempfile.gettempdir()), "/tmp", r"(?:/private)?/var/folders"})  # noqa: S108
)
# Values that differ in every run, and their placeholders.
_VARIABLE: Final = [
    (re.compile(r"<environment_context>.*?</environment_context>", re.DOTALL), "<environment>"),
    (re.compile(rf"(?:{_TMP})(?:/[\w.+-]+)+"), "<temporary path>"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"(?<=Chunk ID: )[0-9a-f]{6}"), "<id>"),
    (re.compile(r"(?<=Wall time: )\d+(?:\.\d+)?"), "<time>"),
]
_EXCERPT: Final = 60


def normalised(body: JsonValue, ignore: Collection[str]) -> JsonValue:
    """Return a request's body without volatile values and the top-level members in `ignore`."""
    if not isinstance(body, dict):
        return _plain(body)
    members = {name: each for name, each in body.items() if name not in ignore}
    members = {name: each for name, each in members.items() if name not in VOLATILE}
    if PROMPTS & set(ignore):
        # Where a prompt is a message, as in Chat Completions, it is one of these roles.
        for name in members.keys() & {"input", "messages"}:
            if isinstance(members[name], list):
                members[name] = [_without_prompt(each) for each in members[name]]
    return _plain(members)


def differences(recorded: JsonValue, now: JsonValue, path: str = "body") -> Iterator[str]:
    """Yield each difference between a recorded request and a new one."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in sorted({*recorded, *now}):
            yield from _members(recorded, now, name, f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(now, list):
        for at in range(min(len(recorded), len(now))):
            yield from differences(recorded[at], now[at], f"{path}[{at}]")
        if len(recorded) != len(now):
            yield f"{path}: recorded {len(recorded)} entries, now {len(now)}"
    elif not _is_same(recorded, now):
        yield f"{path}: recorded {_excerpt(recorded, now)}, now {_excerpt(now, recorded)}"


def _members(
    recorded: dict[str, JsonValue], now: dict[str, JsonValue], name: str, path: str
) -> Iterator[str]:
    if name not in now:
        yield f"{path}: recorded {_excerpt(recorded[name])}, now missing"
    elif name not in recorded:
        yield f"{path}: not recorded, now {_excerpt(now[name])}"
    else:
        yield from differences(recorded[name], now[name], path)


def _is_same(recorded: JsonValue, now: JsonValue) -> bool:
    if isinstance(recorded, str) and isinstance(now, str) and REDACTED in recorded:
        # A redacted secret matches any text.
        return _has_parts(now, recorded.split(REDACTED))
    return bool(recorded == now)


def _has_parts(text: str, parts: Sequence[str]) -> bool:
    """Return whether a text consists of these parts, with anything between them."""
    first, *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        index = text.find(part, at, end)
        if index < 0:
            return False
        at = index + len(part)
    return True


def _excerpt(value: JsonValue, other: JsonValue = None) -> str:
    """Return an excerpt of a value; of long texts, the part around the first difference."""
    if isinstance(value, str) and isinstance(other, str):
        pairs = zip(value, other, strict=False)
        at = next((at for at, (one, two) in enumerate(pairs) if one != two), 0)
        start = max(0, at - _EXCERPT // 2)
        cut = value[start : start + _EXCERPT]
        return f"{'...' if start else ''}{cut!r}{'...' if start + _EXCERPT < len(value) else ''}"
    text = repr(value)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."


def _without_prompt(message: JsonValue) -> JsonValue:
    is_prompt = isinstance(message, dict) and message.get("role") in ("system", "developer")
    return {**message, "content": "<prompt>"} if is_prompt else message


def _plain(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        for pattern, placeholder in _VARIABLE:
            value = pattern.sub(placeholder, value)
        return value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
