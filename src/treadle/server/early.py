"""Answers `initialize` on stdio before the rest of the server is even imported.

Only the plain case is answered here: a well-formed first line of a well-formed command. Anything
else is left, unread by us, to the server proper, which says what is wrong with it.
"""

from __future__ import annotations

import json
import os
import signal

from treadle.server.handshake import describe, is_header_value

TYPE_CHECKING = False  # `typing` itself is imported later: see handshake.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

# As far as a first line may go before the server proper takes over.
MAX_FIRST_LINE: Final = 64 * 1024
_WITH_VALUE: Final = frozenset({"-c", "--config"})
_PLAIN: Final = frozenset({"app-server", "--stdio", "--listen=stdio://"})
_FLAGS: Final = frozenset(
    {
        "experimentalApi",
        "requestAttestation",
        "explicitGatewayOauth",
        "mcpServerOpenaiFormElicitation",
    }
)


class Early:
    """What was read from stdin: the line that was answered, if it was, and what came after it."""

    __slots__ = ("answered", "unread")

    def __init__(self, answered: bytes | None, unread: bytes) -> None:
        self.answered = answered
        self.unread = unread


def answer_first(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Early | None:
    """Answer the first line if it is a plain `initialize`; `None` when stdio is not to be read."""
    if not _is_plain(arguments):
        return None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    unread = b""
    while b"\n" not in unread and len(unread) < MAX_FIRST_LINE:
        chunk = os.read(0, MAX_FIRST_LINE)
        if not chunk:
            break
        unread += chunk
    line, newline, rest = unread.partition(b"\n")
    answer = _answer(line, environ) if newline else None
    if answer is None:
        return Early(None, unread)
    while answer:
        answer = answer[os.write(1, answer) :]
    return Early(line, rest)


def _leave(_number: int, _frame: object) -> None:
    """End at once: nothing was begun yet. The server proper sets its own handlers."""
    os._exit(0)


def _is_plain(arguments: Sequence[str]) -> bool:
    """Whether these arguments start a server on stdio, with nothing in them that could be wrong."""
    rest = list(arguments)
    seen = False
    while rest:
        word = rest.pop(0)
        if (word in _WITH_VALUE and rest and "=" in rest[0]) or (
            word == "--listen" and rest[:1] == ["stdio://"]
        ):
            rest.pop(0)
        elif word in _PLAIN:
            seen = seen or word == "app-server"
        else:
            return False
    return seen


def _answer(line: bytes, environ: Mapping[str, str]) -> bytes | None:
    try:
        call: Any = json.loads(line)
        if call["method"] != "initialize" or type(call["id"]) not in (int, str):
            return None
        info, capabilities = call["params"]["clientInfo"], call["params"].get("capabilities")
        name, title, version = info["name"], info.get("title"), info["version"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    texts = (name, version, "" if title is None else title)
    if not all(isinstance(text, str) for text in texts) or not is_header_value(name):
        return None
    if not _are_plain(capabilities):
        return None
    result = describe(name, version, environ)
    return json.dumps({"id": call["id"], "result": result}, separators=(",", ":")).encode() + b"\n"


def _are_plain(capabilities: Any) -> bool:  # noqa: ANN401 - a JSON document
    if capabilities is None:
        return True
    if not isinstance(capabilities, dict):
        return False
    for name, value in capabilities.items():
        if name == "optOutNotificationMethods":
            if value is not None and not (
                isinstance(value, list) and all(isinstance(each, str) for each in value)
            ):
                return False
        elif name not in _FLAGS or not isinstance(value, bool):
            return False
    return True
