"""The body of a provider's response: an event stream with an idle timeout."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from treadle.model.base import PREAMBLE, ModelError, ModelEvent, ReasoningPartAdded
from treadle.model.errors import disconnected, words_of
from treadle.model.http.idle_timeout import StreamTimeout
from treadle.model.http.sse import MAX_EVENT_BYTES, EventTooLarge, SseParser, is_excessive
from treadle.model.provider import ProviderConfig

if TYPE_CHECKING:
    from treadle.support.http.connection import ClientResponse

# How long to wait for the end of a body after the last event; a new connection costs far more.
LINGER_S: Final = 5.0
MAX_SECONDS: Final = 24 * 3600.0
"""The longest response without `total_timeout_ms`: one character at a time would take years."""


class ResponseBody:
    """An open stream with an idle timeout."""

    def __init__(self, response: ClientResponse, config: ProviderConfig) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        kind = self.headers.get("content-type", "")
        # Proxies report errors as a document, with status 200 and any content type.
        self._is_document = kind.startswith("application/json")
        self._parser = SseParser()
        self._loop = asyncio.get_running_loop()
        self._silence = StreamTimeout(
            config.stream_idle_timeout_ms / 1000, config.stream_keep_alive_timeout_ms / 1000
        )
        total_ms = config.total_timeout_ms
        self._has_own_limit = total_ms is not None
        self._ends_at = self._loop.time() + (MAX_SECONDS if total_ms is None else total_ms / 1000)
        # One periodic timer costs less than a new timeout around each read.
        self._given_up: ModelError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._watch()

    async def next_payloads(self) -> list[bytes]:
        """Return the data of the next events; nothing at the end of the stream.

        Raises:
            ModelError: the connection failed, or was idle for too long.
        """
        try:
            if self._is_document:
                return await self._whole_document()
            while not self._is_over:
                chunk = await self._next_chunk()
                self._is_over = not chunk
                if self._parser.ends_long_event(chunk):
                    # Several passes over the data, with other tasks of the event loop in between.
                    payloads = await asyncio.to_thread(self._parser.feed, chunk)
                else:
                    payloads = self._parser.feed(chunk) if chunk else self._parser.finish()
                if payloads:
                    return payloads
        except EventTooLarge as error:
            raise disconnected(str(error)) from error
        return []

    async def _whole_document(self) -> list[bytes]:
        document = bytearray()
        while not self._is_over and len(document) < MAX_EVENT_BYTES:
            chunk = await self._next_chunk()
            self._is_over = not chunk
            document += chunk
        self._is_document = False
        # Several passes over what may be 16 MiB, with other tasks of the event loop in between.
        whole = bytes(document)
        if await asyncio.to_thread(is_excessive, whole):
            raise ModelError(
                "the response is a document with too deep nesting or too many parts",
                phase="stream",
            )
        return [whole]

    async def _next_chunk(self) -> bytes:
        from treadle.support.http.errors import HttpError

        chunk = b""
        self._silence.begin_wait(self._loop.time())
        try:
            chunk = await self._response.read()
        except (HttpError, OSError) as error:
            raise self._given_up or disconnected(words_of(error)) from error
        finally:
            self._silence.end_wait(self._loop.time(), chunk)
        self._silence.require_progress()
        return chunk

    def note(self, event: ModelEvent) -> None:
        """Record an event of this stream: a part of the response, or metadata."""
        is_empty = isinstance(event, ReasoningPartAdded) or getattr(event, "delta", None) == ""
        if not is_empty and not isinstance(event, PREAMBLE):
            self._silence.note_progress()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, or back in the pool."""
        return self._response.is_closed

    def linger(self) -> None:
        """Wait in the background for the end of the body."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._response.is_closed:
            self._timer = self._loop.call_later(LINGER_S, self.close)

    def close(self) -> None:
        """Stop; close the connection of a stream that is not at its end."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()

    def _watch(self) -> None:
        now = self._loop.time()
        if now >= self._ends_at:
            # Together, attempts that take a day each would block the turn for a week.
            why = "the response took longer than total_timeout_ms allows"
            self._give_up(disconnected(why, is_retryable=self._has_own_limit))
            return
        silent_at = self._silence.ends_at(now)
        if now >= silent_at:
            self._give_up(self._silence.error(now))
            return
        self._timer = self._loop.call_at(min(silent_at, self._ends_at), self._watch)

    def _give_up(self, error: ModelError) -> None:
        self._given_up = error
        self._response.close()
