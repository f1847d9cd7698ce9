"""A ChatGPT login in `auth.json`: read as Codex writes it, and used for requests to models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.accounts.ground import CHATGPT, Ground, answer_of, bearers
from tests.harness.account_service import jwt
from treadle.accounts.credentials import CredentialStore
from treadle.protocol.base import JsonValue


def read(account: JsonValue, *, required: bool = True) -> JsonValue:
    return {"account": account, "requiresOpenaiAuth": required, "workspaceRouting": None}


async def test_a_login_of_codex_is_the_account(ground: Ground) -> None:
    """Upstream: `auth.json` has the tokens, the identity token the email and the plan."""
    document = ground.service.auth_json()
    ground.store(document)
    client = await ground.client()

    account = await client.request("account/read", {})
    status = await client.request("getAuthStatus", {"includeToken": True})

    assert account == read(CHATGPT)
    assert status == {
        "authMethod": "chatgpt",
        "authToken": document["tokens"]["access_token"],
        "requiresOpenaiAuth": True,
    }


async def test_a_login_carries_requests_to_the_model(ground: Ground) -> None:
    """Upstream: bearer token and `chatgpt-account-id`."""
    document = ground.service.auth_json()
    ground.store(document)

    turn = await answer_of(await ground.client())

    assert turn["status"] == "completed"
    (request,) = ground.service.of_path("/v1/responses")
    assert request.headers["authorization"] == f"Bearer {document['tokens']['access_token']}"
    assert request.headers["chatgpt-account-id"] == "acc-1"
    assert "x-openai-fedramp" not in request.headers


async def test_a_login_of_a_government_account_says_so(ground: Ground) -> None:
    """Upstream: the claim becomes a header, by which the service routes the request."""
    document = ground.service.auth_json()
    claims = {"chatgpt_account_id": "acc-1", "chatgpt_account_is_fedramp": True}
    document["tokens"]["id_token"] = jwt({"https://api.openai.com/auth": claims})
    ground.store(document)

    await answer_of(await ground.client())

    (request,) = ground.service.of_path("/v1/responses")
    assert request.headers["x-openai-fedramp"] == "true"


async def test_a_provider_without_login_gets_no_token(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    path = ground.home / "config.toml"
    path.write_text(path.read_text("utf-8").replace("auth = true", "auth = false"), "utf-8")
    client = await ground.client()

    assert await client.request("account/read", {}) == read(None, required=False)
    await answer_of(client)

    (request,) = ground.service.of_path("/v1/responses")
    assert "authorization" not in request.headers
    assert "chatgpt-account-id" not in request.headers


@pytest.mark.parametrize(
    ("claims", "account"),
    [
        ({}, {"type": "chatgpt", "email": None, "planType": "unknown"}),
        (
            {"https://api.openai.com/profile": {"email": "p@example.com"}},
            {"type": "chatgpt", "email": "p@example.com", "planType": "unknown"},
        ),
        (
            {"email": "e", "https://api.openai.com/auth": {"chatgpt_plan_type": "education"}},
            {"type": "chatgpt", "email": "e", "planType": "edu"},
        ),
        (
            {"email": "e", "https://api.openai.com/auth": {"chatgpt_plan_type": "new_plan"}},
            {"type": "chatgpt", "email": "e", "planType": "unknown"},
        ),
    ],
)
async def test_missing_and_unknown_claims_are_nulls(
    ground: Ground, claims: JsonValue, account: JsonValue
) -> None:
    document = ground.service.auth_json()
    document["tokens"]["id_token"] = jwt(claims)
    ground.store(document)

    assert await (await ground.client()).request("account/read", {}) == read(account)


async def test_a_key_beside_tokens_counts_if_the_file_says_so(ground: Ground) -> None:
    """Upstream: `auth_mode` decides; without it, a key precedes tokens."""
    document = {**ground.service.auth_json(), "OPENAI_API_KEY": "sk-beside"}
    ground.store(document)
    client = await ground.client()
    assert (await client.request("account/read", {}))["account"]["type"] == "chatgpt"

    del document["auth_mode"]
    ground.store(document)
    assert (await client.request("account/read", {}))["account"] == {"type": "apiKey"}


async def test_a_login_that_another_program_stores_is_noticed(ground: Ground) -> None:
    client = await ground.client()
    assert await client.request("account/read", {}) == read(None)

    ground.store(ground.service.auth_json())
    assert await client.request("account/read", {}) == read(CHATGPT)

    ground.file.unlink()
    assert await client.request("account/read", {}) == read(None)


DAMAGED = [
    "",
    "{",
    "[]",
    "null",
    "[" * 10_000,
    '{"auth_mode": "chatgpt"}',
    '{"auth_mode": "chatgpt", "tokens": null}',
    '{"auth_mode": "chatgpt", "tokens": []}',
    '{"auth_mode": "chatgpt", "tokens": {"access_token": "x"}}',
    '{"auth_mode": "chatgpt", "tokens": {"id_token": 1, "access_token": "x", "refresh_token": ""}}',
    '{"auth_mode": "chatgpt", "tokens": {"id_token": "", "access_token": "", "refresh_token": ""}}',
    '{"auth_mode": "agentIdentity", "agent_identity": "x"}',
    '{"auth_mode": "nonsense", "OPENAI_API_KEY": "sk-1"}',
    '{"auth_mode": 5}',
]


@pytest.mark.parametrize("text", DAMAGED)
async def test_a_damaged_file_is_not_a_login(ground: Ground, text: str) -> None:
    ground.file.write_text(text, "utf-8")
    client = await ground.client()

    assert await client.request("account/read", {"refreshToken": True}) == read(None)
    turn = await answer_of(client)

    # Without a login the request is sent as it is: the provider decides.
    assert turn["status"] == "failed"
    assert ground.file.read_text("utf-8") == text
    assert ground.service.of_path("/oauth/token") == []


@pytest.mark.parametrize("token", ["x", "a.b.c", "..", f"a.{'W10' * 30_000}.c", "a.e30.c" * 9_999])
async def test_tokens_that_are_not_readable_are_still_a_login(ground: Ground, token: str) -> None:
    """Ours: the services decide about tokens, so nothing about their form is required."""
    document = ground.service.auth_json()
    document["tokens"]["id_token"] = token
    ground.store(document)

    found = await (await ground.client()).request("account/read", {})

    assert found == read({"type": "chatgpt", "email": None, "planType": "unknown"})


@pytest.mark.parametrize("last_refresh", [None, 5, "yesterday", "2026-06-14T00:00:00.123456789Z"])
def test_times_are_read_as_codex_writes_them(home: Path, last_refresh: JsonValue) -> None:
    tokens = {"id_token": "i", "access_token": "a", "refresh_token": "r"}
    document = {"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": last_refresh}
    (home / "auth.json").write_text(json.dumps(document), "utf-8")

    found = CredentialStore(home, {}).document()

    assert found is not None
    is_time = isinstance(last_refresh, str) and last_refresh.endswith("Z")
    assert (found.last_refresh is not None) is is_time


async def test_a_chatgpt_login_selects_openai_where_nothing_is_configured(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    (ground.home / "config.toml").write_text("", "utf-8")

    assert await (await ground.client()).request("account/read", {}) == read(CHATGPT)


@pytest.mark.parametrize(
    ("forced", "is_used"),
    [
        ('forced_login_method = "chatgpt"', True),
        ('forced_login_method = "api"', False),
        ('forced_chatgpt_workspace_id = "acc-1"', True),
        ('forced_chatgpt_workspace_id = ["acc-9", "acc-1"]', True),
        ('forced_chatgpt_workspace_id = "acc-2"', False),
        ('forced_chatgpt_workspace_id = " "', True),
    ],
)
async def test_a_login_that_the_configuration_forbids_is_not_used(
    ground: Ground, forced: str, *, is_used: bool
) -> None:
    """Ours: the reference deletes such a login, and only when `codex exec` starts."""
    ground.store(ground.service.auth_json())
    ground.configure(f"{forced}\n")
    client = await ground.client()

    assert await client.request("account/read", {}) == read(CHATGPT if is_used else None)
    await answer_of(client)

    assert bearers(ground.service) == (
        [ground.stored()["tokens"]["access_token"]] * is_used or [""]
    )


async def test_a_forced_chatgpt_login_ignores_keys(ground: Ground) -> None:
    ground.environ["OPENAI_API_KEY"] = "sk-environ"
    ground.configure('forced_login_method = "chatgpt"\n')
    client = await ground.client()
    assert await client.request("account/read", {}) == read(None)

    ground.store({"OPENAI_API_KEY": "sk-stored"})
    assert await client.request("account/read", {}) == read(None)
