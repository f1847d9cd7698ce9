"""Logging out: the login is deleted here, and its tokens are revoked at the issuer."""

from __future__ import annotations

import pytest

from tests.accounts.ground import Ground
from tests.harness.account_service import Send, document, hangs, raw
from tests.harness.model_server import Reply
from treadle.accounts import revocation

REVOKE = "/oauth/revoke"


async def test_the_refresh_token_is_revoked(ground: Ground) -> None:
    """Upstream: the same request."""
    login = ground.service.auth_json()
    ground.store(login)
    client = await ground.client()

    assert await client.request("account/logout", None) == {}
    updated = (await client.until("account/updated"))[-1]["params"]

    assert updated == {"authMode": None, "planType": None}
    assert ground.service.bodies(REVOKE) == [
        {
            "token": login["tokens"]["refresh_token"],
            "token_type_hint": "refresh_token",
            "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
        }
    ]
    assert not ground.file.exists()
    assert (await client.request("account/read", {}))["account"] is None


async def test_without_a_refresh_token_the_access_token_is_revoked(ground: Ground) -> None:
    login = ground.service.auth_json()
    login["tokens"]["refresh_token"] = ""
    ground.store(login)
    client = await ground.client()

    await client.request("account/logout", None)

    assert ground.service.bodies(REVOKE) == [
        {"token": login["tokens"]["access_token"], "token_type_hint": "access_token"}
    ]


@pytest.mark.parametrize("fault", [document({}, 500), raw(b"\x00\r\n\r\n"), raw(b""), hangs])
async def test_an_issuer_that_fails_does_not_keep_the_login(
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
    fault: Reply | Send,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(revocation, "REVOKE_SECONDS", 0.2)
    login = ground.service.auth_json()
    ground.store(login)
    ground.service.answer(REVOKE, fault)
    client = await ground.client()

    assert await client.request("account/logout", None) == {}

    assert not ground.file.exists()
    assert "tokens not revoked" in caplog.text
    logged = [str(record.__dict__) for record in caplog.records]
    assert [each for each in logged if login["tokens"]["refresh_token"] in each] == []


async def test_keys_and_tokens_of_clients_are_not_revoked(ground: Ground) -> None:
    ground.store({"OPENAI_API_KEY": "sk-1", "auth_mode": "apikey"})
    client = await ground.client()
    await client.request("account/logout", None)
    token = ground.service.token("external")
    tokens = {"type": "chatgptAuthTokens", "accessToken": token, "chatgptAccountId": "acc-1"}
    await client.request("account/login/start", tokens)
    await client.request("account/logout", None)

    assert ground.service.bodies(REVOKE) == []
    assert (await client.request("account/read", {}))["account"] is None


async def test_the_revocation_follows_the_address_of_renewals(ground: Ground) -> None:
    """Upstream: without an address for it, it is taken from that of renewals."""
    del ground.environ["CODEX_REVOKE_TOKEN_URL_OVERRIDE"]
    ground.environ["CODEX_REFRESH_TOKEN_URL_OVERRIDE"] += "?unified=true"
    ground.store(ground.service.auth_json())

    await (await ground.client()).request("account/logout", None)

    assert len(ground.service.bodies(REVOKE)) == 1
