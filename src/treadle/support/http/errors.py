"""Errors of HTTP requests.

HttpError
    HttpDisconnected    the connection ended before the response did
    UnsendableRequest   the request cannot be sent as it is; also a ValueError
"""

from __future__ import annotations


class HttpError(Exception):
    """A request failed, for a reason that is not an error of the operating system."""


class HttpDisconnected(HttpError):
    """The connection ended before the response did."""


class UnsendableRequest(HttpError, ValueError):
    """The address or a header of a request is invalid."""
