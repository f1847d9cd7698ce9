"""Writes the one HTTP response of a connection that is closed after it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import h11


def closing_response(status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a complete response, after which the connection is closed."""
    connection = h11.Connection(h11.SERVER)
    fields = [*headers.items(), ("content-length", str(len(body))), ("connection", "close")]
    response = h11.Response(status_code=status, reason=status.phrase, headers=fields)
    events = (response, h11.Data(body), h11.EndOfMessage())
    return b"".join(connection.send(event) or b"" for event in events)
