"""The little HTTP/1.1 that a WebSocket needs: heads, and what a listener answers to each request.

Values in, values out; the time, the socket and the tokens belong to the transport.
"""

import re
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from treadle.transport.websocket.frames import MAX_FRAME_BYTES, accept_key

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_REFUSAL_BYTES: Final = 64 * 1024
"""How much of a refused upgrade's answer a client reads."""

TOO_MANY: Final = 503
"""The status for a peer that there is no room for."""

PROBES: Final = frozenset({"/readyz", "/healthz"})

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rf"({_NAME}) (\S+) HTTP/(1\.[01])")
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[01] (\d{3})(?: .*)?")
# Blanks around the value are removed afterwards: an expression for them takes quadratic time.
_FIELD: Final = re.compile(rf"({_NAME}):(.*)")
_BLANKS: Final = " \t"
_REASONS: Final = {
    101: "Switching Protocols",
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    TOO_MANY: "Service Unavailable",
}
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)

Headers = tuple[tuple[str, str], ...]


class MalformedHead(Exception):
    """The peer sent no readable head; `status` is the answer it deserves."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class HttpRequest(Struct, frozen=True):
    """A request's head; header names are in lower case."""

    method: str
    target: str
    version: str
    headers: Headers

    def header(self, name: str) -> str | None:
        """Give the first value of a header."""
        return _first(self.headers, name)


class HttpResponse(Struct, frozen=True):
    """An answer; header names are in lower case."""

    status: int
    headers: Headers = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Give the first value of a header."""
        return _first(self.headers, name)

    def encode(self, now: float, *, version: str = "1.1", method: str = "GET") -> bytes:
        """Write the answer to a request of that version and method, dated `now`."""
        fields = list(self.headers)
        if self.status != 101:
            fields += [("content-length", str(len(self.body))), ("connection", "close")]
        fields.append(("date", http_date(now)))
        lines = [f"HTTP/{version} {self.status} {_REASONS[self.status]}"]
        lines += [f"{name}: {value}" for name, value in fields]
        body = b"" if method == "HEAD" else self.body
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def find_head_end(data: bytes) -> int:
    """Give the index after a head's blank line, or -1 when it has not come yet."""
    match = _HEAD_END.search(data)
    return match.end() if match else -1


def is_request_ready(data: bytes) -> bool:
    """Say whether `data` suffices to answer: a whole head, or one that can only be refused."""
    if find_head_end(data) >= 0 or len(data) > MAX_HEAD_BYTES:
        return True
    first, newline, _ = data.partition(b"\n")
    return bool(newline) and not _REQUEST_LINE.fullmatch(_text(first))


def is_response_ready(data: bytes) -> bool:
    """Say whether a client has read enough: the head, and the body that it announces."""
    end = find_head_end(data)
    if end < 0:
        return len(data) > MAX_HEAD_BYTES
    try:
        announced = parse_response(data[:end]).header("content-length") or "0"
    except MalformedHead:
        return True
    # These are more than the maximum already; Python refuses to read thousands of digits.
    length = int(announced[:9]) if announced.isdecimal() else 0
    return len(data) - end >= min(length, MAX_REFUSAL_BYTES)


def parse_request(head: bytes) -> HttpRequest:
    """Read a request's head.

    Raises:
        MalformedHead: it is none, it is not whole, or it is too long.
    """
    if find_head_end(head[:MAX_HEAD_BYTES]) < 0 and len(head) > MAX_HEAD_BYTES:
        raise MalformedHead("request head too long", 431)
    first, fields = _split(head)
    match = _REQUEST_LINE.fullmatch(first)
    if not match:
        raise MalformedHead("not an HTTP/1 request")
    return HttpRequest(match[1], match[2], match[3], fields)


def parse_response(head: bytes) -> HttpResponse:
    """Read a response's head.

    Raises:
        MalformedHead: it is none, or it is not whole.
    """
    first, fields = _split(head)
    match = _STATUS_LINE.fullmatch(first)
    if not match:
        raise MalformedHead("not an HTTP/1 response")
    return HttpResponse(int(match[1]), fields)


def answer_request(request: HttpRequest, check: Callable[[str | None], str | None]) -> HttpResponse:
    """Answer as a TCP listener does; `check` says what is wrong with an Authorization header."""
    # Before everything else: a page in a browser must not even learn that we listen.
    if request.header("origin") is not None:
        return HttpResponse(403)
    if _path(request.target) in PROBES:
        if request.method in {"GET", "HEAD"}:
            return HttpResponse(200)
        return HttpResponse(405, (("allow", "GET,HEAD"),))
    refusal = refuse_upgrade(request)
    if refusal:
        return refusal
    if complaint := check(request.header("authorization")):
        return _plain(401, complaint)
    return accept_upgrade(request)


def answer_control_request(request: HttpRequest) -> HttpResponse | None:
    """Answer as the unix control socket does: an upgrade, or nothing at all."""
    if refuse_upgrade(request):
        return None
    limit = ("x-codex-websocket-max-unfragmented-message-bytes", str(MAX_FRAME_BYTES))
    return accept_upgrade(request, limit)


def refuse_peer(reason: str) -> HttpResponse:
    """Answer a peer that may not connect, whatever it asks for."""
    return _plain(403, reason)


def refuse_upgrade(request: HttpRequest) -> HttpResponse | None:
    """Return why a request is not a WebSocket upgrade, in the reference's order and words."""

    def value(name: str) -> str:
        return (request.header(name) or "").lower()

    has_key = request.header("sec-websocket-key") is not None
    no_state = "WebSocket request couldn't be upgraded since no upgrade state was present"
    conditions = (
        (request.method == "GET", 405, "Request method must be `GET`"),
        ("upgrade" in value("connection"), 400, "Connection header did not include 'upgrade'"),
        (value("upgrade") == "websocket", 400, "`Upgrade` header did not include 'websocket'"),
        (
            value("sec-websocket-version") == "13",
            400,
            "`Sec-WebSocket-Version` header did not include '13'",
        ),
        (has_key, 400, "`Sec-WebSocket-Key` header missing"),
        (request.version == "1.1", 426, no_state),
    )
    return next((_plain(status, text) for holds, status, text in conditions if not holds), None)


def accept_upgrade(request: HttpRequest, *extra: tuple[str, str]) -> HttpResponse:
    """Switch to WebSocket: no subprotocol and no extension is ever chosen."""
    accept = accept_key(request.header("sec-websocket-key") or "")
    fields = (("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", accept))
    return HttpResponse(101, (*fields, *extra))


def encode_upgrade(target: str, host: str, key: str, extra: Headers = ()) -> bytes:
    """Write a client's upgrade request.

    Raises:
        ValueError: a value would break out of its line.
    """
    fields = (
        ("host", host),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", key),
        *extra,
    )
    for name, value in fields:
        # The value may be a secret, so only the name is shown.
        if not _FIELD.fullmatch(f"{name}: {value}") or not value.isprintable():
            raise ValueError(f"invalid value for header {name!r}")
    if not _REQUEST_LINE.fullmatch(f"GET {target} HTTP/1.1"):
        raise ValueError(f"invalid request target {target!r}")
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def http_date(now: float) -> str:
    """Write a time as HTTP does, whatever the locale."""
    at = time.gmtime(now)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year}"
    return f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, (("content-type", "text/plain; charset=utf-8"),), text.encode())


def _path(target: str) -> str:
    """Give the path of a target in origin form or in absolute form."""
    path = target.partition("?")[0]
    scheme, separator, rest = path.partition("://")
    return "/" + rest.partition("/")[2] if separator and "/" not in scheme else path


def _first(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key == name), None)


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("latin-1")


def _split(head: bytes) -> tuple[str, Headers]:
    if find_head_end(head) < 0:
        raise MalformedHead("incomplete head")
    first, *rest = (_text(line) for line in head.split(b"\n"))
    fields: list[tuple[str, str]] = []
    for line in rest:
        if not line:
            break
        match = _FIELD.fullmatch(line)
        if not match:
            raise MalformedHead("malformed header line")
        fields.append((match[1].lower(), match[2].strip(_BLANKS)))
    return first, tuple(fields)
