"""A proxy on the loopback that forwards requests to a real provider and records them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.protocol.base import JsonValue
from treadle.testing.cassette import (
    Cassette,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from treadle.testing.provider import Provider, ProviderRequest, serve
from treadle.testing.redaction import Redactor

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from aiohttp.web import Request, StreamResponse

# Headers of the connection, not of the request; a compressed stream could not be read.
_NOT_FORWARDED: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"}
)
# Headers that tests may depend on, without cookies and account ids.
_RECORDED_HEADERS: Final = re.compile(
    r"content-type|retry-after(-ms)?|(x|anthropic)-ratelimit-.*|openai-model"
    r"|x-codex-(?!turn-state).*"
)
_SECONDS: Final = 300.0


class Recorder(Provider):
    """A proxy of a real provider that writes requests and responses to its file."""

    def __init__(self, base_url: str, path: Path, redactor: Redactor) -> None:
        super().__init__(self.pass_on)
        self.path = path
        self._upstream = base_url.rstrip("/")
        self._redactor = redactor
        self._slots: list[RecordedExchange | None] = []
        self._session: ClientSession | None = None

    async def pass_on(self, request: Request, received: ProviderRequest) -> StreamResponse:
        """Forward a request, stream the response, and record both."""
        from aiohttp import ClientError
        from aiohttp.web import json_response

        self._redactor.learn(received.headers)
        slot = len(self._slots)
        self._slots.append(None)
        session = self._session or self._open()
        headers = {
            name: value for name, value in received.headers.items() if name not in _NOT_FORWARDED
        }
        try:
            answer = await session.request(
                received.method,
                self._upstream + received.path,
                data=received.body,
                headers=headers,
                allow_redirects=False,  # the request carries the caller's key
            )
        except (ClientError, OSError) as error:
            message = f"the recorder cannot reach {self._upstream}: {error}"
            return json_response({"error": {"message": message}}, status=502)
        async with answer:
            return await self._relay(request, received, answer, slot)

    async def close(self) -> None:
        """Close the connections to the provider."""
        if self._session is not None:
            await self._session.close()

    async def _relay(
        self, request: Request, received: ProviderRequest, answer: ClientResponse, slot: int
    ) -> StreamResponse:
        from aiohttp import ClientError
        from aiohttp.web import StreamResponse

        headers = _recorded_headers(answer.headers)
        response = StreamResponse(status=answer.status, headers=headers)
        pieces: list[bytes] = []
        is_whole = False
        try:
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                pieces.append(piece)
                await response.write(piece)
            is_whole = True
        except (ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.close()
        finally:
            # Also when the caller disconnects in the middle.
            content = _read_body(b"".join(pieces), headers.get("content-type", ""))
            self._store(
                slot, received, RecordedResponse(status=answer.status, headers=headers), content
            )
            self._finish(slot, is_cut=not is_whole)
        return response

    def _store(
        self, slot: int, received: ProviderRequest, response: RecordedResponse, content: JsonValue
    ) -> None:
        redactor = self._redactor
        if isinstance(content, list):
            response.stream = redactor.events(content)
        else:
            response.body = redactor.value(_document(content))
        request = RecordedRequest(
            method=received.method,
            path=redactor.path(received.path),
            body=redactor.value(_document(received.body.decode("utf-8", "replace"))),
        )
        response.headers = {name: redactor.text(each) for name, each in response.headers.items()}
        self._slots[slot] = RecordedExchange(request, response)

    def _finish(self, slot: int, *, is_cut: bool) -> None:
        exchange = self._slots[slot]
        if exchange is not None:
            exchange.finish(is_cut=is_cut)
        Cassette([each for each in self._slots if each is not None]).write(self.path)

    def _open(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar

        self._session = ClientSession(
            timeout=ClientTimeout(total=None, sock_read=_SECONDS),
            cookie_jar=DummyCookieJar(),
            headers={"accept-encoding": "identity"},
            trust_env=True,
        )
        return self._session


@asynccontextmanager
async def record(base_url: str, path: str | Path) -> AsyncIterator[Recorder]:
    """Record a provider until the block ends: use `recorder.base_url` in its place.

    Each exchange is in the file as soon as it is over. Request headers are not written; texts that
    look like keys, were used as keys, or are keys of this process's environment are replaced.
    """
    async with serve(Recorder(base_url, Path(path), Redactor(os.environ))) as recorder:
        try:
            yield recorder
        finally:
            await recorder.close()


def _recorded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    lowered = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lowered.items() if _RECORDED_HEADERS.fullmatch(name)}


def _read_body(body: bytes, content_type: str) -> str | list[str]:
    """Return a body as text, or as events if it is an event stream."""
    text = body.decode("utf-8", "replace")
    if "event-stream" not in content_type:
        return text
    return [event for event in re.split(r"(?<=\n\n)|(?<=\r\n\r\n)", text) if event]


def _document(text: str) -> JsonValue:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
