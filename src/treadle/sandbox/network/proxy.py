"""The egress proxy of one command: accepts its connections, checks and forwards them.

The listening socket is created in the command's network namespace, which has no other way out, and
passed to the server. Accepting and checking happen here, outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Final

from treadle.sandbox.network import http, socks
from treadle.sandbox.network.hosts import Address
from treadle.sandbox.network.policy import Blocked, Destination, NetworkPolicy
from treadle.sandbox.network.tunnel import Resolve, Resolver, Streams, connect, exchange, splice
from treadle.support.concurrency.tasks import BackgroundTasks

PORT: Final = 3128
"""The proxy's port in the command's network namespace, in which every port is free."""

MAX_CONNECTIONS: Final = 128
_HEAD_SECONDS: Final = 30.0
_BUFFER: Final = 64 * 1024
_LINGER_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class EgressProxy:
    """The network access of one command while it runs."""

    def __init__(
        self,
        policy: NetworkPolicy,
        tasks: BackgroundTasks,
        *,
        judge: Callable[[Destination], Awaitable[None]],
        judge_address: Callable[[Address], None] = lambda _address: None,
        on_blocked: Callable[[Destination, Blocked], None] = lambda _destination, _blocked: None,
        resolve: Resolve | None = None,
    ) -> None:
        self._policy = policy
        self._nursery = tasks
        self._judge = judge
        self._judge_address = judge_address
        self._on_blocked = on_blocked
        self._resolve = resolve or Resolver()
        self._line, self._theirs = socket.socketpair()
        self._line.setblocking(False)
        # Many heads may arrive at once: other work runs between two of them.
        self._parsing = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unattended: set[socket.socket] = set()
        self._is_closed = False

    @property
    def descriptor(self) -> int:
        """The descriptor that the command inherits to pass its listener back; closed by `open`."""
        return self._theirs.fileno()

    def open(self) -> None:
        """Accept connections, after the command was started.

        Raises:
            RuntimeError: the server is closing.
        """
        self._theirs.close()
        self._spawn(self._serve(), self._line)

    def close(self) -> None:
        """Close all connections, and accept no more."""
        if not self._is_closed:
            self._is_closed = True
            self._theirs.close()
            if not self._tasks:
                self._line.close()
            for task in self._tasks:
                task.cancel()

    def _spawn(self, work: Coroutine[None, None, None], needs: socket.socket) -> None:
        """Start a task that closes its socket; close it here if the task never starts."""
        self._unattended.add(needs)
        task = self._nursery.spawn(work, "egress proxy")
        self._tasks.add(task)

        def on_done(_task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if needs in self._unattended:
                self._unattended.discard(needs)
                needs.close()

        task.add_done_callback(on_done)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._unattended.discard(self._line)
        with self._line:
            listener = await _receive(self._line)
        if listener is None:
            return  # it ended before it could listen
        with listener:
            while True:
                await self._room.acquire()
                try:
                    connection, _address = await loop.sock_accept(listener)
                except OSError as error:
                    # Out of descriptors: waiting connections are accepted when others have closed.
                    logger.warning("connection not accepted", extra={"error": repr(error)})
                    self._room.release()
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._spawn(self._attend(connection), connection)

    async def _attend(self, connection: socket.socket) -> None:
        self._unattended.discard(connection)
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=_BUFFER)
            await self._converse((reader, writer))
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            logger.debug("connection of a command failed", extra={"error": repr(error)})
        except asyncio.CancelledError:
            if writer is not None:
                writer.transport.abort()
            raise
        finally:
            self._room.release()
            if writer is None:
                connection.close()
            else:
                writer.close()

    async def _converse(self, ours: Streams) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            first = await ours[0].readexactly(1)
        if first == socks.VERSION:
            await self._speak_socks(ours)
        else:
            await self._speak_http(ours, first)

    async def _speak_http(self, ours: Streams, first: bytes) -> None:
        reader, writer = ours
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = first + await reader.readuntil(b"\r\n\r\n")
            async with self._parsing:
                await asyncio.sleep(0)
                request = http.read_request(head)
        except ValueError as error:
            writer.write(http.answer(HTTPStatus.BAD_REQUEST, f"{error}\n"))
            return
        try:
            theirs = await self._connect(
                request.destination, request.method, has_body=request.has_body
            )
        except Blocked as blocked:
            writer.write(http.refusal(request.destination, blocked))
            await _linger(ours)
        except OSError as error:
            writer.write(http.answer(HTTPStatus.BAD_GATEWAY, f"upstream failure: {error}\n"))
            await _linger(ours)
        else:
            with contextlib.closing(theirs[1]):
                if request.head:
                    theirs[1].write(request.head)
                    await exchange(ours, theirs, request.body)
                else:
                    writer.write(http.CONNECTED)
                    await splice(ours, theirs)

    async def _speak_socks(self, ours: Streams) -> None:
        _reader, writer = ours
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                destination = await socks.read_destination(*ours)
            theirs = await self._connect(destination)
        except socks.UnsupportedSocksRequest as error:
            writer.write(error.answer)
        except (Blocked, ValueError):
            writer.write(socks.refusal(is_blocked=True))
        except OSError:
            writer.write(socks.refusal(is_blocked=False))
        else:
            with contextlib.closing(theirs[1]):
                writer.write(socks.CONNECTED)
                await splice(ours, theirs)

    async def _connect(
        self, destination: Destination, method: str = "", *, has_body: bool = False
    ) -> Streams:
        """Connect if allowed.

        Raises:
            Blocked: it is not allowed.
            OSError: the host cannot be reached.
        """
        try:
            self._policy.check_use(destination, method, has_body=has_body)
            await self._judge(destination)
            return await connect(
                destination, self._resolve, check=partial(self._check, destination)
            )
        except Blocked as blocked:
            self._on_blocked(destination, blocked)
            raise

    def _check(self, destination: Destination, address: Address) -> None:
        self._policy.check_address(destination, address)
        self._judge_address(address)


async def _linger(ours: Streams) -> None:
    """Read the rest of a request: otherwise the program could lose the answer."""
    reader, writer = ours
    writer.write_eof()
    async with asyncio.timeout(_LINGER_SECONDS):
        while await reader.read(_BUFFER):
            pass


async def _receive(line: socket.socket) -> socket.socket | None:
    """Receive the listener; `None` if the connection ends without one."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(line, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(line)
    try:
        _data, fds, _flags, _address = socket.recv_fds(line, 1, 1)
    except OSError:
        return None
    if not fds:
        return None
    listener = socket.socket(fileno=fds[0])
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.close()
        return None
    listener.setblocking(False)
    return listener
