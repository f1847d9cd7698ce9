"""Several sign-ins on one machine, and notices about an account."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, SnakeValue, Value

AccountSessionWorkspaceKind = Literal["personal", "workspace"]


class AccountSessionWorkspace(Value, frozen=True):
    """A workspace that a sign-in can use."""

    account_id: str
    image_url: str | None = None
    kind: AccountSessionWorkspaceKind | None = None
    name: str | None = None


class AccountSession(Value, frozen=True):
    """A sign-in; its last use is in Unix seconds."""

    is_active: bool
    last_used_at: Int64
    session_id: str
    workspaces: list[AccountSessionWorkspace]
    display_name: str | None = None
    email: str | None = None
    image_url: str | None = None
    selected_workspace_account_id: str | None = None
    user_id: str | None = None


class AccountSessionsListParams(Params, frozen=True):
    """List the sign-ins, with fresh names of their workspaces if requested."""

    refresh_workspace_metadata: bool = False


class AccountSessionsResponse(Value, frozen=True):
    """The sign-ins, and which of them is used."""

    sessions: list[AccountSession]
    active_session_id: str | None = None


class AccountSessionsSwitchParams(Params, frozen=True):
    """Use another sign-in, or another workspace of one."""

    account_id: str
    session_id: str
    # Sign in with a browser if the workspace requires it.
    allow_browser_login: bool = False


class AccountSessionsSwitchLogin(SnakeValue, frozen=True):
    """A sign-in in the browser has to end first; `account/login/completed` follows."""

    auth_url: str
    login_id: str


AccountSessionsSwitchResponse = AccountSessionsResponse | AccountSessionsSwitchLogin


class AccountSecuritySetupAction(Value, frozen=True):
    """A link of a notice."""

    label: str
    url: str


class AccountSecuritySetupNotice(Value, frozen=True):
    """A reminder about the security of an account."""

    account_id: str
    action: AccountSecuritySetupAction
    description: str
    title: str
    user_id: str


class GetAccountSecuritySetupResponse(Value, frozen=True):
    """The reminder for the account that is signed in, if any."""

    notice: AccountSecuritySetupNotice | None = None
