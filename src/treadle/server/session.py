"""What the server keeps per connection: who the client is, and what it wants to hear."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from treadle.protocol.client_requests import INITIALIZE
from treadle.protocol.gate import gated
from treadle.protocol.initialize import InitializeParams
from treadle.protocol.method import Notification, Request
from treadle.rpc.errors import AlreadyInitialized, ExperimentalApiRequired, NotInitialized

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.server.server import Server

P = TypeVar("P")


class ClientSession:
    """One client, from its handshake to its hang-up."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection: Connection[ClientSession] | None = None
        self.client: InitializeParams | None = None
        self.is_experimental = False
        self._opted_out: frozenset[str] = frozenset()

    def initialize(self, params: InitializeParams) -> None:
        """Learn who the client is and what it can do."""
        self.client = params
        capabilities = params.capabilities
        if capabilities is not None:
            self.is_experimental = capabilities.experimental_api
            self._opted_out = frozenset(capabilities.opt_out_notification_methods or ())

    async def notify(self, method: Notification[P], params: P) -> None:
        """Tell the client, unless it does not want to know."""
        if self.connection is not None and self._wants(method):
            await self.connection.notify(method, params)

    def _wants(self, method: Notification[P]) -> bool:
        if self.client is None or method.method in self._opted_out:
            return False
        return self.is_experimental or not method.experimental


def guard(session: ClientSession, method: Request[object, object], params: object) -> None:
    """Refuse what comes before the handshake, twice, or without the needed capability."""
    if method is INITIALIZE:
        if session.client is not None:
            raise AlreadyInitialized
    elif session.client is None:
        raise NotInitialized
    if not session.is_experimental:
        for descriptor in gated(method, params):
            raise ExperimentalApiRequired(descriptor)
