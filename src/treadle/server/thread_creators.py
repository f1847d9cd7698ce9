"""Which login starts a thread, and which threads are those of the current login."""

from __future__ import annotations

from treadle.accounts.credentials import CredentialStore
from treadle.store.stored_thread import ThreadCreator


def current_creator(credentials: CredentialStore) -> ThreadCreator:
    """Return the creator of threads that are started now."""
    login = credentials.current()
    if login is None or not login.is_chatgpt:
        return ThreadCreator()
    return ThreadCreator(login.claims.user_id, login.account_id)


def required_creator(
    credentials: CredentialStore, *, current_account_only: bool
) -> ThreadCreator | None:
    """Return the creator whose threads a list has; `None` selects all.

    As upstream: a key belongs to no account, so it hides no thread.
    """
    login = credentials.current() if current_account_only else None
    if not current_account_only or (login is not None and not login.is_chatgpt):
        return None
    return current_creator(credentials)
