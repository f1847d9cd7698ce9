"""Placeholders for what differs from run to run and from machine to machine.

With them, the same behaviour gives the same document: a recording of it stays as it is, and says
nothing about the machine that it was made on.
"""

from __future__ import annotations

import getpass
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from treadle.protocol.base import JsonValue

_CLONE = Path(__file__).parents[2]
# Long texts of the reference are not ours to keep, and no test compares them.
_HIDDEN = {
    "userAgent": "<user agent>",
    "processId": "<process>",
    "pid": "<process>",
    "platformFamily": "<platform>",
    "platformOs": "<platform>",
    # Of the clone that holds the reference's home, where a workspace has no repository.
    "originUrl": "<origin>",
    "branch": "<branch>",
    "developer_instructions": "<instructions>",
    "developerInstructions": "<instructions>",
    "baseInstructions": "<instructions>",
    "base_instructions": "<instructions>",
}
_TIME = re.compile(r"(At|AtMs|_at|_at_ms)$|^(durationMs|timestamp)$")
_PATTERNS = (
    (re.compile(r"\d{4}/\d\d/\d\d/rollout-"), "<day>/rollout-"),
    (re.compile(r"rollout-[0-9T-]{19}-"), "rollout-<time>-"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\bsha256:[0-9a-f]{64}\b"), "<hash>"),
    # Commits depend on the time, files in diffs do not.
    (re.compile(r"(?<!\bindex )(?<!\.\.)\b[0-9a-f]{40}\b"), "<hash>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"Chunk ID: [0-9a-f]+"), "Chunk ID: <id>"),
    (re.compile(r"Wall time: [0-9.]+"), "Wall time: <time>"),
    (re.compile(r"session ID \d+"), "session ID <number>"),
    (re.compile(r"--session-id \d+"), "--session-id <number>"),
    (re.compile(r"\bcommit [0-9a-f]{7}\b"), "commit <hash>"),
    (re.compile(r"after [0-9.]+s\b"), "after <time>"),
    (re.compile(r"after \d+ milliseconds"), "after <time>"),
    (re.compile(r'"duration_seconds":[0-9.]+'), '"duration_seconds":<time>'),
    # The login shell of the user who runs the tests.
    (re.compile(r"(?<![\w/])(/[\w./-]*/)?(ba|z|da)?sh (?=-l?c )"), "<shell> "),
)


def placeholders(value: JsonValue, names: Mapping[str, str] | None = None) -> JsonValue:
    """Return a document with placeholders; `names` are further texts and what replaces them."""
    known = {str(_CLONE): "<clone>", sys.prefix: "<environment>", sys.executable: "<python>"}
    known |= names or {}
    ordered = sorted(known.items(), key=lambda pair: len(pair[0]), reverse=True)
    return _Replacement(ordered).of(value)


class _Replacement:
    def __init__(self, names: list[tuple[str, str]]) -> None:
        self._names = names

    def of(self, value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {self._text(key): self._field(key, each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.of(each) for each in value]
        return self._text(value) if isinstance(value, str) else value

    def _field(self, key: str, value: JsonValue) -> JsonValue:
        if key in _HIDDEN and isinstance(value, str):
            return _HIDDEN[key]
        if _TIME.search(key) and isinstance(value, (int, float)):
            return 0
        return self.of(value)

    def _text(self, text: str) -> str:
        for name, placeholder in self._names:
            text = text.replace(name, placeholder)
        for pattern, placeholder in _PATTERNS:
            text = pattern.sub(placeholder, text)
        return text


def traces_of_this_machine(text: str) -> list[str]:
    """Return names of this machine and its user that a text contains."""
    # The name of the superuser is a common word.
    names = {getpass.getuser(), socket.gethostname(), str(Path.home()), str(_CLONE)} - {"root"}
    return sorted(name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text))
