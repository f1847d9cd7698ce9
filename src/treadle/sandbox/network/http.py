"""The egress proxy's HTTP side: parses request heads, and answers requests it does not forward.

One request per connection: the next one may be for another host, and is checked again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from treadle.sandbox.network.hosts import normal
from treadle.sandbox.network.policy import Blocked, Destination, Reason

CONNECTED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_ERRORS: Final[dict[Reason, str]] = {
    "denied": "blocked-by-denylist",
    "not_allowed": "blocked-by-allowlist",
    "not_allowed_local": "blocked-by-allowlist",
    "method_not_allowed": "blocked-by-method-policy",
}
# For the proxy only, or about a connection other than ours.
_HOP: Final = frozenset({"connection", "host", "keep-alive", "upgrade", "http2-settings"})


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request to the proxy."""

    method: str
    destination: Destination
    # The head for the host; empty for a tunnel.
    head: bytes = b""
    has_body: bool = False


def read_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request.

    Raises:
        ValueError: it is invalid, or not a proxy request.
    """
    # Hosts may be in other scripts; bytes that are not UTF-8 are forwarded unchanged.
    lines = head.decode(errors="surrogateescape").split("\r\n")
    # A host might treat a bare line feed as the end of a line, and see another request.
    if any(character < " " and character != "\t" for line in lines for character in line):
        raise ValueError("control characters")
    method, target, version = lines[0].split(" ")
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise ValueError(f"unsupported version {version!r}")
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        return ProxyRequest(method, Destination(normal(host), _port(port), "https"))
    url = urlsplit(target)
    if url.scheme != "http" or not url.hostname:
        raise ValueError("a proxy request needs an absolute URL, as in http://host/path")
    destination = Destination(normal(url.hostname), _port(url.port or 80), "http")
    fields = [_field(line) for line in lines[1:] if line]
    kept = [
        (name, value)
        for name, value in fields
        if name.lower() not in _HOP and not name.lower().startswith("proxy-")
    ]
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    sent = [f"{method} {path} {version}", f"Host: {_authority(destination, url.port)}"]
    sent += [f"{name}: {value}" for name, value in kept]
    sent += ["Connection: close", "", ""]
    content = "\r\n".join(sent).encode(errors="surrogateescape")
    return ProxyRequest(method, destination, content, _has_body(fields))


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
    return answer("403 Forbidden", json.dumps(body), fields)


def answer(status: str, body: str, fields: dict[str, str] | None = None) -> bytes:
    """Return the proxy's own answer, which ends the connection."""
    # It may quote a request that is not UTF-8.
    content = body.encode(errors="backslashreplace")
    given = {"content-type": "text/plain", **(fields or {})}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in given.items())]
    lines += [f"content-length: {len(content)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode() + content


def _authority(destination: Destination, port: int | None) -> str:
    """Return the host for the server: the one that was checked, not its original spelling."""
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    return host if port is None else f"{host}:{port}"


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or name != name.strip() or not name:
        raise ValueError(f"invalid header field {line[:40]!r}")
    return name, value.strip()


def _has_body(fields: list[tuple[str, str]]) -> bool:
    given = {name.lower(): value for name, value in fields}
    return "transfer-encoding" in given or given.get("content-length", "0") != "0"


def _port(text: str | int) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise ValueError(f"invalid port {text}")
    return port
