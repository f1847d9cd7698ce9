"""Sign-in with an API key, or with ChatGPT in a browser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.client.errors import Disconnected, LoginFailed, RequestTimeout
from treadle.protocol.account import (
    AccountLoginCompletedNotification,
    ApiKeyLoginAccountParams,
    CancelLoginAccountParams,
    ChatgptDeviceCodeLoginAccountParams,
    ChatgptDeviceCodeLoginAccountResponse,
    ChatgptLoginAccountParams,
    ChatgptLoginAccountResponse,
    LoginAccountParams,
)
from treadle.protocol.client_requests import ACCOUNT_LOGIN_CANCEL, ACCOUNT_LOGIN_START

if TYPE_CHECKING:
    from treadle.client._runtime.notifications import EventStream
    from treadle.client._runtime.runtime import ClientRuntime


class AsyncLogin:
    """A sign-in in a browser: show `url` to the user, and `code` if there is one."""

    def __init__(
        self,
        core: ClientRuntime,
        response: ChatgptLoginAccountResponse | ChatgptDeviceCodeLoginAccountResponse,
        events: EventStream,
    ) -> None:
        self._core = core
        self._response = response
        self._events = events

    @property
    def id(self) -> str:
        """The server's id of the sign-in."""
        return self._response.login_id

    @property
    def url(self) -> str:
        """The URL to open in a browser."""
        response = self._response
        if isinstance(response, ChatgptLoginAccountResponse):
            return response.auth_url
        return response.verification_url

    @property
    def code(self) -> str | None:
        """The code to enter on that page; `None` if no code is needed."""
        return getattr(self._response, "user_code", None)

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until the user has signed in.

        Raises:
            LoginFailed: the sign-in was refused or cancelled.
            RequestTimeout: the user did not sign in in time; the sign-in stays open.
            Disconnected: the connection is lost.
        """
        try:
            async with asyncio.timeout(timeout):
                completed = await self._completed()
        except TimeoutError:
            raise RequestTimeout(ACCOUNT_LOGIN_START.method, timeout or 0) from None
        await self._events.aclose()
        if not completed.success:
            raise LoginFailed(completed.error)

    async def cancel(self) -> None:
        """Cancel the sign-in; `wait` raises `LoginFailed`."""
        await self._core.request(ACCOUNT_LOGIN_CANCEL, CancelLoginAccountParams(self.id))

    async def _completed(self) -> AccountLoginCompletedNotification:
        # A server with one sign-in at a time may omit the id.
        accepted_ids = (None, self.id)
        async for event in self._events:
            if (
                isinstance(event, AccountLoginCompletedNotification)
                and event.login_id in accepted_ids
            ):
                return event
        raise Disconnected("the client is closed")


class AsyncAccounts:
    """Account methods of the client."""

    _core: ClientRuntime

    async def login_api_key(self, api_key: str) -> None:
        """Sign in with an API key, which the server stores."""
        params = ApiKeyLoginAccountParams(api_key=api_key)
        await self._core.request(ACCOUNT_LOGIN_START, params)

    async def login_chatgpt(self, *, device_code: bool = False) -> AsyncLogin:
        """Start a ChatGPT sign-in; use `device_code` if the browser is on another machine."""
        params: LoginAccountParams = ChatgptLoginAccountParams()
        if device_code:
            params = ChatgptDeviceCodeLoginAccountParams()
        # Opened before the request: the completion may arrive before the answer is processed.
        events = self._core.notifications.stream()
        try:
            response = await self._core.request(ACCOUNT_LOGIN_START, params)
        except BaseException:
            await events.aclose()
            raise
        if not isinstance(
            response, ChatgptLoginAccountResponse | ChatgptDeviceCodeLoginAccountResponse
        ):
            await events.aclose()
            raise LoginFailed(f"unexpected answer of the server: {response!r}")
        return AsyncLogin(self._core, response, events)
