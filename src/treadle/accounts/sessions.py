"""The ChatGPT login of a home as a session with workspaces, and the notices about it.

A home has one login. Clients that know several list it as the only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from treadle.accounts.backend import AccountService, BackendError
from treadle.accounts.renewal import with_tokens
from treadle.accounts.services import DOCUMENT_SECONDS
from treadle.model.provider import CredentialsRejected
from treadle.protocol.account_session import (
    AccountSecuritySetupAction,
    AccountSecuritySetupNotice,
    AccountSession,
    AccountSessionsResponse,
    AccountSessionWorkspace,
    AccountSessionWorkspaceKind,
)
from treadle.protocol.base import JsonValue
from treadle.support.text.urls import web_link

if TYPE_CHECKING:
    from treadle.accounts.credentials import CredentialStore, OpenaiLogin
    from treadle.support.concurrency.workers import Workers

MAX_WORKSPACES: Final = 200

_KINDS: Final[dict[str, AccountSessionWorkspaceKind]] = {
    "personal": "personal",
    "workspace": "workspace",
}


class SwitchRefused(Exception):
    """The workspace cannot be used; the message is for the user."""


class _Account(Struct):
    id: str
    name: str | None = None
    structure: str = ""
    profile_picture_url: str | None = None


class _Accounts(Struct):
    accounts: list[_Account] = []


class _Action(Struct):
    label: str
    url: str


class _Notice(Struct):
    title: str
    description: str
    action: _Action


class _SecuritySetup(Struct):
    notice: _Notice | None = None


async def list_sessions(
    credentials: CredentialStore, backend: AccountService | None = None
) -> AccountSessionsResponse:
    """Return the login as a session; with a backend, with the names of its workspaces."""
    login = credentials.current()
    document = credentials.document()
    if login is None or login.mode != "chatgpt" or document is None:
        return AccountSessionsResponse(sessions=[])
    refreshed = document.last_refresh
    session_id = _session_id(login)
    session = AccountSession(
        is_active=True,
        last_used_at=0 if refreshed is None else int(refreshed.timestamp()),
        session_id=session_id,
        workspaces=await _workspaces(login, backend),
        email=login.claims.email,
        selected_workspace_account_id=login.account_id,
        user_id=login.claims.user_id,
    )
    return AccountSessionsResponse(sessions=[session], active_session_id=session_id)


async def _workspaces(
    login: OpenaiLogin, backend: AccountService | None
) -> list[AccountSessionWorkspace]:
    own = [] if login.account_id is None else [AccountSessionWorkspace(login.account_id)]
    if backend is None:
        return own
    try:
        found = await backend.get("accounts/check", _Accounts)
    except (BackendError, CredentialsRejected):
        return own  # as upstream: the session is listed in any case
    return [
        AccountSessionWorkspace(
            account_id=each.id,
            image_url=web_link(each.profile_picture_url, "data:image/"),
            kind=_KINDS.get(each.structure),
            name=each.name,
        )
        for each in found.accounts[:MAX_WORKSPACES]
    ]


async def switch_workspace(
    credentials: CredentialStore, workers: Workers, session_id: str, account_id: str
) -> bool:
    """Exchange the tokens for those of another workspace; return whether they have changed.

    Raises:
        SwitchRefused: there is no such session, or the workspace is not allowed.
        BackendError: the backend does not answer as expected.
        CredentialsRejected: the login was rejected and cannot be renewed.
    """
    login = credentials.current()
    if login is None or login.mode != "chatgpt" or _session_id(login) != session_id:
        # Upstream's text: its clients show it.
        raise SwitchRefused("Only the active managed account session can be switched")
    if login.account_id == account_id:
        return False
    if not credentials.settings.allows_workspace(account_id):
        names = ", ".join(credentials.settings.workspaces or ())
        raise SwitchRefused(f"Login is restricted to workspace id(s) {names}.")
    # Renewed before, if needed: within the lock that would wait for itself.
    await credentials.login()
    async with credentials.renewal.exclusive():
        await _exchange(credentials, workers, account_id)
    return True


async def _exchange(credentials: CredentialStore, workers: Workers, account_id: str) -> None:
    credentials.forget()
    document = await workers.run(credentials.document)
    if document is None or document.tokens is None:
        raise SwitchRefused("Only the active managed account session can be switched")
    backend = AccountService(credentials, seconds=DOCUMENT_SECONDS, renews=False)
    path = "accounts/switch-workspace-token"
    try:
        granted: dict[str, JsonValue] = await backend.post(
            path, {"workspace_id": account_id}, dict, chatgpt_path=path
        )
    except BackendError as error:
        if error.status is None:
            raise
        raise SwitchRefused(f"Workspace switch was rejected (HTTP {error.status})") from None
    changed = with_tokens(document, granted)
    tokens = changed.tokens and msgspec.structs.replace(changed.tokens, account_id=account_id)
    try:
        await workers.run(credentials.save, msgspec.structs.replace(changed, tokens=tokens))
    except OSError as error:
        raise BackendError(f"the tokens cannot be saved: {error.strerror}") from error


async def read_notice(
    backend: AccountService, login: OpenaiLogin
) -> AccountSecuritySetupNotice | None:
    """Return what the backend reminds the user of, if anything."""
    account_id, user_id = login.account_id, login.claims.user_id
    if account_id is None or user_id is None:
        return None
    try:
        notice = (await backend.get("security-setup", _SecuritySetup)).notice
    except (BackendError, CredentialsRejected):
        return None  # as upstream: a reminder is not worth an error
    if notice is None or web_link(notice.action.url) is None:
        return None
    return AccountSecuritySetupNotice(
        account_id=account_id,
        action=AccountSecuritySetupAction(notice.action.label, notice.action.url),
        description=notice.description,
        title=notice.title,
        user_id=user_id,
    )


def _session_id(login: OpenaiLogin) -> str:
    return login.claims.user_id or login.account_id or "default"
