"""What the server keeps per connection: who the client is, and what it wants to hear."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from treadle.connection.connection import ConnectionLost
from treadle.engine.events.log import ForwardedEvent, OpenedRequest
from treadle.engine.events.reader import EventsExpired
from treadle.jsonrpc.errors import (
    AlreadyInitialized,
    ExperimentalApiRequired,
    NotInitialized,
    RpcError,
)
from treadle.protocol.base import RequestId
from treadle.protocol.client_requests import INITIALIZE
from treadle.protocol.experimental import gated
from treadle.protocol.initialize import InitializeParams
from treadle.protocol.method import Notification, Request
from treadle.protocol.notifications import CONFIG_WARNING, SERVER_NOTIFICATIONS, THREAD_STARTED
from treadle.protocol.thread import (
    ServerRequestResolvedNotification,
    ThreadStartedNotification,
)
from treadle.server.server_requests import put
from treadle.server.subscription import Subscription
from treadle.store.journal import Event
from treadle.support.concurrency.workers import Workers

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.engine.thread import LoadedThread
    from treadle.server.handlers.command import ClientCommand
    from treadle.server.server import Server

P = TypeVar("P", bound=msgspec.Struct)

MAX_FILE_REQUESTS: Final = 8
"""How many requests about files are worked on at once for one client; more of them wait."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Followed:
    """A thread that the client hears, and the task that tells it."""

    thread: LoadedThread
    subscription: Subscription
    task: asyncio.Task[None]


class ClientSession:
    """One client, from its handshake to its hang-up."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection: Connection[ClientSession] | None = None
        self.client: InitializeParams | None = None
        self.is_experimental = False
        self.wants_legacy_approvals = False
        # Commands that run for the client, by the ids that it chose.
        self.commands: dict[str, ClientCommand] = {}
        # What tells it of changed files, by the ids of the watches.
        self.watches: dict[str, asyncio.Task[None]] = {}
        self._opted_out: frozenset[str] = frozenset()
        self._announcements: Subscription | None = None
        self._followed: dict[str, Followed] = {}
        # What the client was asked and has not answered yet, by number.
        self._asked: dict[int, asyncio.Task[None] | None] = {}
        # Threads heard no more, as long as something told while they were is still to be told.
        self._left: dict[str, Subscription] = {}

    @cached_property
    def file_workers(self) -> Workers:
        """Threads for the client's own requests about files; others have theirs."""
        return Workers("fs", MAX_FILE_REQUESTS)

    def initialize(self, params: InitializeParams) -> None:
        """Learn who the client is and what it can do."""
        self.client = params
        if self.connection is not None:
            self.connection.introduce_peer()
            logger.info("client connected", extra={"peer": self.connection.peer})
        capabilities = params.capabilities
        if capabilities is not None:
            self.is_experimental = capabilities.experimental_api
            extensions = capabilities.extensions or {}
            self.wants_legacy_approvals = extensions.get("legacyApprovals") is True
            self._opted_out = frozenset(capabilities.opt_out_notification_methods or ())

    def listen(self) -> None:
        """Hear what is told to everybody from now on, and first what is wrong with the server."""
        for warning in self.server.warnings():
            self.tell(CONFIG_WARNING, warning)
        log = self.server.threads.broadcasts
        self._announcements = Subscription(log, log.last_seq, self._deliver_announcement)
        self._spawn(self._announcements, "announcements")

    def subscribe(self, thread: LoadedThread, after: int | None) -> None:
        """Hear what happens in a thread after a position, or from now on.

        A second time changes nothing: the first one tells everything. One that was let go of and
        is loaded anew is heard from where it was left.
        """
        known = self._followed.get(thread.id)
        if known is not None:
            if known.thread is thread:
                return
            after = known.subscription.position
            self.unsubscribe(thread.id)
        run = self.server.threads.store.run
        subscription = Subscription(thread.log, after, partial(self._deliver, thread), run=run)
        task = self._spawn(subscription, f"follow {thread.id}")
        if task is not None:
            self._followed[thread.id] = Followed(thread, subscription, task)
            self.server.threads.add_subscriber(thread)
        # Whoever hears an agent hears those that work for it: they may have questions too.
        for child in self.server.threads.agents.open_threads(thread):
            self.subscribe(child, None)

    def meet(self, parent: LoadedThread, child: LoadedThread) -> None:
        """Hear of an agent that works for another one, if that one is heard."""
        if parent.id not in self._followed:
            return
        if child.id not in self._followed:
            snapshot = self.server.threads.snapshot(child.meta)
            self.tell(THREAD_STARTED, ThreadStartedNotification(snapshot))
        self.subscribe(child, child.log.last_seq)

    def unsubscribe(self, thread_id: str) -> bool:
        """Hear no more of a thread; false if it was not heard."""
        followed = self._followed.pop(thread_id, None)
        if followed is None:
            return False
        followed.task.cancel()
        waits = self._announcements
        if waits is not None and waits.position < waits.last_seq:
            self._left[thread_id] = followed.subscription
        # It may still answer what it was asked, but nobody waits for that: the others decide.
        for number in list(self._asked):
            followed.thread.server_requests.let_go(number, self)
        self.server.threads.remove_subscriber(followed.thread)
        for child in self.server.threads.agents.open_threads(followed.thread):
            self.unsubscribe(child.id)
        return True

    def leave(self) -> None:
        """Hear no more of anything: the client is gone."""
        for thread_id in list(self._followed):
            self.unsubscribe(thread_id)

    async def drain(self) -> None:
        """Wait until the client was told how the turns ended that it heard, and all before."""
        for followed in list(self._followed.values()):
            if followed.thread.turn is not None:
                await followed.thread.turn.ended.wait()
            await followed.subscription.caught_up()

    def tell(self, method: Notification[P], params: P) -> None:
        """Tell the client at once, unless it does not want to know."""
        if self.connection is not None and self._wants(method):
            self.connection.notify_nowait(method, params)

    async def notify(self, method: Notification[P], params: P) -> None:
        """Tell the client, unless it does not want to know."""
        if self.connection is not None and self._wants(method):
            await self.connection.notify(method, params)

    def _spawn(self, subscription: Subscription, name: str) -> asyncio.Task[None] | None:
        if self.connection is None:
            return None
        return self.connection.spawn(self._follow(subscription), name)

    async def _follow(self, subscription: Subscription) -> None:
        try:
            await subscription.follow()
        except EventsExpired:
            # It can come back and read everything anew; going on would hide that it missed some.
            logger.warning("client left behind", extra={"position": subscription.position})
            if self.connection is not None:
                self.connection.finish()

    async def _deliver(self, thread: LoadedThread, event: Event) -> None:
        if self.connection is None:
            return
        if isinstance(event, OpenedRequest):
            await self.connection.room()
            self._ask(self.connection, thread, event)
            return
        if isinstance(event.params, ServerRequestResolvedNotification):
            self._forget(event.params.request_id)
        if self._wants(SERVER_NOTIFICATIONS[event.method]):
            post = self.connection.post
            await post(event.method, event.params, at_ms=event.at_ms, seq=event.seq or None)

    def _ask(
        self, connection: Connection[ClientSession], thread: LoadedThread, asked: OpenedRequest
    ) -> None:
        """Put a question to the client, unless it has it already or nobody needs an answer."""
        number = asked.request_id
        if not asked.is_open():
            return
        if number in self._asked:
            known = self._asked[number]
            if known is not None and not known.done():
                thread.server_requests.hold(number, self)
            return
        try:
            answer = put(connection, thread, asked, self)
        except ConnectionLost:
            return
        thread.server_requests.hold(number, self)
        work = self._take_answer(thread, number, answer)
        self._asked[number] = connection.spawn(work, f"answer to {number}")

    async def _take_answer(
        self, thread: LoadedThread, number: int, answer: Coroutine[None, None, msgspec.Struct]
    ) -> None:
        """Pass the client's answer on; a client that is gone has not answered."""
        try:
            thread.server_requests.answer(number, await answer, self.name)
        except ConnectionLost:
            pass
        except RpcError as error:
            thread.server_requests.refuse(number, str(error), self.name)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            thread.server_requests.refuse(number, str(error), self.name, "nonsense")
        finally:
            thread.server_requests.let_go(number, self)

    def _forget(self, number: RequestId) -> None:
        """Wait no more for an answer: somebody else gave one, or none is needed."""
        task = self._asked.pop(number, None) if isinstance(number, int) else None
        if task is not None:
            task.cancel()

    @property
    def name(self) -> str:
        """Who the client says it is, for the books."""
        return "client" if self.client is None else f"client {self.client.client_info.name}"

    async def _deliver_announcement(self, event: Event) -> None:
        if self.connection is None or not self._wants(SERVER_NOTIFICATIONS[event.method]):
            return
        if isinstance(event, ForwardedEvent) and self._hears(event):
            return
        await self.connection.post(event.method, event.params, at_ms=event.at_ms, seq=None)

    def _hears(self, event: ForwardedEvent) -> bool:
        """Whether the client hears this from the thread itself, in its place among the others."""
        thread_id = getattr(event.params, "thread_id", "")
        followed = self._followed.get(thread_id)
        if followed is not None:
            return event.thread_seq > followed.subscription.after
        left = self._left.get(thread_id)
        if self._announcements is not None and event.seq == self._announcements.last_seq:
            self._left.clear()
        return left is not None and left.after < event.thread_seq <= left.position

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
