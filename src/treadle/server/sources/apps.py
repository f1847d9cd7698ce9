"""Provides the engine with the apps of the ChatGPT account that is logged in."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from treadle.accounts.settings import is_confidential
from treadle.config.configuration import Configuration
from treadle.engine.mcp.config import HostedApps
from treadle.model.provider import Bearer, CredentialsRejected

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore
    from treadle.config.effective import EffectiveConfig

FEATURE: Final = "apps"
PATH: Final = "/ps/mcp"
"""The path of the MCP server with the tools of connected apps, below the backend's address."""

TOKEN: Final = "CODEX_CONNECTORS_TOKEN"  # noqa: S105 - the name of a variable
"""The variable with a token that is used in place of the account's own."""

STARTUP_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class AccountApps:
    """The apps of the account in force; none unless it is one of ChatGPT."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def account(self, switches: Callable[[], Mapping[str, bool]]) -> str | None:
        """Return what identifies the account if there are apps; it says nothing to others."""
        login = self._credentials.current()
        if login is None or not login.is_chatgpt or not switches().get(FEATURE, True):
            return None
        known = (self._credentials.endpoints.backend, login.account_id, login.claims.user_id)
        return hashlib.sha256(repr((*known, login.claims.email)).encode()).hexdigest()

    def hosted(self, effective: EffectiveConfig, account: str | None) -> HostedApps | None:
        """Return the server of the account's apps, if there is one that may receive the login."""
        from treadle.engine.apps.policy import AppsPolicy

        url = f"{self._credentials.endpoints.backend}{PATH}"
        if account is None:
            return None
        if not is_confidential(url):
            logger.warning("no tools of apps: chatgpt_base_url is neither https nor on loopback")
            return None
        required = effective.requirements
        product = effective.apps_mcp_product_sku or "codex"
        table = {
            "url": url,
            "http_headers": {"x-openai-product-sku": product},
            "startup_timeout_sec": STARTUP_SECONDS,
        }
        if self._configuration.environ.get(TOKEN, "").strip():
            table["bearer_token_env_var"] = TOKEN
        return HostedApps(
            table=table,
            account=account,
            login=partial(self._login, account),
            policy=AppsPolicy(
                effective.apps,
                reviewers=required.allowed_approvals_reviewers if required is not None else None,
            ),
            has_instructions=effective.include_apps_instructions,
        )

    async def _login(self, account: str, rejected: Bearer | None) -> Bearer | None:
        """Return the login if it still is that of the account; renew it if it was rejected."""
        if self.account(dict) != account:
            return None
        try:
            bearer = await self._credentials.login(rejected)
        except CredentialsRejected as error:
            logger.warning("login of apps not renewed", extra={"reason": str(error)})
            return None
        # The renewal may have taken a while.
        return bearer if self.account(dict) == account else None

    @property
    def _credentials(self) -> CredentialStore:
        return self._configuration.credentials
