"""Login by a code that the user types on a page of the issuer, on any device."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.accounts.login.tokens import Code, LoginError, TokenIntake
from treadle.accounts.services import ServiceError, Services
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore

WAIT_SECONDS: Final = 15 * 60.0
"""How long the user may take; upstream's value."""

MIN_INTERVAL: Final = 1.0
MAX_INTERVAL: Final = 60.0
"""Limits on the pause between two requests, which the issuer proposes."""

MAX_CODE: Final = 64
"""Maximum number of characters of a code that the user types."""

NOT_ENABLED: Final = (
    "device code login is not enabled for this Codex server. Use the browser login or verify the"
    " server URL."
)
_DEFAULT_INTERVAL: Final = 5.0


class NotEnabled(LoginError):
    """The issuer offers no login by a code."""


class DeviceCode(Struct, frozen=True):
    """What the user has to type, and where."""

    verification_url: str
    user_code: str
    device_auth_id: str
    interval: float


class DeviceLogin:
    """One login by a code."""

    def __init__(self, credentials: CredentialStore, intake: TokenIntake) -> None:
        self._credentials = credentials
        self._intake = intake
        self._base = credentials.endpoints.issuer
        self._services = Services(credentials.environ)

    async def request_code(self) -> DeviceCode:
        """Request a code from the issuer.

        Raises:
            LoginError: there is none.
        """
        client_id = self._credentials.endpoints.client_id
        url = f"{self._base}/api/accounts/deviceauth/usercode"
        try:
            answer = await self._services.post_json(url, {"client_id": client_id})
            if answer.status == 404:
                raise NotEnabled(NOT_ENABLED)
            if not answer.is_success:
                status = f"{answer.status} {answer.reason}".strip()
                raise LoginError(f"device code request failed with status {status}")
            document = answer.document()
        except ServiceError as error:
            raise LoginError(str(error)) from None
        code = document.get("user_code") or document.get("usercode")
        device = document.get("device_auth_id")
        is_code = isinstance(code, str) and len(code) <= MAX_CODE and code.isprintable()
        if not (is_code and code and isinstance(device, str) and device):
            raise LoginError("the answer of the issuer has no usable code")
        interval = _interval(document.get("interval"))
        return DeviceCode(f"{self._base}/codex/device", code, device, interval)

    async def completed(self, code: DeviceCode) -> None:
        """Wait until the user has typed the code, and store the tokens.

        Raises:
            LoginError: the login failed.
        """
        granted = await self._poll(code)
        verifier, authorization = granted.get("code_verifier"), granted.get("authorization_code")
        if not (isinstance(verifier, str) and isinstance(authorization, str)):
            raise LoginError("the answer of the issuer has no authorization code")
        redirect_uri = f"{self._base}/deviceauth/callback"
        try:
            tokens = await self._intake.exchange(Code(authorization, verifier, redirect_uri))
        except LoginError as error:
            raise LoginError(f"device code exchange failed: {error}") from None
        self._intake.check(tokens)
        await self._intake.store(tokens)

    async def _poll(self, code: DeviceCode) -> dict[str, JsonValue]:
        url = f"{self._base}/api/accounts/deviceauth/token"
        body = {"device_auth_id": code.device_auth_id, "user_code": code.user_code}
        secrets = (code.device_auth_id, code.user_code)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                answer = await self._services.post_json(url, body, secrets=secrets)
                if answer.is_success:
                    return answer.document()
            except ServiceError as error:
                raise LoginError(str(error)) from None
            # As upstream: these mean that the user has not typed the code yet.
            if answer.status not in (403, 404):
                status = f"{answer.status} {answer.reason}".strip()
                raise LoginError(f"device auth failed with status {status}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise LoginError("device auth timed out after 15 minutes")
            await asyncio.sleep(min(max(code.interval, MIN_INTERVAL), left))


def _interval(value: JsonValue) -> float:
    try:
        seconds = float(value) if isinstance(value, int | float | str) else _DEFAULT_INTERVAL
    except (ValueError, OverflowError):
        seconds = _DEFAULT_INTERVAL
    # Also for a number that is not one.
    return seconds if 0 <= seconds <= MAX_INTERVAL else _DEFAULT_INTERVAL
