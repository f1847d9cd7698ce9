"""Signing in: at once with a key, or in a browser, which somebody has to be waited for."""

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
    """A sign-in that waits for somebody at a browser: show `url`, and the code if there is one."""

    def __init__(
        self,
        core: ClientRuntime,
        begun: ChatgptLoginAccountResponse | ChatgptDeviceCodeLoginAccountResponse,
        events: EventStream,
    ) -> None:
        self._core = core
        self._begun = begun
        self._events = events

    @property
    def id(self) -> str:
        """What the server calls the sign-in."""
        return self._begun.login_id

    @property
    def url(self) -> str:
        """The page to open."""
        begun = self._begun
        if isinstance(begun, ChatgptLoginAccountResponse):
            return begun.auth_url
        return begun.verification_url

    @property
    def code(self) -> str | None:
        """What to type there."""
        return getattr(self._begun, "user_code", None)

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until somebody has signed in.

        Raises:
            LoginFailed: it was refused, or given up.
            RequestTimeout: nobody came in time; the sign-in still waits.
            Disconnected: the server is gone.
        """
        try:
            async with asyncio.timeout(timeout):
                ended = await self._ended()
        except TimeoutError:
            raise RequestTimeout(ACCOUNT_LOGIN_START.method, timeout or 0) from None
        await self._events.aclose()
        if not ended.success:
            raise LoginFailed(ended.error)

    async def cancel(self) -> None:
        """Give the sign-in up; whoever waits for it is told."""
        await self._core.request(ACCOUNT_LOGIN_CANCEL, CancelLoginAccountParams(self.id))

    async def _ended(self) -> AccountLoginCompletedNotification:
        # A server may have one sign-in at a time, and not say which.
        known = (None, self.id)
        async for event in self._events:
            if isinstance(event, AccountLoginCompletedNotification) and event.login_id in known:
                return event
        raise Disconnected("the client is closed")


class AsyncAccounts:
    """The part of a client that is about accounts."""

    _core: ClientRuntime

    async def login_api_key(self, api_key: str) -> None:
        """Let the server use an API key, and store it."""
        params = ApiKeyLoginAccountParams(api_key=api_key)
        await self._core.request(ACCOUNT_LOGIN_START, params)

    async def login_chatgpt(self, *, device_code: bool = False) -> AsyncLogin:
        """Begin to sign in with ChatGPT; with a code if the browser is on another machine."""
        params: LoginAccountParams = ChatgptLoginAccountParams()
        if device_code:
            params = ChatgptDeviceCodeLoginAccountParams()
        # Before the request: its end may be told before the caller is back.
        events = self._core.hub.stream()
        try:
            begun = await self._core.request(ACCOUNT_LOGIN_START, params)
        except BaseException:
            await events.aclose()
            raise
        if not isinstance(
            begun, ChatgptLoginAccountResponse | ChatgptDeviceCodeLoginAccountResponse
        ):
            await events.aclose()
            raise LoginFailed(f"the server answered with {begun!r}")
        return AsyncLogin(self._core, begun, events)
