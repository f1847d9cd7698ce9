"""A proxy on the loopback that passes requests on to a real provider and writes them down."""

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

# Of the connection, not of the request; and a compressed stream could not be read.
_NOT_PASSED_ON: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"}
)
# What tests may depend on. Never cookies, nor whose account it is.
_KEPT: Final = re.compile(
    r"content-type|retry-after(-ms)?|(x|anthropic)-ratelimit-.*|openai-model"
    r"|x-codex-(?!turn-state).*"
)
_SECONDS: Final = 300.0


class Recorder(Provider):
    """Stands before a real provider; what it was asked and answered is in its file."""

    def __init__(self, base_url: str, path: Path, redactor: Redactor) -> None:
        super().__init__(self.pass_on)
        self.path = path
        self._upstream = base_url.rstrip("/")
        self._redactor = redactor
        self._slots: list[RecordedExchange | None] = []
        self._session: ClientSession | None = None

    async def pass_on(self, request: Request, asked: ProviderRequest) -> StreamResponse:
        """Pass a request on, give its answer as it comes, and write both down."""
        from aiohttp import ClientError
        from aiohttp.web import json_response

        self._redactor.learn(asked.headers)
        slot = len(self._slots)
        self._slots.append(None)
        session = self._session or self._open()
        headers = {
            name: value for name, value in asked.headers.items() if name not in _NOT_PASSED_ON
        }
        try:
            answer = await session.request(
                asked.method,
                self._upstream + asked.path,
                data=asked.body,
                headers=headers,
                allow_redirects=False,  # the request carries the caller's key
            )
        except (ClientError, OSError) as error:
            message = f"the recorder cannot reach {self._upstream}: {error}"
            return json_response({"error": {"message": message}}, status=502)
        async with answer:
            return await self._relay(request, asked, answer, slot)

    async def close(self) -> None:
        """Let go of the provider."""
        if self._session is not None:
            await self._session.close()

    async def _relay(
        self, request: Request, asked: ProviderRequest, answer: ClientResponse, slot: int
    ) -> StreamResponse:
        from aiohttp import ClientError
        from aiohttp.web import StreamResponse

        headers = _kept(answer.headers)
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
            # Also when whoever asked has gone away in the middle.
            told = _told(b"".join(pieces), headers.get("content-type", ""))
            self._keep(slot, asked, RecordedResponse(status=answer.status, headers=headers), told)
            self._finish(slot, is_cut=not is_whole)
        return response

    def _keep(
        self, slot: int, asked: ProviderRequest, response: RecordedResponse, told: JsonValue
    ) -> None:
        clean = self._redactor
        if isinstance(told, list):
            response.stream = clean.events(told)
        else:
            response.body = clean.value(_document(told))
        request = RecordedRequest(
            method=asked.method,
            path=clean.path(asked.path),
            body=clean.value(_document(asked.body.decode("utf-8", "replace"))),
        )
        response.headers = {name: clean.text(each) for name, each in response.headers.items()}
        self._slots[slot] = RecordedExchange(request, response)

    def _finish(self, slot: int, *, is_cut: bool) -> None:
        kept = self._slots[slot]
        if kept is not None:
            kept.response.is_cut = is_cut
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
    """Stand before a provider until the block ends: ask `recorder.base_url` in its place.

    Each exchange is in the file as soon as it is over. No header of a request is written; what
    looks like a key, what was used as one, and the keys of this process's environment are replaced.
    """
    async with serve(Recorder(base_url, Path(path), Redactor(os.environ))) as recorder:
        try:
            yield recorder
        finally:
            await recorder.close()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in named.items() if _KEPT.fullmatch(name)}


def _told(body: bytes, content_type: str) -> str | list[str]:
    """A body as text, or as events if it is a stream of them."""
    text = body.decode("utf-8", "replace")
    if "event-stream" not in content_type:
        return text
    return [event for event in re.split(r"(?<=\n\n)|(?<=\r\n\r\n)", text) if event]


def _document(text: str) -> JsonValue:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
