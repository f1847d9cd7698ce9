"""The connection to one server: handshake, requests with timeouts, reconnection.

A separate task owns the connection, so that a server that dies never cancels the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Final, Protocol, TypeVar, runtime_checkable

from treadle.client._compat.lenient import decode, fault_of
from treadle.client._compat.surrogates import replace_lone_surrogates
from treadle.client._runtime.reconnect import Backoff, RequestSender
from treadle.client.connectors import Connector
from treadle.client.errors import (
    OVERLOADED,
    ClientError,
    Disconnected,
    RequestRefused,
    RequestTimeout,
    ServerExited,
    ServerUnavailable,
)
from treadle.connection.connection import Connection, ConnectionLost
from treadle.connection.router import Router
from treadle.jsonrpc.envelope import NotificationMessage
from treadle.jsonrpc.errors import RpcError
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import INITIALIZE
from treadle.protocol.initialize import InitializeParams, InitializeResponse
from treadle.protocol.method import Notification, Request
from treadle.support.concurrency.alarms import Alarms
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.transport.base import Transport

P = TypeVar("P")
R = TypeVar("R")

INITIALIZED: Final = Notification("initialized", NoParams)
_OVERLOAD_RETRIES: Final = Backoff(attempts=6, first_s=0.1, longest_s=2.0)
_REPEATABLE: Final = ("/read", "/list", "/search", "/readFile", "/readDirectory", "/getMetadata")

logger = logging.getLogger(__name__)


@runtime_checkable
class ChildTransport(Protocol):
    """The attributes of a transport to a child process."""

    exit_code: int | None
    stderr_tail: str


class _Link:
    """One connection and the task that runs it."""

    def __init__(
        self, transport: Transport, connection: Connection[None], tasks: BackgroundTasks
    ) -> None:
        self.transport = transport
        self.connection = connection
        self.task = tasks.spawn(connection.run(), "connection")

    def failure(self) -> Disconnected:
        """Return the error that describes the loss of the connection."""
        transport = self.transport
        if isinstance(transport, ChildTransport):
            return ServerExited(transport.exit_code, transport.stderr_tail)
        return Disconnected(f"{transport.peer} disconnected")


class ServerConnection:
    """The client's connection to its server, across reconnections."""

    def __init__(
        self,
        connector: Connector,
        router: Router[None],
        tasks: BackgroundTasks,
        alarms: Alarms,
        *,
        on_notice: Callable[[NotificationMessage], None],
        on_return: Callable[[RequestSender], Awaitable[None]],
        on_end: Callable[[Disconnected], None],
        hello: InitializeParams,
        backoff: Backoff | None,
        timeout: float | None,
    ) -> None:
        self._connector = connector
        self._router = router
        self._tasks = tasks
        self._alarms = alarms
        self._on_notice = on_notice
        self._on_return = on_return
        self._on_end = on_end
        self._hello = hello
        self._backoff = backoff
        self._timeout = timeout
        self._link: _Link | None = None
        self._is_closing = False
        self._end: Disconnected | None = None
        self._is_up = asyncio.Event()

    @property
    def can_return(self) -> bool:
        """Whether the client reconnects after a lost connection."""
        return self._backoff is not None

    async def open(self) -> InitializeResponse:
        """Connect and perform the handshake.

        Raises:
            ServerUnavailable: the server cannot be reached.
            Disconnected: the server disconnected during the handshake.
        """
        link, answer = await self._handshake()
        self._use(link)
        self._tasks.spawn(self._supervise(link), "connection supervisor")
        return answer

    def _use(self, link: _Link) -> None:
        self._link = link
        self._is_up.set()
        # Called immediately, so that no request uses the lost connection.
        link.task.add_done_callback(self._on_lost)

    def _on_lost(self, _task: asyncio.Task[None]) -> None:
        if self._end is None:
            self._is_up.clear()

    async def close(self) -> None:
        """Close the connection; every open request fails."""
        self._is_closing = True
        if self._link is not None:
            self._link.connection.finish()
            await asyncio.wait({self._link.task})
        self._finish(Disconnected("the client is closed"))

    async def request(self, method: Request[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; retry while the server is overloaded.

        `timeout` defaults to the client's; `inf` waits without a limit.

        Raises:
            RequestRefused: the server answered with an error.
            RequestTimeout: the server did not answer in time.
            Disconnected: the connection is lost.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            with self._alarms.limit(None if seconds == inf else seconds):
                return await self._request_with_retries(method, params)
        except TimeoutError:
            raise RequestTimeout(method.method, seconds or 0) from None

    async def _request_with_retries(self, method: Request[P, R], params: P) -> R:
        delays = _OVERLOAD_RETRIES.delays()
        while True:
            link = self._link if self._is_up.is_set() else None
            if link is None:
                link = await self._current_link()
            try:
                return await _request(link.connection, method, params)
            except RequestRefused as refused:
                delay = next(delays, None) if refused.code == OVERLOADED else None
                if delay is None:
                    raise
                await asyncio.sleep(delay)
            except ConnectionLost:
                await asyncio.wait({link.task})
                if not self.can_return or not method.method.endswith(_REPEATABLE):
                    raise link.failure() from None

    async def _current_link(self) -> _Link:
        """Return the connection, after a reconnection in progress."""
        if self._link is not None and not self._is_up.is_set():
            await self._is_up.wait()
        if self._link is None:
            raise _copy(self._end or Disconnected("the client is not connected"))
        return self._link

    async def _supervise(self, link: _Link) -> None:
        """Reconnect after each loss, until the client closes or the attempts are used up."""
        try:
            while True:
                await asyncio.wait({link.task})
                if self._is_closing:
                    return
                logger.info("connection lost", extra={"reason": str(link.failure())})
                if (
                    self._backoff is None
                    or (new_link := await self._reconnect(self._backoff)) is None
                ):
                    return
                link = new_link
                self._use(link)
        finally:
            # On every exit, the open requests must fail.
            if not self._is_closing:
                self._finish(link.failure())

    async def _reconnect(self, backoff: Backoff) -> _Link | None:
        for delay in backoff.delays():
            await asyncio.sleep(delay)
            try:
                link, _answer = await self._handshake()
            except ServerUnavailable as unavailable:
                if unavailable.is_final:
                    return None
                continue
            except ClientError:
                continue
            try:
                await self._on_return(partial(self._request_on, link.connection))
            except (ConnectionLost, TimeoutError):
                await self._drop(link)
                continue
            return link
        return None

    async def _request_on(
        self, connection: Connection[None], method: Request[P, R], params: P
    ) -> R:
        async with asyncio.timeout(self._timeout):
            return await _request(connection, method, params)

    async def _handshake(self) -> tuple[_Link, InitializeResponse]:
        transport = await self._connector.connect(self._tasks)
        valid = replace_lone_surrogates(transport)
        connection = Connection(valid, self._router, None, on_notice=self._on_notice)
        link = _Link(transport, connection, self._tasks)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await _request(connection, INITIALIZE, self._hello)
                await connection.notify(INITIALIZED, NoParams())
        except ConnectionLost:
            await asyncio.wait({link.task})
            raise link.failure() from None
        except TimeoutError:
            await self._drop(link)
            raise RequestTimeout("initialize", self._timeout or 0) from None
        except BaseException:
            await self._drop(link)
            raise
        return link, answer

    async def _drop(self, link: _Link) -> None:
        link.connection.finish()
        await asyncio.wait({link.task})

    def _finish(self, failure: Disconnected) -> None:
        if self._end is None:
            self._end = failure
            self._is_up.set()
            self._link = None
            self._on_end(failure)


async def _request(connection: Connection[None], method: Request[P, R], params: P) -> R:
    try:
        raw = await connection.request_raw(method.method, params)
    except RpcError as error:
        raise RequestRefused.of(method.method, error) from None
    answer = decode(method.result_decoder, method.result, raw)
    if (fault := fault_of(answer, method.result)) is not None:
        message = f"the peer's answer cannot be read: {fault}"
        raise RequestRefused(method.method, -32700, message)
    return answer


def _copy(failure: Disconnected) -> Disconnected:
    """Return a new error for each waiter: a shared one would collect all their tracebacks."""
    if isinstance(failure, ServerExited):
        return ServerExited(failure.exit_code, failure.stderr)
    return Disconnected(str(failure))
