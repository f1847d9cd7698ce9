"""Renewals that cannot take place: locked and full homes, addresses in the clear."""

from __future__ import annotations

import pytest

from tests.accounts.ground import Ground
from tests.attack.test_locks_of_commands import exclusive_lock
from treadle.accounts import renewal, renewal_lock
from treadle.accounts.credentials import CredentialStore
from treadle.accounts.renewal_lock import renewing
from treadle.model.provider import CredentialsRejected

TOKEN = "/oauth/token"


async def test_a_process_that_holds_the_lock_delays_a_renewal_only_so_long(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(renewal_lock, "GRACE_SECONDS", 0.0)
    ground.store(ground.service.auth_json())
    credentials = CredentialStore(ground.home, ground.environ)
    token = ground.stored()["tokens"]["access_token"]

    with (
        renewing(ground.home / renewal.LOCK, seconds=1),
        pytest.raises(CredentialsRejected, match="another process renews"),
    ):
        await credentials.renewal.renew(token)
    assert ground.service.bodies(TOKEN) == []
    assert (await credentials.renewal.renew(token)).token != token
    await credentials.close()


@pytest.mark.parametrize("note", ["", "5.0", "1e300", "nan", "garbage"])
async def test_a_command_that_holds_the_lock_prevents_no_renewal(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    """It can lock a file that it only reads; a killed server may have left a note there."""
    monkeypatch.setattr(renewal_lock, "GRACE_SECONDS", 0.1)
    ground.store(ground.service.auth_json())
    lock = ground.home / renewal.LOCK
    lock.write_text(note)
    credentials = CredentialStore(ground.home, ground.environ)
    token = ground.stored()["tokens"]["access_token"]

    with exclusive_lock(lock):
        assert (await credentials.renewal.renew(token)).token != token
    assert lock.read_text() == ""
    await credentials.close()


async def test_a_home_that_cannot_be_written_reports_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.store(ground.service.auth_json())
    credentials = CredentialStore(ground.home, ground.environ)
    token = ground.stored()["tokens"]["access_token"]

    def full(_self: object, _document: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CredentialStore, "save", full)
    with pytest.raises(
        CredentialsRejected, match="failed to save the renewed login: No space left"
    ):
        await credentials.renewal.renew(token)
    await credentials.close()


@pytest.mark.parametrize("address", ["http://example.com/oauth/token", "ftp://x/", "nonsense"])
async def test_tokens_are_not_sent_in_the_clear(ground: Ground, address: str) -> None:
    """Ours: an address from the environment must be encrypted, or on this machine."""
    ground.environ["CODEX_REFRESH_TOKEN_URL_OVERRIDE"] = address
    ground.store(ground.service.auth_json())
    credentials = CredentialStore(ground.home, ground.environ)

    with pytest.raises(CredentialsRejected, match="is not confidential"):
        await credentials.renewal.renew(ground.stored()["tokens"]["access_token"])
    await credentials.close()
