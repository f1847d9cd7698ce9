"""Sends server requests to one client, in the form and with the fields that it supports."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.protocol.base import EXPERIMENTAL
from treadle.protocol.server_requests import SERVER_REQUESTS

# Experimental in the schema, but sent to every client: clients offer the decisions it lists.
_SENT_TO_ALL: Final = frozenset({"available_decisions"})

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.engine.events.log import OpenedRequest
    from treadle.engine.thread import LoadedThread
    from treadle.server.session import ClientSession


def send_request(
    connection: Connection[ClientSession],
    thread: LoadedThread,
    request: OpenedRequest,
    client: ClientSession,
) -> Coroutine[None, None, msgspec.Struct]:
    """Send a server request to a client, and return its answer.

    Raises:
        ConnectionLost: the client closed the connection.
    """
    if client.wants_legacy_approvals and not needs_person(request):
        from treadle.server.requests.legacy_requests import send_legacy

        legacy = send_legacy(connection, thread, request)
        if legacy is not None:
            return legacy
    params = request.params if client.is_experimental else without_experimental(request.params)
    return connection.begin_request(SERVER_REQUESTS[request.method], params, id_=request.request_id)


def needs_person(request: OpenedRequest) -> bool:
    """Return whether only a person may answer a request."""
    return getattr(request.params, "kind", None) == "humanCommand"


def without_experimental(params: msgspec.Struct) -> msgspec.Struct:
    """Return the request without its experimental fields."""
    fields = EXPERIMENTAL.get(type(params), frozenset()) - _SENT_TO_ALL
    return msgspec.structs.replace(params, **dict.fromkeys(fields)) if fields else params
