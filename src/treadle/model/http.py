"""HTTP to a provider: addresses, keys, deadlines and streams; never what is said in them.

aiohttp is imported at the first request: a server answers its clients long before that.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode, urlsplit

from treadle.model.base import Completed, ModelError, ModelEvent
from treadle.model.errors import (
    Now,
    connection_failed,
    disconnected,
    from_status,
    missing_key,
    no_answer,
)
from treadle.model.provider import Credentials, ProviderConfig, nobody
from treadle.model.sse import MAX_EVENT_BYTES, EventTooLarge, SseParser, decode_json, encode_json
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    import aiohttp

# The first that is set wins.
CA_VARIABLES: Final = ("CODEX_CA_CERTIFICATE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# How long the end of a body may take after the last event; a new connection costs far more.
LINGER_S: Final = 5.0
MAX_ERROR_BYTES: Final = 64 * 1024
_READ_BUFFER: Final = 256 * 1024
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Reading(Protocol):
    """How one API's stream becomes events."""

    def begin(self, headers: Mapping[str, str], /) -> Sequence[ModelEvent]:
        """The provider answers; the names of the headers are in lower case."""

    def feed(self, payload: bytes) -> Sequence[ModelEvent]:
        """Take the data of one event of the stream; `Completed` ends it."""

    def finish(self) -> Sequence[ModelEvent]:
        """The stream has ended without `Completed`: give it now, or raise."""


class Endpoint:
    """One provider: where it is, how to be let in, and how long to wait for it."""

    def __init__(
        self,
        provider_id: str,
        config: ProviderConfig,
        *,
        environ: Mapping[str, str],
        credentials: Credentials = nobody,
        now: Now = time.time,
    ) -> None:
        self.provider_id = provider_id
        self.config = config
        self.now = now
        self._environ = environ
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._lingering: set[Answer] = set()

    async def events(
        self, path: str, body: JsonValue, headers: Mapping[str, str], reading: Reading
    ) -> AsyncGenerator[ModelEvent, None]:
        """Post, and read the stream that comes back; closing the generator drops the line.

        Raises:
            ModelError: at any point.
        """
        answer = await self._post(path, encode_json(body), headers)
        emitted = is_whole = False
        try:
            for event in reading.begin(answer.headers):
                yield event
            while payloads := await answer.next_payloads():
                for payload in payloads:
                    for event in reading.feed(payload):
                        emitted = True
                        is_whole = isinstance(event, Completed)
                        yield event
                        if is_whole:
                            return
            for event in reading.finish():
                yield event
        except ModelError as error:
            error.emitted = emitted
            raise
        finally:
            if is_whole:
                self._let_go(answer)
            else:
                answer.close()

    async def get_json(self, path: str, headers: Mapping[str, str] | None = None) -> JsonValue:
        """Fetch a small document.

        Raises:
            ModelError: the provider does not have it, or does not answer.
        """
        response = await self._request("GET", path, None, headers or {})
        async with response:
            return decode_json(await response.read())

    async def close(self) -> None:
        """Close all connections."""
        for answer in self._lingering:
            answer.close()
        self._lingering.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _let_go(self, answer: Answer) -> None:
        """All was said: the connection can be kept once the end of the body is here too."""
        answer.linger()
        self._lingering = {known for known in (*self._lingering, answer) if not known.is_closed}

    async def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        sent = {"accept": "text/event-stream", "content-type": "application/json", **headers}
        response = await self._request("POST", path, body, sent)
        return Answer(response, self.config)

    async def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        session = self._session or await self._open_session()
        base = (self.config.base_url or "").rstrip("/")
        url = f"{base}/{path}"
        all_headers = await self._headers(headers)
        response = await self._send(session, method, url, body, all_headers)
        if response.status >= 300:
            async with response:
                raise await self._refusal(response, url)
        return response

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        import aiohttp

        patience = self.config.first_byte_timeout_ms / 1000
        query = urlencode(self.config.query_params)
        target = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
        while True:
            trace = SimpleNamespace(is_reused=False)
            try:
                async with asyncio.timeout(patience):
                    return await session.request(
                        method, target, data=body, headers=headers, trace_request_ctx=trace
                    )
            except aiohttp.ServerDisconnectedError as error:
                # A connection that was kept and had been closed meanwhile took no request.
                if not trace.is_reused:
                    raise connection_failed(error, url) from error
            except (aiohttp.ClientSSLError, aiohttp.InvalidURL) as error:
                raise connection_failed(error, url, is_retryable=False) from error
            except aiohttp.ConnectionTimeoutError as error:
                raise connection_failed(error, url) from error
            except TimeoutError as error:
                raise no_answer(url, patience) from error
            except (aiohttp.ClientError, OSError) as error:
                raise connection_failed(error, url) from error

    async def _refusal(self, response: aiohttp.ClientResponse, url: str) -> ModelError:
        import aiohttp

        body = b""
        try:
            async with asyncio.timeout(self.config.stream_idle_timeout_ms / 1000):
                body = await response.content.read(MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError):
            pass  # the status alone has to do
        headers = _lower(response)
        reason = response.reason or ""
        return from_status(response.status, reason, body, headers, url=url, now=self.now)

    async def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        config = self.config
        # A compressed stream would wait in the compressor.
        all_headers = {"user-agent": "treadle", "accept-encoding": "identity", **headers}
        all_headers |= await self._authorization()
        given = dict(config.http_headers)
        for name, variable in config.env_http_headers.items():
            if self._environ.get(variable):
                given[name] = self._environ[variable]
        return all_headers | {name.lower(): value for name, value in given.items()}

    async def _authorization(self) -> dict[str, str]:
        config = self.config
        login = await self._credentials() if config.requires_openai_auth else None
        if login is not None:
            account = {"chatgpt-account-id": login.account_id} if login.account_id else {}
            return {"authorization": f"Bearer {login.token}", **account}
        key = self._environ.get(config.env_key or "") or config.experimental_bearer_token
        if key:
            is_anthropic = config.wire_api == "anthropic"
            return {"x-api-key": key} if is_anthropic else {"authorization": f"Bearer {key}"}
        if config.env_key:
            raise missing_key(config.env_key, self.provider_id, config.env_key_instructions)
        return {}

    async def _open_session(self) -> aiohttp.ClientSession:
        if "aiohttp" not in sys.modules:
            # 150 ms during which other threads of conversation should go on.
            await asyncio.to_thread(importlib.import_module, "aiohttp")
        import aiohttp

        if self._session is not None:
            return self._session
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        host = urlsplit(self.config.base_url or "").hostname
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_tls(self._environ) or True),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self.config.connect_timeout_ms / 1000
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Proxies are for the world outside, whatever no_proxy leaves out.
            trust_env=host not in _LOOPBACK,
            trace_configs=[trace],
            read_bufsize=_READ_BUFFER,
        )
        return self._session


class Answer:
    """A stream under way, watched for silence."""

    def __init__(self, response: aiohttp.ClientResponse, config: ProviderConfig) -> None:
        self.headers = _lower(response)
        self._response = response
        kind = self.headers.get("content-type", "")
        # Proxies report errors as a document, with status 200 and whatever was asked for.
        self._is_document = kind.startswith("application/json")
        self._parser = SseParser()
        self._loop = asyncio.get_running_loop()
        self._idle_s = config.stream_idle_timeout_ms / 1000
        total_ms = config.total_timeout_ms
        self._ends_at = None if total_ms is None else self._loop.time() + total_ms / 1000
        # One timer that looks now and then costs less than a new timeout around each read.
        self._waiting_since: float | None = None
        self._given_up: ModelError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._watch()

    async def next_payloads(self) -> list[bytes]:
        """The data of the next events; nothing at the end of the stream.

        Raises:
            ModelError: the line broke, or was silent for too long.
        """
        try:
            if self._is_document:
                return await self._whole_document()
            while not self._is_over:
                chunk = await self._next_chunk()
                self._is_over = not chunk
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
        return [bytes(document)]

    async def _next_chunk(self) -> bytes:
        import aiohttp

        self._waiting_since = self._loop.time()
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._given_up or disconnected(str(error) or type(error).__name__) from error
        finally:
            self._waiting_since = None

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone, or back among those that are kept."""
        return self._response.closed

    def linger(self) -> None:
        """Wait, in nobody's way, for the end of the body."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._response.closed:
            self._timer = self._loop.call_later(LINGER_S, self.close)

    def close(self) -> None:
        """Stop; a stream that is not at its end is cut."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()

    def _watch(self) -> None:
        now = self._loop.time()
        if self._ends_at is not None and now >= self._ends_at:
            self._give_up(disconnected("the response took longer than total_timeout_ms allows"))
            return
        since = now if self._waiting_since is None else self._waiting_since
        silent_at = since + self._idle_s
        if now >= silent_at:
            self._give_up(disconnected(f"nothing came for {self._idle_s:g} s"))
            return
        next_look = silent_at if self._ends_at is None else min(silent_at, self._ends_at)
        self._timer = self._loop.call_at(next_look, self._watch)

    def _give_up(self, error: ModelError) -> None:
        self._given_up = error
        self._response.close()


async def _note_reuse(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.is_reused = True


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _tls(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """The system's authorities and the one that the environment names, if it does."""
    for variable in CA_VARIABLES:
        path = environ.get(variable)
        if path:
            context = ssl.create_default_context()
            try:
                context.load_verify_locations(cafile=path)
            except OSError as error:
                raise ModelError(f"{variable}: no certificates in {path!r}: {error}") from error
            return context
    return None
