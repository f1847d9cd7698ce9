"""The address of a request: where to connect, what to request, which login the URL has."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct

from treadle.support.http.errors import UnsendableRequest

_PORTS: Final = {"http": 80, "https": 443}
# RFC 3986: what a path or a query may contain; `%` stays, as the text may be encoded already.
_PLAIN: Final = "/?:@!$&'()*+,;=-._~%"
_HOST: Final = re.compile(r"[a-zA-Z0-9._%:-]++")


class Origin(Struct, frozen=True):
    """A server: connections to the same origin are interchangeable."""

    scheme: str
    host: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether requests are encrypted."""
        return self.scheme == "https"

    @property
    def netloc(self) -> str:
        """Host and port, as in a `CONNECT` request."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def header(self) -> str:
        """The value of the header `Host`."""
        return _bracketed(self.host) if self.port == _PORTS[self.scheme] else self.netloc


class Address(Struct, frozen=True):
    """A URL in parts; `login` is the value of an `Authorization` header."""

    origin: Origin
    target: str
    login: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse a URL with the scheme http or https.

        Raises:
            UnsendableRequest: the URL has another scheme, or no valid host or port.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UnsendableRequest(f"invalid URL: {error}") from None
        if parts.scheme not in _PORTS:
            raise UnsendableRequest(f"expected a URL with http or https, not {parts.scheme!r}")
        origin = Origin(parts.scheme, _host(parts), _PORTS[parts.scheme] if port is None else port)
        target = quote(parts.path or "/", safe=_PLAIN)
        if parts.query:
            target += f"?{quote(parts.query, safe=_PLAIN)}"
        return cls(origin, target, _login(parts))

    @property
    def url(self) -> str:
        """The whole URL without its login, as a proxy receives it."""
        return f"{self.origin.scheme}://{self.origin.header}{self.target}"


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError as error:
            raise UnsendableRequest(f"invalid host name: {error}") from None
    if _HOST.fullmatch(host) is None:
        raise UnsendableRequest("invalid URL: expected a host name")
    return host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _login(parts: SplitResult) -> str | None:
    if not (parts.username or parts.password):
        return None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
