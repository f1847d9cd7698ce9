"""HTTP to a provider: addresses, keys, timeouts and streams; independent of their content.

The HTTP client is imported at the first request, since a server answers clients long before that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from treadle.model.base import Completed, ModelError, ModelEvent
from treadle.model.errors import (
    MAX_MESSAGE_CHARS,
    Now,
    compressed,
    connection_failed,
    from_status,
    mark_progress,
    missing_key,
    no_answer,
    refused_redirect,
    shorten,
)
from treadle.model.http.body import ResponseBody
from treadle.model.http.pacing import STEPS_PER_SLICE, Pause, StreamReading, read_payloads
from treadle.model.http.response_limits import TextMeter
from treadle.model.http.sse import decode_json, encode_json, is_excessive
from treadle.model.http.tls import tls_context
from treadle.model.provider import (
    OPENAI_API,
    Bearer,
    CredentialSource,
    CredentialsRejected,
    ProviderConfig,
    no_credentials,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo
from treadle.support.concurrency.imports import import_late
from treadle.support.files.descriptors import is_shortage
from treadle.support.text.secrets import (
    Secrets,
    secrets_of_headers,
    secrets_of_parameters,
    secrets_of_url,
)
from treadle.support.text.urls import REDIRECTS, is_same_origin, redirect_target, without_secrets

if TYPE_CHECKING:
    from treadle.support.http.client import HttpClient
    from treadle.support.http.connection import ClientResponse

MAX_ERROR_BYTES: Final = 64 * 1024
# The status is known by then; a body that takes longer is not worth the wait.
ERROR_SECONDS: Final = 10.0
MAX_REDIRECTS: Final = 5
# These keep the method and the body; others turn a POST into a GET.
_KEEPS_METHOD: Final = frozenset({307, 308})
# The longest list of models that a public provider has is below 1 MiB.
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class ProviderEndpoint:
    """One provider: its address, its credentials and its timeouts."""

    def __init__(
        self,
        provider_id: str,
        config: ProviderConfig,
        *,
        environ: Mapping[str, str],
        credentials: CredentialSource = no_credentials,
        now: Now = time.time,
    ) -> None:
        self.provider_id = provider_id
        self.config = config
        self.now = now
        self._environ = environ
        self._credentials = credentials
        self._client: HttpClient | None = None
        self._lingering: set[ResponseBody] = set()
        # Secrets of the last requests, which no error may repeat.
        self._secrets = Secrets(secrets_of_url(config.base_url or ""))
        self._proxy_secrets: Sequence[str] | None = None

    async def events(
        self, path: str, body: JsonValue, headers: Mapping[str, str], reading: StreamReading
    ) -> AsyncGenerator[ModelEvent, None]:
        """Post a request and read the response stream; closing the generator disconnects.

        Raises:
            ModelError: at any point.
        """
        with self._redacted_errors():
            answer = await self._post(path, encode_json(body), headers)
            emitted = is_whole = False
            try:
                # Some are published: the name of the model, rate limits.
                headers = {
                    name: self._secrets.redact(value) for name, value in answer.headers.items()
                }
                for event in reading.begin(headers):
                    yield event
                steps = 0
                meter = TextMeter()
                while payloads := await answer.next_payloads():
                    for read in read_payloads(reading, payloads):
                        steps += 1
                        if isinstance(read, Pause) or not steps % STEPS_PER_SLICE:
                            await asyncio.sleep(0)
                        if read is None or isinstance(read, Pause):
                            continue
                        meter.count(read)
                        answer.note(read)
                        emitted = True
                        is_whole = isinstance(read, Completed)
                        yield read
                        if is_whole:
                            return
                for event in reading.finish():
                    yield event
            except ModelError as error:
                mark_progress(error, answer.status, emitted=emitted)
                raise
            finally:
                if is_whole:
                    self._keep_connection(answer)
                else:
                    answer.close()

    async def get_json(self, path: str, headers: Mapping[str, str] | None = None) -> JsonValue:
        """Fetch a small document.

        Raises:
            ModelError: the provider does not have it or does not respond, or the document is too
            large, has too many parts, or is not JSON.
        """
        with self._redacted_errors():
            response = await self._request("GET", path, None, headers or {})
            url = without_secrets(self._url(path))
            async with response:
                document = await self._document(response, url)
            if is_excessive(document):
                raise ModelError(f"the response from {url} has too deep nesting or too many parts")
            try:
                return decode_json(document)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ModelError(f"the response from {url} is not JSON: {error}") from error

    async def _document(self, response: ClientResponse, url: str) -> bytes:
        from treadle.support.http.errors import HttpError

        document = bytearray()
        patience = self.config.stream_idle_timeout_ms / 1000
        try:
            async with asyncio.timeout(patience):
                while chunk := await response.read():
                    document += chunk
                    if len(document) > MAX_DOCUMENT_BYTES:
                        raise ModelError(
                            f"the response from {url} has more than {MAX_DOCUMENT_BYTES} bytes"
                        )
        except TimeoutError as error:
            raise no_answer(url, patience) from error
        except (HttpError, OSError) as error:
            raise connection_failed(error, url) from error
        return bytes(document)

    async def close(self) -> None:
        """Close all connections."""
        for answer in self._lingering:
            answer.close()
        self._lingering.clear()
        if self._client is not None:
            self._client.close()
            self._client = None
            await asyncio.sleep(0)  # the event loop closes the sockets in its next step

    def _keep_connection(self, answer: ResponseBody) -> None:
        """Keep the connection once the end of the body has arrived: the response is complete."""
        answer.linger()
        self._lingering = {known for known in (*self._lingering, answer) if not known.is_closed}

    async def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> ResponseBody:
        sent = {"accept": "text/event-stream", "content-type": "application/json", **headers}
        response = await self._request("POST", path, body, sent)
        return ResponseBody(response, self.config)

    def _url(self, path: str, login: Bearer | None = None) -> str:
        base = (self.config.base_url or "").rstrip("/")
        if login is not None and login.base_url is not None and base == OPENAI_API:
            base = login.base_url
        return f"{base}/{path}"

    async def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> ClientResponse:
        login = await self._login()
        response = await self._attempt(method, path, body, headers, login)
        url = self._url(path, login)
        if response.status == 401 and login is not None:
            try:
                renewed = await self._renewed_login(login)
            except BaseException:
                response.close()
                raise
            if renewed is not None and renewed.token != login.token:
                response.close()
                response = await self._attempt(method, path, body, headers, renewed)
        if response.status >= 300 or _encoding_of(response):
            async with response:
                raise await self._refusal(response, url)
        return response

    async def _login(self) -> Bearer | None:
        return await self._credentials() if self.config.requires_openai_auth else None

    async def _renewed_login(self, rejected: Bearer) -> Bearer | None:
        """Return the login that takes the place of a rejected one."""
        try:
            return await self._credentials(rejected)
        except CredentialsRejected as error:
            info: CodexErrorInfo = "unauthorized" if error.is_final else "other"
            raise ModelError(str(error), info=info, is_retryable=error.is_retryable) from None

    async def _attempt(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        login: Bearer | None,
    ) -> ClientResponse:
        """Send a request with a login, and follow redirects within the origin."""
        client = self._client or await self._open_client()
        url = self._url(path, login)
        all_headers = self._headers(headers, login)
        query = urlencode(self.config.query_params)
        target = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
        response = await self._send(client, method, target, body, all_headers)
        for _ in range(MAX_REDIRECTS):
            if response.status not in REDIRECTS:
                break
            async with response:
                target = _follow(response, method, target, self._secrets)
            response = await self._send(client, method, target, body, all_headers)
        return response

    async def _send(
        self,
        client: HttpClient,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> ClientResponse:
        from ssl import SSLError

        from treadle.support.http.errors import HttpError, UnsendableRequest

        patience = self.config.first_byte_timeout_ms / 1000
        url = without_secrets(target)
        try:
            async with asyncio.timeout(patience):
                return await client.request(method, target, headers=headers, body=body)
        except (SSLError, UnsendableRequest) as error:
            raise connection_failed(error, url, is_retryable=False) from error
        except TimeoutError as error:
            raise no_answer(url, patience) from error
        except (HttpError, OSError) as error:
            raise connection_failed(error, url) from error

    async def _refusal(self, response: ClientResponse, url: str) -> ModelError:
        encoding = _encoding_of(response)
        if encoding and response.status < 300:
            return compressed(without_secrets(url), encoding)
        body, is_whole = (b"", True) if encoding else await self._error_body(response)
        # Redacted before it is shortened: a cut could leave a part of a secret.
        text = self._secrets.redact(
            body.decode("utf-8", "replace"), limit=MAX_ERROR_BYTES, is_cut=not is_whole
        )
        shown = without_secrets(url)
        reason, headers = response.reason, response.headers
        return from_status(response.status, reason, text.encode(), headers, url=shown, now=self.now)

    async def _error_body(self, response: ClientResponse) -> tuple[bytes, bool]:
        """Read the body of an error; return it and whether all of it has arrived in time."""
        from treadle.support.http.errors import HttpError

        body = bytearray()
        patience = min(self.config.stream_idle_timeout_ms / 1000, ERROR_SECONDS)
        try:
            async with asyncio.timeout(patience):
                while chunk := await response.read():
                    body += chunk
                    if len(body) > MAX_ERROR_BYTES:
                        return bytes(body[:MAX_ERROR_BYTES]), False
        except (HttpError, OSError):
            return bytes(body), False
        return bytes(body), True

    @contextmanager
    def _redacted_errors(self) -> Iterator[None]:
        """Remove our secrets from every error: a provider or a library may quote the request.

        The cause is dropped, because a traceback would print it.
        """
        try:
            yield
        except ModelError as error:
            error.message = shorten(self._secrets.redact(error.message), MAX_MESSAGE_CHARS)
            error.args = (error.message,)
            error.details = error.details and self._secrets.redact(error.details)
            error.__cause__ = error.__context__ = None
            raise

    async def headers(self) -> dict[str, str]:
        """Return the headers with which the provider accepts a connection.

        Raises:
            ModelError: there is no key.
        """
        return self._headers({}, await self._login())

    def _headers(self, headers: Mapping[str, str], login: Bearer | None) -> dict[str, str]:
        config = self.config
        # A compressed stream would be delayed in the compressor.
        all_headers = {"user-agent": "treadle", "accept-encoding": "identity", **headers}
        authorization = self._authorization(login)
        given = dict(config.http_headers)
        for name, variable in config.env_http_headers.items():
            if self._environ.get(variable):
                given[name] = self._environ[variable]
        self._secrets.add(secrets_of_headers({**given, **authorization}))
        self._secrets.add(secrets_of_parameters(config.query_params.items()))
        self._secrets.add(self._secrets_of_proxies())
        return all_headers | authorization | {name.lower(): given[name] for name in given}

    def _secrets_of_proxies(self) -> Sequence[str]:
        if self._proxy_secrets is None:
            from treadle.support.http.proxies import secrets_of_proxies

            self._proxy_secrets = tuple(secrets_of_proxies())
        return self._proxy_secrets

    def _authorization(self, login: Bearer | None) -> dict[str, str]:
        config = self.config
        if login is not None:
            account = {"chatgpt-account-id": login.account_id} if login.account_id else {}
            region = {"x-openai-fedramp": "true"} if login.is_fedramp else {}
            return {"authorization": f"Bearer {login.token}", **account, **region}
        key = self._environ.get(config.env_key or "") or config.experimental_bearer_token
        if key:
            is_anthropic = config.wire_api == "anthropic"
            return {"x-api-key": key} if is_anthropic else {"authorization": f"Bearer {key}"}
        if config.env_key:
            raise missing_key(config.env_key, self.provider_id, config.env_key_instructions)
        return {}

    async def _open_client(self) -> HttpClient:
        try:
            await import_late("treadle.support.http.client")
        except (OSError, ImportError) as error:
            # Probably out of descriptors: a retry may succeed.
            is_retryable = is_shortage(error)
            url = without_secrets(self.config.base_url or "")
            raise connection_failed(error, url, is_retryable=is_retryable) from error
        from treadle.support.http.client import HttpClient

        parts = urlsplit(self.config.base_url or "")
        context = await tls_context(self._environ) if parts.scheme == "https" else None
        # Another request may have been faster.
        if self._client is None:
            self._client = HttpClient(
                connect_seconds=self.config.connect_timeout_ms / 1000,
                # Proxies are for remote hosts only, whatever no_proxy says.
                uses_proxies=parts.hostname not in _LOOPBACK,
                context=context,
            )
        return self._client


def _encoding_of(response: ClientResponse) -> str:
    """Return the compression of a response, or nothing; a few kilobytes may become gigabytes."""
    encoding = response.headers.get("content-encoding", "").strip()
    return "" if encoding.lower() == "identity" else encoding


def _follow(response: ClientResponse, method: str, url: str, secrets: Secrets) -> str:
    """Return the target of a redirect, if the request may be repeated there with its keys."""
    location = response.headers.get("location")
    target = redirect_target(url, location)
    keeps_method = method == "GET" or response.status in _KEEPS_METHOD
    if target is None or not keeps_method or not is_same_origin(url, target):
        # Only the origin is shown, which could end within a key.
        is_quoting = bool(location) and secrets.redact(location or "") != location
        shown = None if is_quoting else target
        raise refused_redirect(response.status, without_secrets(url), shown)
    return target
