"""The state of one connection: the client's identity, capabilities and subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

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
from treadle.protocol.initialize import ClientInfo, InitializeParams
from treadle.protocol.method import Notification, Request
from treadle.protocol.notifications import (
    CONFIG_WARNING,
    ITEM_FILE_CHANGE_OUTPUT_DELTA,
    SERVER_NOTIFICATIONS,
    THREAD_STARTED,
)
from treadle.protocol.thread import ThreadStartedNotification
from treadle.server.requests.server_requests import needs_person, send_request
from treadle.server.subscription import Subscription
from treadle.store.journal import Event
from treadle.support.concurrency.workers import Workers

if TYPE_CHECKING:
    from treadle.connection.connection import Connection
    from treadle.engine.thread import LoadedThread
    from treadle.server.client_commands.running import ClientCommand
    from treadle.server.file_search.found import Found
    from treadle.server.file_search.searches import SearchSession, SingleSearches
    from treadle.server.server import Server

P = TypeVar("P", bound=msgspec.Struct)

MAX_FILE_REQUESTS: Final = 8
"""Maximum number of file requests of one client that run at once, and of searches; others wait."""

MAX_MCP_STARTS: Final = 2
"""Maximum number of requests of one client that start all MCP servers at once; others wait."""

logger = logging.getLogger(__name__)


class FollowedThread(Struct, frozen=True):
    """A thread that the client is subscribed to, and the task that delivers its events."""

    thread: LoadedThread
    subscription: Subscription
    task: asyncio.Task[None]


LAST_WITH_PATCH_OUTPUT: Final = 118
"""The last minor release of Codex whose clients expect `item/fileChange/outputDelta`."""


class ClientSession:
    """One client, from connection to disconnection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection: Connection[ClientSession] | None = None
        self.client: InitializeParams | None = None
        self.is_experimental = False
        self.wants_legacy_approvals = False
        # Whether the client presents requests to a person that only a person may answer.
        self.has_person = False
        # Running commands of the client, by the ids that it chose.
        self.commands: dict[str, ClientCommand] = {}
        # Running processes of the client, by the handles that it chose.
        self.processes: dict[str, ClientCommand] = {}
        # How many commands of the client run in threads.
        self.user_commands = 0
        # Questions to models that wait for their answer, by the ids of their requests.
        self.samples: dict[RequestId, asyncio.Timeout] = {}
        # Threads whose last call the guardian assesses for this client.
        self.assessments: set[str] = set()
        # Imports that the client has begun, and that have not ended.
        self.imports: set[str] = set()
        # How many questions the client asks the user for each thread; an unloaded one is forgotten.
        self.questions: WeakKeyDictionary[LoadedThread, int] = WeakKeyDictionary()
        # Tasks that report changed files, by watch id; `None` while a watch is being opened.
        self.watches: dict[str, asyncio.Task[None] | None] = {}
        # File searches whose query changes, by the ids that the client chose.
        self.search_sessions: dict[str, SearchSession] = {}
        self._opted_out: frozenset[str] = frozenset()
        self._broadcasts: Subscription | None = None
        self._followed: dict[str, FollowedThread] = {}
        # Server requests that the client has not answered yet, by number.
        self._open_requests: dict[int, asyncio.Task[None]] = {}
        # What former subscriptions delivered of threads that have undelivered broadcasts: events
        # after the first number, through the second.
        self._former: dict[str, tuple[int, int]] = {}

    @cached_property
    def file_workers(self) -> Workers:
        """The worker threads for the file requests of this client."""
        return self.server.client_workers.part(MAX_FILE_REQUESTS)

    @cached_property
    def search_workers(self) -> Workers:
        """The worker threads for the file searches of this client."""
        return self.server.search_workers.part(MAX_FILE_REQUESTS)

    @cached_property
    def mcp_starts(self) -> asyncio.Semaphore:
        """What requests of this client hold while the MCP servers that they started run."""
        return asyncio.Semaphore(MAX_MCP_STARTS)

    @cached_property
    def file_searches(self) -> SingleSearches:
        """The file searches of this client that have no session."""
        from treadle.server.file_search.searches import SingleSearches

        return SingleSearches(self.search_workers, self.found_files)

    @cached_property
    def found_files(self) -> Found:
        """What the file searches of this client have found and keep."""
        from treadle.server.file_search.found import Found

        return Found()

    def initialize(self, params: InitializeParams) -> None:
        """Record the client's identity and capabilities."""
        self.client = params
        if self.connection is not None:
            self.connection.introduce_peer()
            logger.info("client connected", extra={"peer": self.connection.peer})
        capabilities = params.capabilities
        if capabilities is not None:
            self.is_experimental = capabilities.experimental_api
            self.has_person = self.is_experimental and capabilities.required_human_approval is True
            extensions = capabilities.extensions or {}
            self.wants_legacy_approvals = extensions.get("legacyApprovals") is True
            self._opted_out = frozenset(capabilities.opt_out_notification_methods or ())
        if not self.wants_legacy_approvals and not is_older(params.client_info):
            self._opted_out |= {ITEM_FILE_CHANGE_OUTPUT_DELTA.method}

    def listen(self) -> None:
        """Send the server's warnings, then subscribe to broadcasts."""
        for warning in self.server.warnings():
            self.notify_nowait(CONFIG_WARNING, warning)
        log = self.server.threads.services.broadcasts
        self._broadcasts = Subscription(log, log.last_seq, self._deliver_broadcast)
        self._spawn(self._broadcasts, "announcements")

    def subscribe(self, thread: LoadedThread, after: int | None) -> None:
        """Subscribe to a thread's events after a position, or from now on.

        A repeated call has no effect. If the thread was unloaded and loaded again, delivery
        continues from the last position.
        """
        current = self._followed.get(thread.id)
        if current is not None:
            if current.thread is thread:
                return
            after = current.subscription.position
            self.unsubscribe(thread.id)
        run = self.server.threads.store.run
        subscription = Subscription(thread.log, after, partial(self._deliver, thread), run=run)
        task = self._spawn(subscription, f"follow {thread.id}")
        if task is not None:
            self._followed[thread.id] = FollowedThread(thread, subscription, task)
            self.server.threads.add_subscriber(thread)
        # A subscription includes the thread's sub-agents: they may have server requests too.
        for child in self.server.threads.agents.open_threads(thread):
            self.subscribe(child, None)

    def add_child(self, parent: LoadedThread, child: LoadedThread) -> None:
        """Subscribe to a sub-agent if the client is subscribed to its parent."""
        if parent.id not in self._followed:
            return
        if child.id not in self._followed:
            snapshot = self.server.threads.snapshot(child.meta)
            self.notify_nowait(THREAD_STARTED, ThreadStartedNotification(snapshot))
        self.subscribe(child, child.log.last_seq)

    def unsubscribe(self, thread_id: str) -> bool:
        """End a subscription; return false if there was none."""
        followed = self._followed.pop(thread_id, None)
        if followed is None:
            return False
        followed.task.cancel()
        broadcasts = self._broadcasts
        if broadcasts is not None and broadcasts.position < broadcasts.last_seq:
            subscription = followed.subscription
            self._former[thread_id] = subscription.after, subscription.position
        # The client may still answer open requests, but no longer blocks them: the others decide.
        requests = followed.thread.server_requests
        for request in requests.open:
            requests.release(request.request_id, self)
        self.server.threads.remove_subscriber(followed.thread)
        for child in self.server.threads.agents.open_threads(followed.thread):
            self.unsubscribe(child.id)
        return True

    def follows(self, thread_id: str) -> bool:
        """Return whether the client is subscribed to a thread."""
        return thread_id in self._followed

    def leave(self) -> None:
        """End all subscriptions: the client has disconnected."""
        for thread, count in self.questions.items():
            # Otherwise commands would never time out.
            for _ in range(count):
                thread.terminals.close_question()
        self.questions.clear()
        for thread_id in list(self._followed):
            self.unsubscribe(thread_id)

    async def drain(self) -> None:
        """Wait until the client has received the end of its turns and everything before it."""
        for followed in list(self._followed.values()):
            if followed.thread.turn is not None:
                await followed.thread.turn.ended.wait()
            await followed.subscription.caught_up()

    def notify_nowait(self, method: Notification[P], params: P) -> None:
        """Notify the client without waiting, unless it opted out."""
        if self.connection is not None and self._wants(method):
            self.connection.notify_nowait(method, params)

    async def notify(self, method: Notification[P], params: P) -> None:
        """Notify the client, unless it opted out."""
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
            # The client can reconnect and read everything again; continuing would hide the gap.
            logger.warning("client left behind", extra={"position": subscription.position})
            if self.connection is not None:
                self.connection.finish()

    async def _deliver(self, thread: LoadedThread, event: Event) -> None:
        if self.connection is None:
            return
        if isinstance(event, OpenedRequest):
            await self.connection.room()
            self._send_request(self.connection, thread, event)
            return
        if not self._wants(SERVER_NOTIFICATIONS[event.method]):
            return
        if self.server.threads.is_shared(thread):
            frame = self.server.encoded_events.encode(event, event.seq or None)
            await self.connection.post_encoded(frame)
        else:
            post = self.connection.post
            await post(event.method, event.params, at_ms=event.at_ms, seq=event.seq or None)

    def _send_request(
        self, connection: Connection[ClientSession], thread: LoadedThread, request: OpenedRequest
    ) -> None:
        """Send a server request to the client, unless it is closed or already sent."""
        number = request.request_id
        if not request.is_open():
            return
        if needs_person(request) and not self.has_person:
            self._leave_to_person(thread, number)
            return
        at_end = partial(self._stop_waiting, number)
        if number in self._open_requests:
            if not self._open_requests[number].done():
                thread.server_requests.hold(number, self, at_end)
            return
        try:
            answer = send_request(connection, thread, request, self)
        except ConnectionLost:
            return
        task = connection.spawn(self._take_answer(thread, number, answer), f"answer to {number}")
        if task is None:
            answer.close()
            return
        thread.server_requests.hold(number, self, at_end)
        self._open_requests[number] = task

        def on_done(done: asyncio.Task[None]) -> None:
            # A task that is cancelled before its first step does not run the coroutine.
            answer.close()
            if done.cancelled():
                thread.server_requests.leave(number, self)

        task.add_done_callback(on_done)

    def _leave_to_person(self, thread: LoadedThread, number: int) -> None:
        """Leave a request to the clients with a person; if there are none, it is refused."""
        followers = (each for each in self.server.sessions if each.follows(thread.id))
        if not any(each.has_person for each in followers):
            reason = "no client presents approvals to a person (requiredHumanApproval)"
            thread.server_requests.refuse(number, reason, self.name)
            thread.server_requests.release(number, self)

    async def _take_answer(
        self, thread: LoadedThread, number: int, answer: Coroutine[None, None, msgspec.Struct]
    ) -> None:
        """Forward the client's answer; a disconnected client has not answered."""
        try:
            thread.server_requests.answer(number, await answer, self.name)
        except ConnectionLost:
            thread.server_requests.leave(number, self)
        except RpcError as error:
            thread.server_requests.refuse(number, str(error), self.name)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            thread.server_requests.refuse(number, str(error), self.name, "nonsense")
        finally:
            thread.server_requests.release(number, self)

    def _stop_waiting(self, number: int) -> None:
        """Stop waiting for an answer: there is one, or none is needed."""
        task = self._open_requests.pop(number, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    @property
    def name(self) -> str:
        """The client's name, for records of its answers."""
        return "client" if self.client is None else f"client {self.client.client_info.name}"

    async def _deliver_broadcast(self, event: Event) -> None:
        if self.connection is None or not self._wants(SERVER_NOTIFICATIONS[event.method]):
            return
        if isinstance(event, ForwardedEvent) and self._receives_from_thread(event):
            return
        # Numbers belong to threads; a broadcast has none.
        if len(self.server.sessions) > 1:
            await self.connection.post_encoded(self.server.encoded_events.encode(event, None))
        else:
            await self.connection.post(event.method, event.params, at_ms=event.at_ms, seq=None)

    def _receives_from_thread(self, event: ForwardedEvent) -> bool:
        """Return whether the client receives this from the thread itself, in order."""
        thread_id = getattr(event.params, "thread_id", "")
        followed = self._followed.get(thread_id)
        if followed is not None:
            return event.thread_seq > followed.subscription.after
        former = self._former.get(thread_id)
        if self._broadcasts is not None and event.seq == self._broadcasts.last_seq:
            self._former.clear()
        return former is not None and former[0] < event.thread_seq <= former[1]

    def _wants(self, method: Notification[P]) -> bool:
        if self.client is None or method.method in self._opted_out:
            return False
        return self.is_experimental or not method.experimental


def is_older(client: ClientInfo) -> bool:
    """Return whether this is a program of Codex of a release that expects the output of patches."""
    parts = client.version.split("-")[0].split(".")
    if not client.name.startswith("codex") or len(parts) < 2:
        return False
    return parts[0] == "0" and parts[1].isdecimal() and int(parts[1][:4]) <= LAST_WITH_PATCH_OUTPUT


def guard(session: ClientSession, method: Request[object, object], params: object) -> None:
    """Reject requests before the handshake, repeated handshakes and missing capabilities."""
    if method is INITIALIZE:
        if session.client is not None:
            raise AlreadyInitialized
    elif session.client is None:
        raise NotInitialized
    if not session.is_experimental:
        for descriptor in gated(method, params):
            raise ExperimentalApiRequired(descriptor)
