"""Answers `initialize` on stdio before the rest of the server is imported.

Only the plain case is answered here: a well-formed first line of a well-formed command. Anything
else is passed on unparsed to the full server, which reports what is wrong with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from treadle.server.handshake import describe, is_header_value

TYPE_CHECKING = False  # `typing` itself is imported later: see handshake.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

# Maximum length of a first line that is answered here.
MAX_FIRST_LINE: Final = 64 * 1024
# A pipe writes up to this many bytes atomically.
MAX_ANSWER: Final = 4096
MAX_BRACKETS: Final = 100
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


class FastHandshake:
    """What was read from stdin: the answered line, if any, and the bytes after it.

    `assignments` are the `key=value` overrides among the arguments.
    """

    __slots__ = ("answered", "assignments", "unread")

    def __init__(
        self, answered: bytes | None, unread: bytes, assignments: tuple[str, ...] = ()
    ) -> None:
        self.answered = answered
        self.unread = unread
        self.assignments = assignments


def answer_first(
    arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> FastHandshake | None:
    """Answer the first line if it is a plain `initialize`; return `None` if stdio is not in use."""
    assignments = _read_plain(arguments)
    if assignments is None or sys.stdin is None or sys.stdout is None:
        return None
    leave_on_signals()
    unread = b""
    while b"\n" not in unread and len(unread) < MAX_FIRST_LINE:
        try:
            chunk = os.read(0, MAX_FIRST_LINE)
        except BlockingIOError:
            # stdin is non-blocking; the full server can wait for it.
            return FastHandshake(None, unread, assignments)
        if not chunk:
            break
        unread += chunk
    line, newline, rest = unread.partition(b"\n")
    answer = _answer(line, environ) if newline else None
    if answer is None or not _write(answer):
        return FastHandshake(None, unread, assignments)
    return FastHandshake(line, rest, assignments)


def _write(answer: bytes) -> bool:
    try:
        os.write(1, answer)
    except BlockingIOError:
        return False
    except OSError:
        os._exit(0)  # the client is gone
    return True


def leave_on_signals() -> None:
    """Exit on a signal: nothing has started yet. The full server sets its own handlers."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_now)


def _exit_now(_number: int, _frame: object) -> None:
    os._exit(0)


def _read_plain(arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the overrides of a plain command that starts a server on stdio, or `None`."""
    rest = list(arguments)
    assignments: list[str] = []
    is_server = False
    while rest:
        argument = rest.pop(0)
        if argument in _WITH_VALUE and rest and "=" in rest[0][1:]:
            assignments.append(rest.pop(0))
        elif argument == "--listen" and rest[:1] == ["stdio://"]:
            rest.pop(0)
        elif argument in _PLAIN:
            is_server = is_server or argument == "app-server"
        else:
            return None
    return tuple(assignments) if is_server else None


def _answer(line: bytes, environ: Mapping[str, str]) -> bytes | None:
    # JSON parsers disagree about lone surrogates and deep nesting.
    if b"\\u" in line or line.count(b"{") + line.count(b"[") > MAX_BRACKETS:
        return None
    try:
        # `int` rejects NaN and the infinities, which are not JSON.
        call: Any = json.loads(line.decode(), parse_constant=int)
        if call["method"] != "initialize" or not _is_id(call["id"]):
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
    answer = json.dumps({"id": call["id"], "result": result}, separators=(",", ":")).encode()
    return answer + b"\n" if len(answer) < MAX_ANSWER else None


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) < 2**63)


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
