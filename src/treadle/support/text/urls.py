"""URLs: the origin of a redirect, and the part of an address that an error may quote."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""The statuses that redirect a client to another address."""

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{0,15}://[^\s'\"<>]+", re.IGNORECASE)
_INVALID: Final = "an invalid URL"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, or "an invalid URL"."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{_host(parts)}" if parts.scheme and parts.hostname else _INVALID
    except ValueError:  # an invalid port or IPv6 address
        return _INVALID


def redirect_target(url: str, location: str | None) -> str | None:
    """Return the address of a redirect, `None` without a usable `Location`."""
    if not location:
        return None
    try:
        return urljoin(url, location)
    except ValueError:
        return None


def is_same_origin(url: str, other: str) -> bool:
    """Return whether two URLs share scheme, host and port; invalid URLs share nothing."""
    origin = origin_of(url)
    return origin != _INVALID and origin == origin_of(other)


def web_link(url: str | None, *prefixes: str) -> str | None:
    """Return a link of a stranger that a client may open: to a page, or with one of the prefixes.

    Others name programs, scripts and files of the machine on which the client runs.
    """
    is_safe = url is not None and url.lower().startswith(("https://", "http://", *prefixes))
    return url if is_safe else None


def without_secrets(url: str) -> str:
    """Return a URL as an error may show it: without user name, password, query and fragment."""
    try:
        parts = urlsplit(url)
        if not (parts.username or parts.password or parts.query or parts.fragment):
            return url
        return f"{parts.scheme}://{_host(parts)}{parts.path}"
    except ValueError:
        return _INVALID


def without_queries(text: str) -> str:
    """Return a text with each URL in it as an error may show it."""
    return _URL.sub(lambda match: without_secrets(match[0]), text)


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    name = f"[{host}]" if ":" in host else host
    port = parts.port
    return name if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{name}:{port}"
