"""Revokes tokens that are no longer needed; the issuer may refuse, or not be reachable."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from treadle.protocol.base import JsonValue
from treadle.support.concurrency.imports import import_late

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.accounts.document import AuthDocument

REVOKE_SECONDS: Final = 10.0
"""How long a logout waits for the issuer; upstream's value."""

logger = logging.getLogger(__name__)


async def revoke(credentials: CredentialStore, document: AuthDocument | None) -> None:
    """Revoke the tokens of a login; a failure is logged, as the login ends here in any case."""
    tokens = None if document is None else document.tokens
    if tokens is None:
        return
    await import_late("treadle.accounts.services")
    from treadle.accounts.services import ServiceError, Services

    endpoints = credentials.endpoints
    body: JsonValue
    if tokens.refresh_token:
        token = tokens.refresh_token
        body = {"token": token, "token_type_hint": "refresh_token"}
        body["client_id"] = endpoints.client_id
    else:
        token = tokens.access_token
        body = {"token": token, "token_type_hint": "access_token"}
    try:
        answer = await Services(credentials.environ).post_json(
            endpoints.revoke_url, body, secrets=[token], seconds=REVOKE_SECONDS
        )
    except ServiceError as error:
        logger.warning("tokens not revoked", extra={"reason": str(error)})
        return
    if not answer.is_success:
        logger.warning("tokens not revoked", extra={"status": answer.status})
