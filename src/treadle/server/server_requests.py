"""Questions as one client is to read them: with what it understands, in the form it knows."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.protocol.base import EXPERIMENTAL
from treadle.protocol.server_requests import SERVER_REQUESTS

# Experimental by its schema, and sent to everybody all the same: clients offer what it lists.
_SENT_TO_ALL: Final = frozenset({"available_decisions"})

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.engine.events.log import OpenedRequest
    from treadle.engine.thread import LoadedThread
    from treadle.server.session import ClientSession


def put(
    connection: Connection[ClientSession],
    thread: LoadedThread,
    asked: OpenedRequest,
    client: ClientSession,
) -> Coroutine[None, None, msgspec.Struct]:
    """Put a question to a client; gives its answer.

    Raises:
        ConnectionLost: the client hung up.
    """
    if client.wants_legacy_approvals:
        from treadle.server.legacy_requests import put_legacy

        older = put_legacy(connection, thread, asked)
        if older is not None:
            return older
    params = asked.params if client.is_experimental else without_experimental(asked.params)
    return connection.begin_request(SERVER_REQUESTS[asked.method], params, id_=asked.request_id)


def without_experimental(params: msgspec.Struct) -> msgspec.Struct:
    """The question without the fields that a client has to ask for."""
    fields = EXPERIMENTAL.get(type(params), frozenset()) - _SENT_TO_ALL
    return msgspec.structs.replace(params, **dict.fromkeys(fields)) if fields else params
