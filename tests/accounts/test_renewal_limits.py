"""Renewals that cannot take place: locked and full homes, addresses in the clear."""

from __future__ import annotations

import pytest

from tests.accounts.ground import Ground
from treadle.accounts import renewal
from treadle.accounts.credentials import CredentialStore
from treadle.model.provider import CredentialsRejected
from treadle.support.files.file_lock import locked

TOKEN = "/oauth/token"


async def test_a_process_that_holds_the_lock_delays_a_renewal_only_so_long(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "LOCK_SECONDS", 0.1)
    ground.store(ground.service.auth_json())
    credentials = CredentialStore(ground.home, ground.environ)
    token = ground.stored()["tokens"]["access_token"]

    with (
        locked(ground.home / renewal.LOCK, seconds=1),
        pytest.raises(CredentialsRejected, match="another process renews"),
    ):
        await credentials.renewal.renew(token)
    assert ground.service.bodies(TOKEN) == []
    assert (await credentials.renewal.renew(token)).token != token
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
