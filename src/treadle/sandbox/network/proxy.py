"""The way out for one command: takes its connections, has each judged, and makes those it may.

The socket that programs connect to was made in the command's network, which has no other way out,
and handed to us from there. Listening and judging happen here, outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final

from treadle.sandbox.network import http, socks
from treadle.sandbox.network.hosts import Address
from treadle.sandbox.network.policy import Blocked, Destination, NetworkPolicy
from treadle.sandbox.network.tunnel import Resolve, Resolver, Streams, connect, splice
from treadle.support.concurrency.tasks import BackgroundTasks

PORT: Final = 3128
"""Where the gate is in a command's own network, in which every port is free."""

MAX_CONNECTIONS: Final = 128
_HEAD_SECONDS: Final = 30.0
_MAX_HEAD: Final = 64 * 1024
_LINGER_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class EgressProxy:
    """What one command reaches, for as long as it runs."""

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
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unattended: set[socket.socket] = set()
        self._is_closed = False

    @property
    def descriptor(self) -> int:
        """What the command is to inherit, to hand its listener out over; closed by `open`."""
        return self._theirs.fileno()

    def open(self) -> None:
        """Take connections: the command has been started.

        Raises:
            RuntimeError: the server is closing.
        """
        self._theirs.close()
        self._spawn(self._serve(), self._line)

    def close(self) -> None:
        """Cut all connections, and take no more."""
        if not self._is_closed:
            self._is_closed = True
            self._theirs.close()
            if not self._tasks:
                self._line.close()
            for task in self._tasks:
                task.cancel()

    def _spawn(self, work: Coroutine[None, None, None], needs: socket.socket) -> None:
        """Start a task that closes its socket; if it is cancelled before, that is done here."""
        self._unattended.add(needs)
        task = self._nursery.spawn(work, "gate")
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
                    # No descriptor is left: those who wait are taken when others have gone.
                    logger.warning("no connection taken", extra={"error": repr(error)})
                    self._room.release()
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._spawn(self._attend(connection), connection)

    async def _attend(self, connection: socket.socket) -> None:
        self._unattended.discard(connection)
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_HEAD)
            await self._converse((reader, writer))
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            logger.debug("connection of a command broke", extra={"error": repr(error)})
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
            request = http.read_request(head)
        except ValueError as error:
            writer.write(http.answer("400 Bad Request", f"{error}\n"))
            return
        try:
            theirs = await self._connect(
                request.destination, request.method, has_body=request.has_body
            )
        except Blocked as blocked:
            writer.write(http.refusal(request.destination, blocked))
            await _linger(ours)
        except OSError as error:
            writer.write(http.answer("502 Bad Gateway", f"upstream failure: {error}\n"))
            await _linger(ours)
        else:
            with contextlib.closing(theirs[1]):
                theirs[1].write(request.head)
                if not request.head:
                    writer.write(http.CONNECTED)
                # What follows a request that only reads could be one that does more.
                await splice(ours, theirs, answers_only=self._policy.is_limited)

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
        """Connect if that is allowed.

        Raises:
            Blocked: it is not.
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
    """Hear a program out that is still sending: else it would lose what it was answered."""
    reader, writer = ours
    writer.write_eof()
    async with asyncio.timeout(_LINGER_SECONDS):
        while await reader.read(_MAX_HEAD):
            pass


async def _receive(line: socket.socket) -> socket.socket | None:
    """The listener that comes over a line; `None` if the line ends without one."""
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
