"""Collects the secrets in HTTP requests to MCP servers and their authorization servers.

This module imports the HTTP library, so it is imported only when a server is configured.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

import httpx2
from mcp.client import session as sdk_session

from treadle.support.text.secrets import MAX_TEXT, Secrets, secrets_of_headers, secrets_of_url
from treadle.support.text.urls import without_queries

Hook = Callable[[httpx2.Request], Awaitable[None]]

_FORM: Final = "application/x-www-form-urlencoded"
_FORM_SECRETS: Final = frozenset(
    {"client_secret", "client_assertion", "refresh_token", "code", "code_verifier"}
)
# pydantic quotes invalid documents, which may contain tokens.
_QUOTE, _INPUT, _MORE = "[type=", "input_value=", "For further information"

# The SDK logs whole malformed messages as errors, but payloads must not appear above DEBUG.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
# Its sessions log to "client", a name that the program around this server may use itself.
sdk_session.logger = logging.getLogger("mcp.client.session")


def recording_hook(secrets: Secrets, configured: Mapping[str, str]) -> Hook:
    """Return a hook that records the secrets of each request before it is sent."""
    names = {name.lower() for name in configured} | {"authorization"}

    async def record(request: httpx2.Request) -> None:
        sent = {name: value for name, value in request.headers.items() if name.lower() in names}
        secrets.add(secrets_of_headers(sent))
        secrets.add(secrets_of_url(str(request.url)))
        if request.headers.get("content-type") == _FORM:
            form = parse_qsl((await request.aread()).decode("utf-8", "replace"))
            secrets.add(value for name, value in form if name in _FORM_SECRETS)

    return record


def error_text(error: BaseException) -> str:
    """The text of a library's error, without URL queries and quoted documents."""
    # The text may come from a server: each step takes linear time.
    lines = map(_without_quote, str(error)[:MAX_TEXT].splitlines())
    return without_queries("\n".join(filter(None, lines))) or type(error).__name__


def _without_quote(line: str) -> str:
    start = line.find(_QUOTE)
    if start < 0 or line.find(_INPUT, start) < 0:
        start = line.find(_MORE)
    return line if start < 0 else line[:start].rstrip()
