"""Requests to ChatGPT's backend about the account that is logged in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from treadle.accounts.services import MAX_ERROR_CHARS, ServiceAnswer, ServiceError, Services
from treadle.protocol.base import JsonValue
from treadle.support.text.secrets import Secrets

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.model.provider import Bearer

T = TypeVar("T")

_UNAUTHORIZED: Final = 401


class BackendError(Exception):
    """The backend refuses, does not answer, or answers something else than expected."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class AccountService:
    """Reads and changes what the backend knows of the account."""

    def __init__(
        self,
        credentials: CredentialStore,
        *,
        seconds: float | None = None,
        renews: bool = True,
    ) -> None:
        self._credentials = credentials
        # Whether a login that is rejected is renewed.
        self._renews = renews
        self._services = Services(credentials.environ)
        self._seconds = seconds

    async def get(self, path: str, type_: type[T]) -> T:
        """Return a document of the backend.

        Raises:
            BackendError: there is none.
            CredentialsRejected: the login was rejected and cannot be renewed.
        """
        url = self._credentials.endpoints.backend_url(path)
        return await self._request("GET", url, None, type_)

    async def post(
        self, path: str, body: JsonValue, type_: type[T], *, chatgpt_path: str | None = None
    ) -> T:
        """Send a document and return the answer.

        Raises:
            BackendError: there is none.
            CredentialsRejected: the login was rejected and cannot be renewed.
        """
        url = self._credentials.endpoints.backend_url(path, chatgpt_path=chatgpt_path)
        return await self._request("POST", url, body, type_)

    async def _request(self, method: str, url: str, body: JsonValue, type_: type[T]) -> T:
        login = await self._login()
        answer = await self._send(method, url, body, login)
        if answer.status == _UNAUTHORIZED and login is not None and self._renews:
            renewed = await self._credentials.login(login)
            if renewed is not None and renewed.token != login.token:
                login = renewed
                answer = await self._send(method, url, body, login)
        shown = _without_query(url)
        about = f"content-type={answer.content_type[:100]}; body={_quoted(answer)}"
        if not answer.is_success:
            status = f"{answer.status} {answer.reason}".strip()
            raise BackendError(f"{method} {shown} failed: {status}; {about}", answer.status)
        try:
            return msgspec.convert(answer.document(), type_)
        except ServiceError as error:
            raise BackendError(f"Decode error for {shown}: {error}") from None
        except msgspec.ValidationError as error:
            # It quotes a value of the answer, which may be the login.
            hidden = Secrets([] if login is None else [login.token])
            reason = hidden.redact(str(error))[:MAX_ERROR_CHARS]
            raise BackendError(f"Decode error for {shown}: {reason}") from None

    async def _login(self) -> Bearer | None:
        if self._renews:
            return await self._credentials.login()
        login = self._credentials.current()
        return None if login is None else login.bearer

    async def _send(
        self, method: str, url: str, body: JsonValue, login: Bearer | None
    ) -> ServiceAnswer:
        headers: dict[str, str] = {}
        if login is not None:
            headers["authorization"] = f"Bearer {login.token}"
            if login.account_id:
                headers["chatgpt-account-id"] = login.account_id
            if login.is_fedramp:
                headers["x-openai-fedramp"] = "true"
        if body is not None:
            headers["content-type"] = "application/json"
        data = None if body is None else msgspec.json.encode(body)
        secrets = () if login is None else (login.token,)
        try:
            return await self._services.send(
                method, url, headers, data, secrets=secrets, seconds=self._seconds
            )
        except ServiceError as error:
            raise BackendError(str(error)) from None


def _quoted(answer: ServiceAnswer) -> str:
    return answer.body.decode("utf-8", "replace")[:MAX_ERROR_CHARS]


def _without_query(url: str) -> str:
    return urlsplit(url)._replace(query="").geturl()
