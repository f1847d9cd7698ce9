"""The ChatGPT login that waits for its user: at most one, as all share its port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from treadle.protocol.account import (
    AccountLoginCompletedNotification,
    ChatgptDeviceCodeLoginAccountResponse,
    ChatgptLoginAccountResponse,
)
from treadle.support.concurrency.imports import import_late

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.support.concurrency.tasks import BackgroundTasks
    from treadle.support.concurrency.workers import Workers

LOGIN_SECONDS: Final = 600.0
"""How long a login in a browser may take; upstream's value."""

_NOT_COMPLETED: Final = "Login was not completed"

logger = logging.getLogger(__name__)


class _Active:
    """A login that has not ended."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_cancelled = False


class AccountLogins:
    """Starts, cancels and ends logins; `on_end` learns how each one ended."""

    def __init__(
        self,
        credentials: CredentialStore,
        tasks: BackgroundTasks,
        workers: Workers,
        on_end: Callable[[AccountLoginCompletedNotification], None],
    ) -> None:
        self._credentials = credentials
        self._tasks = tasks
        self._workers = workers
        self._on_end = on_end
        self._active: _Active | None = None
        # Two logins at a time would compete for the port.
        self._starting = asyncio.Lock()

    async def start_in_browser(self, originator: str) -> ChatgptLoginAccountResponse:
        """Listen for the browser; the login replaces one that waits.

        Raises:
            OSError: no port is free.
        """
        await import_late("treadle.accounts.login.browser")
        from treadle.accounts.login.browser import browser_login
        from treadle.accounts.login.tokens import TokenIntake

        intake = TokenIntake(self._credentials, self._workers)
        async with self._starting, AsyncExitStack() as stack:
            await self._end_active()
            login = await stack.enter_async_context(browser_login(self._credentials, intake))
            auth_url = login.auth_url(originator)
            active = self._begin(stack.pop_all(), login.completed(), "Login server error: ")
        return ChatgptLoginAccountResponse(auth_url=auth_url, login_id=active.id)

    async def start_with_code(self) -> ChatgptDeviceCodeLoginAccountResponse:
        """Request a code from the issuer; the login replaces one that waits.

        Raises:
            LoginError: there is none.
        """
        await import_late("treadle.accounts.login.device_code")
        from treadle.accounts.login.device_code import DeviceLogin
        from treadle.accounts.login.tokens import TokenIntake

        login = DeviceLogin(self._credentials, TokenIntake(self._credentials, self._workers))
        async with self._starting:
            code = await login.request_code()
            await self._end_active()
            active = self._begin(AsyncExitStack(), login.completed(code), "")
        return ChatgptDeviceCodeLoginAccountResponse(
            login_id=active.id,
            user_code=code.user_code,
            verification_url=code.verification_url,
        )

    def take(self, login_id: str) -> Callable[[], None] | None:
        """Return what cancels a login, `None` if it does not wait."""
        active = self._active
        if active is None or active.id != login_id:
            return None
        self._active = None
        return lambda: self._cancel(active)

    def cancel(self) -> None:
        """Cancel the login that waits, if there is one: another way to log in takes its place."""
        active, self._active = self._active, None
        if active is not None:
            self._cancel(active)

    def _begin(
        self, stack: AsyncExitStack, completed: Coroutine[None, None, None], prefix: str
    ) -> _Active:
        active = self._active = _Active(str(uuid4()))
        work = self._run(active, stack, completed, prefix)
        active.task = self._tasks.spawn(work, "account login")
        return active

    async def _end_active(self) -> None:
        """Cancel the login that waits, and wait until its port is free."""
        active = self._active
        self.cancel()
        if active is not None and active.task is not None:
            await asyncio.wait([active.task])

    @staticmethod
    def _cancel(active: _Active) -> None:
        active.is_cancelled = True
        # A task that is cancelled before it begins would never close its port.
        if active.task is not None and active.has_begun:
            active.task.cancel()

    async def _run(
        self,
        active: _Active,
        stack: AsyncExitStack,
        completed: Coroutine[None, None, None],
        prefix: str,
    ) -> None:
        from treadle.accounts.login.tokens import LoginError

        fault: str | None = None
        active.has_begun = True
        try:
            async with stack:
                try:
                    if active.is_cancelled:
                        raise LoginError(_NOT_COMPLETED)
                    async with asyncio.timeout(LOGIN_SECONDS if prefix else None):
                        await completed
                finally:
                    completed.close()
        except TimeoutError:
            fault = "Login timed out"
        except LoginError as error:
            fault = f"{prefix}{error}"
        except asyncio.CancelledError:
            if not active.is_cancelled:
                raise  # the server ends
            fault = f"{prefix}{_NOT_COMPLETED}"
        except Exception:
            # The owner of this task logs it; clients must not wait for ever.
            self._report(active, "Login failed")
            raise
        self._report(active, fault)

    def _report(self, active: _Active, fault: str | None) -> None:
        if self._active is active:
            self._active = None
        logger.info("login ended", extra={"login": active.id, "success": fault is None})
        self._on_end(
            AccountLoginCompletedNotification(
                success=fault is None, error=fault, login_id=active.id
            )
        )
