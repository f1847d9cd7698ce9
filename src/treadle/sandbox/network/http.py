"""The egress proxy's HTTP side: parses request heads, and answers requests it does not forward.

One request per connection: the next one may be for another host, and is checked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote_from_bytes, urlsplit

import h11
from msgspec import Struct

from treadle.sandbox.network.hosts import normal
from treadle.sandbox.network.policy import Blocked, Destination, Reason
from treadle.support.http.closing_response import closing_response

CONNECTED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_ERRORS: Final[dict[Reason, str]] = {
    "denied": "blocked-by-denylist",
    "not_allowed": "blocked-by-allowlist",
    "not_allowed_local": "blocked-by-allowlist",
    "method_not_allowed": "blocked-by-method-policy",
}
# For the proxy only, or about a connection other than ours.
_HOP: Final = frozenset({b"connection", b"host", b"keep-alive", b"upgrade", b"http2-settings"})
_CONTROL: Final = re.compile(rb"[^\t -\xff]")
_ASCII: Final = bytes(range(128))
_MAX_MESSAGE: Final = 200
MAX_HEAD: Final = 16 * 1024
"""The largest head of a request, in bytes: the limit of most web servers."""
MAX_FIELDS: Final = 200


class ProxyRequest(Struct, frozen=True):
    """A request to the proxy."""

    method: str
    destination: Destination
    # The head for the host; empty for a tunnel.
    head: bytes = b""
    # The bytes of the body; `None` if it is chunked.
    body: int | None = 0

    @property
    def has_body(self) -> bool:
        """Return whether a body follows the head."""
        return self.body != 0


def read_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request, up to and including the empty line.

    Raises:
        ValueError: it is invalid, or not a proxy request.
    """
    request = _parse(head)
    method, target = request.method.decode(), request.target.decode()
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        return ProxyRequest(method, Destination(normal(host), _port(port), "https"))
    url = urlsplit(target)
    if url.scheme != "http" or not url.hostname:
        raise ValueError("a proxy request needs an absolute URL, as in http://host/path")
    destination = Destination(normal(url.hostname), _port(url.port or 80), "http")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [
        f"{method} {path} HTTP/{request.http_version.decode()}".encode(),
        f"Host: {_authority(destination, url.port)}".encode(),
        *(b"%b: %b" % field for field in request.headers.raw_items() if not _is_hop(field[0])),
        *(b"Connection: close", b"", b""),
    ]
    return ProxyRequest(method, destination, b"\r\n".join(lines), _body(request))


def _parse(head: bytes) -> h11.Request:
    # Before it is parsed: h11 takes some microseconds for each field.
    if len(head) > MAX_HEAD:
        raise ValueError(f"a head of more than {MAX_HEAD} bytes")
    lines = head.split(b"\r\n", MAX_FIELDS + 3)
    # The request line, and two empty parts after the last field.
    if len(lines) > MAX_FIELDS + 3:
        raise ValueError(f"more than {MAX_FIELDS} fields")
    # h11 accepts a bare line feed as the end of a line, and most control characters in a field. A
    # host might read them otherwise, and see another request.
    if _CONTROL.search(b"".join(lines)):
        raise ValueError("control characters")
    # Programs send hosts and paths in other scripts unencoded, which h11 rejects.
    lines[0] = quote_from_bytes(lines[0], safe=_ASCII).encode()
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"\r\n".join(lines))
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        # It quotes the line, which may be long.
        raise ValueError(str(error)[:_MAX_MESSAGE]) from error
    if not isinstance(request, h11.Request):
        raise ValueError("incomplete request")  # noqa: TRY004 - the caller sent this text
    if request.http_version not in (b"1.0", b"1.1"):
        raise ValueError(f"unsupported version {request.http_version.decode()!r}")
    return request


def refusal(destination: Destination, blocked: Blocked) -> bytes:
    """Return the answer to a request for a host that is not allowed."""
    body = {
        "status": "blocked",
        "host": destination.host,
        "reason": blocked.reason,
        "decision": "deny",
        "source": blocked.source,
        "protocol": destination.protocol,
        "port": destination.port,
        "message": str(blocked),
    }
    fields = {"content-type": "application/json", "x-proxy-error": _ERRORS[blocked.reason]}
    return answer(HTTPStatus.FORBIDDEN, json.dumps(body), fields)


def answer(status: HTTPStatus, body: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the proxy's own answer, which ends the connection."""
    fields = {"content-type": "text/plain", **(headers or {})}
    # It may quote a request that is not UTF-8.
    return closing_response(status, body.encode(errors="backslashreplace"), fields)


def _authority(destination: Destination, port: int | None) -> str:
    """Return the host for the server: the one that was checked, not its original spelling."""
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    return host if port is None else f"{host}:{port}"


def _is_hop(name: bytes) -> bool:
    """Return whether a header field is for the proxy only."""
    return name.lower() in _HOP or name.lower().startswith(b"proxy-")


def _body(request: h11.Request) -> int | None:
    """Return the length of the body, `None` if it is chunked.

    Raises:
        ValueError: a host could see another length.
    """
    fields = dict(request.headers)
    if b"transfer-encoding" not in fields:
        return int(fields.get(b"content-length", b"0"))
    if b"content-length" in fields:
        raise ValueError("Content-Length and Transfer-Encoding")
    if request.http_version == b"1.0":
        raise ValueError("Transfer-Encoding in HTTP/1.0")
    return None


def _port(text: str | int) -> int:
    # `int` alone accepts signs, spaces, underscores and the digits of other scripts.
    if not re.fullmatch("[0-9]{1,5}", str(text)) or not 0 < int(text) < 65536:
        raise ValueError(f"invalid port {text}")
    return int(text)
