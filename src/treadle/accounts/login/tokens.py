"""The last steps of every ChatGPT login: exchange a code for tokens, check and store them."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from treadle.accounts.document import AuthDocument, ManagedTokens
from treadle.accounts.revocation import revoke
from treadle.accounts.services import ServiceError, Services, error_message
from treadle.accounts.tokens import InvalidToken, read_claims

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.support.concurrency.workers import Workers

logger = logging.getLogger(__name__)


class LoginError(Exception):
    """A login failed; the message is for the user, and no secret is in it."""


class Code(Struct, frozen=True):
    """A code that the issuer exchanges once."""

    code: str
    verifier: str
    redirect_uri: str

    def __repr__(self) -> str:
        return "Code(...)"


class TokenIntake:
    """Takes in the tokens of one login."""

    def __init__(self, credentials: CredentialStore, workers: Workers) -> None:
        self._credentials = credentials
        self._workers = workers

    async def exchange(self, code: Code) -> ManagedTokens:
        """Return the tokens for a code.

        Raises:
            LoginError: the issuer refuses, or does not answer as expected.
        """
        endpoints = self._credentials.endpoints
        form = {
            "grant_type": "authorization_code",
            "code": code.code,
            "redirect_uri": code.redirect_uri,
            "client_id": endpoints.client_id,
            "code_verifier": code.verifier,
        }
        services = Services(self._credentials.environ)
        secrets = (code.code, code.verifier)
        try:
            answer = await services.post_form(
                f"{endpoints.issuer}/oauth/token", form, secrets=secrets
            )
            if not answer.is_success:
                status = f"{answer.status} {answer.reason}".strip()
                message = error_message(answer)
                raise LoginError(f"token endpoint returned status {status}: {message}")
            tokens = msgspec.convert(answer.document(), ManagedTokens)
            claims = read_claims(tokens.id_token)
        except ServiceError as error:
            raise LoginError(str(error)) from None
        except msgspec.ValidationError:
            raise LoginError("the answer of the token endpoint lacks tokens") from None
        except InvalidToken as error:
            raise LoginError(str(error)) from None
        return msgspec.structs.replace(tokens, account_id=claims.account_id)

    def check(self, tokens: ManagedTokens) -> None:
        """Refuse tokens of a workspace that the configuration does not allow.

        Raises:
            LoginError: with upstream's texts, which clients show.
        """
        settings = self._credentials.settings
        account = tokens.claims.account_id
        if settings.allows_workspace(account):
            return
        if account is None:
            raise LoginError(
                "Login is restricted to a specific workspace, but the token did not include an"
                " chatgpt_account_id claim."
            )
        names = ", ".join(settings.workspaces or ())
        raise LoginError(f"Login is restricted to workspace id(s) {names}.")

    async def store(self, tokens: ManagedTokens) -> None:
        """Store the tokens, and revoke those of the login that they replace.

        Raises:
            LoginError: they cannot be stored.
        """
        now = datetime.fromtimestamp(time.time(), UTC)
        previous = await self._workers.run(self._credentials.document)
        document = AuthDocument(tokens=tokens, last_refresh=now)
        try:
            await self._workers.run(self._credentials.save, document)
        except OSError as error:
            logger.warning("login not saved", extra={"reason": error.strerror})
            raise LoginError(
                f"Sign-in completed but credentials could not be saved locally: {error.strerror}"
            ) from error
        if previous is not None and _differs(previous.tokens, tokens):
            await revoke(self._credentials, previous)


def _differs(previous: ManagedTokens | None, tokens: ManagedTokens) -> bool:
    if previous is None:
        return False
    if previous.refresh_token:
        return previous.refresh_token != tokens.refresh_token
    return previous.access_token != tokens.access_token
