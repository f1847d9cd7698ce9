"""Errors of HTTP requests.

HttpError
    Disconnected     the connection ended before the response did
    InvalidRequest   the request cannot be sent as it is; also a ValueError
"""

from __future__ import annotations


class HttpError(Exception):
    """A request failed, for a reason that is not an error of the operating system."""


class Disconnected(HttpError):
    """The connection ended before the response did."""


class InvalidRequest(HttpError, ValueError):
    """The address or a header of a request is invalid."""
