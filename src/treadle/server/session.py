"""What the server keeps per connection: who the client is, and what it wants to hear."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from treadle.engine.thread import Thread
from treadle.engine.threads import BROADCAST
from treadle.protocol.client_requests import INITIALIZE
from treadle.protocol.gate import gated
from treadle.protocol.initialize import InitializeParams
from treadle.protocol.method import Notification, Request
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.rpc.errors import AlreadyInitialized, ExperimentalApiRequired, NotInitialized
from treadle.server.subscription import follow
from treadle.store.journal import Event

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.server.server import Server

P = TypeVar("P", bound=msgspec.Struct)


class ClientSession:
    """One client, from its handshake to its hang-up."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection: Connection[ClientSession] | None = None
        self.client: InitializeParams | None = None
        self.is_experimental = False
        self._opted_out: frozenset[str] = frozenset()
        self._subscriptions: dict[str, tuple[Thread, asyncio.Task[None]]] = {}

    def initialize(self, params: InitializeParams) -> None:
        """Learn who the client is and what it can do."""
        self.client = params
        capabilities = params.capabilities
        if capabilities is not None:
            self.is_experimental = capabilities.experimental_api
            self._opted_out = frozenset(capabilities.opt_out_notification_methods or ())

    def listen(self) -> None:
        """Hear what is told to everybody from now on."""
        log = self.server.threads.announcements
        if self.connection is not None:
            work = follow(log, log.last_seq, self._deliver_announcement)
            self.connection.spawn(work, "announcements")

    def subscribe(self, thread: Thread, after: int) -> None:
        """Hear what happens in a thread after a position; a second time changes nothing."""
        if thread.id in self._subscriptions or self.connection is None:
            return
        work = follow(thread.log, after, self._deliver)
        task = self.connection.spawn(work, f"follow {thread.id}")
        if task is not None:
            self._subscriptions[thread.id] = (thread, task)
            self.server.threads.listen(thread)

    def unsubscribe(self, thread_id: str) -> bool:
        """Hear no more of a thread; false if it was not heard."""
        thread, task = self._subscriptions.pop(thread_id, (None, None))
        if thread is None or task is None:
            return False
        task.cancel()
        self.server.threads.unlisten(thread)
        return True

    def leave(self) -> None:
        """Hear no more of anything: the client is gone."""
        for thread_id in list(self._subscriptions):
            self.unsubscribe(thread_id)

    def tell(self, method: Notification[P], params: P) -> None:
        """Tell the client at once, unless it does not want to know."""
        if self.connection is not None and self._wants(method):
            self.connection.tell(method, params)

    async def notify(self, method: Notification[P], params: P) -> None:
        """Tell the client, unless it does not want to know."""
        if self.connection is not None and self._wants(method):
            await self.connection.notify(method, params)

    async def _deliver(self, event: Event) -> None:
        if self.connection is not None and self._wants(SERVER_NOTIFICATIONS[event.method]):
            post = self.connection.post
            await post(event.method, event.params, at_ms=event.at_ms, seq=event.seq)

    async def _deliver_announcement(self, event: Event) -> None:
        if self.connection is None or not self._wants(SERVER_NOTIFICATIONS[event.method]):
            return
        # A subscriber hears these from the thread itself, in their place among its other events.
        thread_id = getattr(event.params, "thread_id", None)
        if event.method in BROADCAST and thread_id in self._subscriptions:
            return
        await self.connection.post(event.method, event.params, at_ms=event.at_ms, seq=None)

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
