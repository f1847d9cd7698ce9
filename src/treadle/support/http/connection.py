"""One connection to a server: sends a request, parses its response, keeps what is not read yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Self, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from treadle.support.http.errors import HttpDisconnected, HttpError

# A server that sends more is made to wait until it is read.
MAX_UNREAD: Final = 512 * 1024
# Status line, headers, informational responses and trailers: what arrives without a part of a body.
MAX_HEAD: Final = 256 * 1024
# What arrives in addition for each byte of a body: one of a chunk by itself takes six.
_OVERHEAD: Final = 16
PART: Final = 64 * 1024


class HttpConnection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self, on_lost: Callable[[HttpConnection], None] | None = None) -> None:
        self.on_lost = on_lost
        self.is_lost = False
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._response: ClientResponse | None = None
        self._begun: asyncio.Future[ClientResponse] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._head_bytes = 0
        self._is_sending = False
        self._may_be_reused = False
        self._fields: dict[str, list[str]] = {}
        self._status = b""

    async def send(self, head: bytes, body: bytes | None) -> ClientResponse:
        """Send a request; return when the head of its response has arrived.

        Raises:
            HttpError: the connection ended, or what arrived is not HTTP.
            OSError: the connection failed.
        """
        transport = self._transport
        if transport is None or self.is_lost:
            raise HttpDisconnected("the server closed the connection")
        begun: asyncio.Future[ClientResponse] = asyncio.get_running_loop().create_future()
        self._begun = begun
        self._response = None
        self._head_bytes = 0
        try:
            self._is_sending = True
            await self._write(transport, head, body or b"", begun)
            self._is_sending = False
            return await begun
        except BaseException:
            # The caller stops waiting, so the response is of no use.
            begun.cancel()
            self.abort()
            raise

    async def _write(
        self,
        transport: asyncio.Transport,
        head: bytes,
        body: bytes,
        begun: asyncio.Future[ClientResponse],
    ) -> None:
        if len(body) <= PART:
            transport.write(head + body)
            return
        transport.write(head)
        whole = memoryview(body)
        # In parts, with other tasks of the event loop in between.
        for start in range(0, len(body), PART):
            await asyncio.sleep(0)
            await self._writable.wait()
            if begun.done():  # the server does not wait for the whole request
                return
            transport.write(whole[start : start + PART])

    @property
    def has_received(self) -> bool:
        """Whether a part of the current response has arrived."""
        return self._head_bytes > 0

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what arrives; data that no request explains ends the connection."""
        if self._begun is None and self._response is None:
            self.abort()
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail(HttpError("the server switches to another protocol"))
        except HttpParserError as error:
            self._fail(HttpError(f"the response is not valid HTTP: {error}"))
        else:
            if self._head_bytes > MAX_HEAD:
                self._fail(HttpError(f"the response has more than {MAX_HEAD} bytes of headers"))

    def eof_received(self) -> None:
        """Let the transport close itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response: completely if only the end of the connection shows its end."""
        is_end = exc is None and not self.is_lost
        self.is_lost = True
        if self._response is not None and is_end and self._response.ends_with_connection:
            self._complete(self._response)
        else:
            self._fail(exc or HttpDisconnected("the server closed the connection"))
        if self.on_lost is not None:
            self.on_lost(self)

    def pause_writing(self) -> None:
        """Make the sender of a body wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let the sender of a body continue."""
        self._writable.set()

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Begin the head of a response; one that no request explains ends the connection."""
        if self._begun is None:
            self.abort()
        self._fields = {}
        self._status = b""

    def on_status(self, status: bytes) -> None:
        """Add to the reason of the status line."""
        self._status += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        key = name.decode("latin-1").lower()
        self._fields.setdefault(key, []).append(value.decode("utf-8", "replace"))

    def on_headers_complete(self) -> None:
        """Return the response to the sender of the request."""
        status = self._parser.get_status_code()
        if status < 200 or self._begun is None:
            return
        self._may_be_reused = not self._is_sending
        reason = self._status.decode("utf-8", "replace")
        # Fields of the same name are joined, as HTTP defines it.
        headers = {name: ", ".join(values) for name, values in self._fields.items()}
        self._response = ClientResponse(self, status, reason, headers)
        if not self._begun.done():
            self._begun.set_result(self._response)
        self._writable.set()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body until it is read."""
        # What a body does not explain adds up: extensions of chunks, responses before the real one.
        if self._response is not None:
            self._head_bytes = max(0, self._head_bytes - _OVERHEAD * len(body))
            self._response.receive(body)

    def on_message_complete(self) -> None:
        """End the response and keep the connection, unless one side wants to close it."""
        # An informational response: the real one follows.
        if self._response is None:
            return
        if not (self._may_be_reused and self._parser.should_keep_alive()):
            self.abort()
        self._complete(self._response)

    def _complete(self, response: ClientResponse) -> None:
        self._response = self._begun = None
        response.finish()

    def _fail(self, error: Exception) -> None:
        response, begun = self._response, self._begun
        self._response = self._begun = None
        self.abort()
        self._writable.set()
        if response is not None:
            response.fail(error)
        elif begun is not None and not begun.done():
            begun.set_exception(error)


class ClientResponse:
    """A response whose body is read in the pieces in which it arrives; names are in lower case."""

    def __init__(
        self, connection: HttpConnection, status: int, reason: str, headers: dict[str, str]
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self._then: Callable[[], None] | None = None
        self._connection = connection
        self._unread: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._is_complete = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, or free for the next request."""
        return self._is_complete or self._error is not None

    @property
    def ends_with_connection(self) -> bool:
        """Whether the body ends where the connection does: it has no length."""
        return not ("content-length" in self.headers or "transfer-encoding" in self.headers)

    async def read(self) -> bytes:
        """Return what has arrived of the body, at least a byte; nothing at its end.

        Raises:
            HttpError: the connection ended before the body did.
            OSError: the connection failed.
        """
        while not self._unread:
            if self._error is not None:
                raise self._error
            if self._is_complete:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._unread.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._connection.resume()
        return data

    def on_complete(self, action: Callable[[], None]) -> None:
        """Call a function when the body is complete: now, if it is."""
        if self._is_complete:
            action()
        else:
            self._then = action

    def close(self) -> None:
        """Close the connection of a response that is not complete."""
        if not self.is_closed:
            self.fail(HttpDisconnected("the connection is closed"))
            self._connection.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()

    # The connection calls these.

    def receive(self, data: bytes) -> None:
        """Keep a part of the body."""
        if self._error is not None:
            return
        self._unread.append(data)
        self._size += len(data)
        if self._size > MAX_UNREAD and not self._is_paused:
            self._is_paused = True
            self._connection.pause()
        self._wake()

    def finish(self) -> None:
        """Mark the body as complete, and give the connection back."""
        self._is_complete = True
        if self._is_paused:
            self._is_paused = False
            self._connection.resume()
        self._wake()
        if self._then is not None:
            self._then()

    def fail(self, error: Exception) -> None:
        """Make the reader fail after what has arrived."""
        if not self.is_closed:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
