"""Requests to the issuer of logins and to ChatGPT's backend: small documents with limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from ssl import SSLError
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from treadle.accounts.settings import is_confidential
from treadle.model.base import ModelError
from treadle.model.http.tls import tls_context
from treadle.protocol.base import JsonValue
from treadle.support.http.client import HttpClient
from treadle.support.http.connection import ClientResponse
from treadle.support.http.errors import HttpError
from treadle.support.http.proxies import secrets_of_proxies
from treadle.support.text.json_text import is_nested_deeper
from treadle.support.text.secrets import Secrets
from treadle.support.text.urls import without_secrets

DOCUMENT_SECONDS: Final = 30.0
"""How long a service may take for an answer, from the connection to the last byte."""

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
MAX_DOCUMENT_VALUES: Final = 10_000
CONNECT_SECONDS: Final = 10.0
MAX_ERROR_CHARS: Final = 400
"""Maximum number of characters of an error that quote what a service answered."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class ServiceError(Exception):
    """A service did not answer, or not with a document; no secret is in the message."""


class ServiceAnswer(Struct, frozen=True):
    """The answer of a service."""

    status: int
    reason: str
    content_type: str
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the service did what it was asked."""
        return 200 <= self.status < 300

    def document(self) -> dict[str, JsonValue]:
        """Return the JSON object of the body.

        Raises:
            ServiceError: it is not one.
        """
        if self.body.count(b",") > MAX_DOCUMENT_VALUES or is_nested_deeper(self.body):
            raise ServiceError(f"the answer has more than {MAX_DOCUMENT_VALUES} values")
        try:
            return msgspec.json.decode(self.body, type=dict[str, JsonValue])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise ServiceError("the answer is not a JSON object") from None


class Services:
    """Sends requests; each has its own connection, as there are few of them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def post_json(
        self,
        url: str,
        body: JsonValue,
        *,
        secrets: Iterable[str] = (),
        seconds: float | None = None,
    ) -> ServiceAnswer:
        """Send a JSON document.

        Raises:
            ServiceError: there is no answer.
        """
        headers = {"content-type": "application/json"}
        data = msgspec.json.encode(body)
        return await self.send("POST", url, headers, data, secrets=secrets, seconds=seconds)

    async def post_form(
        self, url: str, form: Mapping[str, str], *, secrets: Iterable[str] = ()
    ) -> ServiceAnswer:
        """Send a form.

        Raises:
            ServiceError: there is no answer.
        """
        headers = {"content-type": "application/x-www-form-urlencoded"}
        return await self.send("POST", url, headers, urlencode(form).encode(), secrets=secrets)

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        secrets: Iterable[str] = (),
        seconds: float | None = None,
    ) -> ServiceAnswer:
        """Send a request and read the whole answer; redirects are not followed.

        Raises:
            ServiceError: there is no answer.
        """
        # A proxy on the way may quote its login.
        hidden = Secrets([*secrets, *secrets_of_proxies()])
        patience = DOCUMENT_SECONDS if seconds is None else seconds
        shown = without_secrets(url)
        if not is_confidential(url):
            raise ServiceError(f"{shown} is not confidential: expected https, or this machine")
        try:
            async with asyncio.timeout(patience):
                answer = await self._exchange(method, url, headers, body)
        except TimeoutError:
            raise ServiceError(f"{shown} did not answer within {patience:g} s") from None
        except (HttpError, OSError, SSLError, ModelError) as error:
            # Without the cause, which a traceback would print.
            raise ServiceError(f"{shown}: {hidden.redact(str(error))[:MAX_ERROR_CHARS]}") from None
        # What is shown to users may quote the request.
        answer = msgspec.structs.replace(
            answer,
            reason=hidden.redact(answer.reason)[:MAX_ERROR_CHARS],
            content_type=hidden.redact(answer.content_type)[:MAX_ERROR_CHARS],
        )
        if answer.is_success:
            return answer
        text = hidden.redact(answer.body.decode("utf-8", "replace"))
        return msgspec.structs.replace(answer, body=text.encode())

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> ServiceAnswer:
        parts = urlsplit(url)
        client = HttpClient(
            connect_seconds=CONNECT_SECONDS,
            # What is not encrypted stays within this machine.
            uses_proxies=parts.scheme == "https" and parts.hostname not in _LOOPBACK,
            context=await tls_context(self._environ) if parts.scheme == "https" else None,
        )
        sent = {"user-agent": "treadle", "accept-encoding": "identity", **headers}
        try:
            response = await client.request(method, url, headers=sent, body=body)
            async with response:
                return ServiceAnswer(
                    status=response.status,
                    reason=response.reason,
                    content_type=response.headers.get("content-type", ""),
                    body=await _body(response),
                )
        finally:
            client.close()


async def _body(response: ClientResponse) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise HttpError(f"the answer is compressed ({encoding[:20]}), which was not requested")
    body = bytearray()
    while chunk := await response.read():
        body += chunk
        if len(body) > MAX_DOCUMENT_BYTES:
            raise HttpError(f"the answer has more than {MAX_DOCUMENT_BYTES} bytes")
    return bytes(body)


def error_message(answer: ServiceAnswer) -> str:
    """Return what a refusal says, as its user may read it."""
    text = answer.body.decode("utf-8", "replace").strip()
    try:
        fault = answer.document()
    except ServiceError:
        return text[:MAX_ERROR_CHARS] or "unknown error"
    error = fault.get("error")
    inner = error if isinstance(error, dict) else {}
    for candidate in (
        fault.get("error_description"),
        inner.get("message"),
        error,
        inner.get("code"),
    ):
        if isinstance(candidate, str) and candidate.strip():
            return candidate.strip()[:MAX_ERROR_CHARS]
    return text[:MAX_ERROR_CHARS]


def error_code(answer: ServiceAnswer) -> str | None:
    """Return the code of a refusal, in lower case."""
    try:
        fault = answer.document()
    except ServiceError:
        return None
    error = fault.get("error")
    code = error.get("code") if isinstance(error, dict) else error
    code = code if isinstance(code, str) else fault.get("code")
    return code.lower() if isinstance(code, str) else None
