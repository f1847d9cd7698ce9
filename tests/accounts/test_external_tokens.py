"""Tokens that a client owns: kept in memory, and renewed by that client."""

from __future__ import annotations

import pytest

from tests.accounts.ground import Ground, answer_of, bearers
from tests.harness.threads import Client
from treadle.accounts import renewal
from treadle.protocol.base import JsonValue

START, REFRESH = "account/login/start", "account/chatgptAuthTokens/refresh"
COMPLETED = {"loginId": None, "success": True, "error": None, "onboardingEntrypoint": None}


def login(token: str, **more: JsonValue) -> JsonValue:
    return {"type": "chatgptAuthTokens", "accessToken": token, "chatgptAccountId": "acc-1", **more}


async def asked(client: Client) -> JsonValue:
    """Wait for the request for new tokens."""
    return (await client.until(REFRESH))[-1]


async def test_tokens_of_a_client_are_used_and_never_stored(ground: Ground) -> None:
    """Upstream: the shape of releases since 0.118.0, and the notifications in this order."""
    token = ground.service.issue()["access_token"]
    client = await ground.client()

    assert await client.request(START, login(token)) == {"type": "chatgptAuthTokens"}
    completed = (await client.until("account/login/completed"))[-1]["params"]
    updated = (await client.until("account/updated"))[-1]["params"]
    account = await client.request("account/read", {"refreshToken": True})
    status = await client.request("getAuthStatus", {"includeToken": True})
    turn = await answer_of(client)

    assert completed == COMPLETED
    assert updated == {"authMode": "chatgptAuthTokens", "planType": "pro"}
    assert account["account"] == {
        "type": "chatgpt",
        "email": "user@example.com",
        "planType": "pro",
    }
    assert (status["authMethod"], status["authToken"]) == ("chatgptAuthTokens", token)
    assert turn["status"] == "completed"
    (request,) = ground.service.of_path("/v1/responses")
    assert request.headers["authorization"] == f"Bearer {token}"
    assert request.headers["chatgpt-account-id"] == "acc-1"
    written = [path for path in ground.home.rglob("*") if path.is_file()]
    assert not ground.file.exists()
    assert [path for path in written if token.encode() in path.read_bytes()] == []


async def test_the_shape_of_release_0_98_is_accepted(ground: Ground) -> None:
    """Upstream 0.98.0: `idToken` and `accessToken`; account and plan are in the tokens."""
    tokens = ground.service.issue()
    ground.service.valid.clear()
    client = await ground.client()
    old = {"idToken": tokens["id_token"], "accessToken": tokens["access_token"]}

    await client.request(START, {"type": "chatgptAuthTokens", **old})
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    request = await asked(client)
    new = ground.service.issue()
    renewed = {"idToken": new["id_token"], "accessToken": new["access_token"]}
    await client.peer.send({"id": request["id"], "result": renewed})
    end = (await client.end_of(turn_id))[-1]

    assert request["params"] == {"reason": "unauthorized", "previousAccountId": "acc-1"}
    assert end["params"]["turn"]["status"] == "completed"
    assert bearers(ground.service) == [tokens["access_token"], new["access_token"]]
    assert ground.service.of_path("/v1/responses")[1].headers["chatgpt-account-id"] == "acc-1"


async def test_a_plan_of_the_client_precedes_that_of_the_token(ground: Ground) -> None:
    token = ground.service.issue()["access_token"]
    client = await ground.client()

    await client.request(START, login(token, chatgptPlanType="team"))

    account = await client.request("account/read", {})
    assert account["account"]["planType"] == "team"


async def test_the_client_that_logged_in_is_asked_first(ground: Ground) -> None:
    server = await ground.server()
    other, owner = await ground.client(server), await ground.client(server)
    await owner.request(START, login(ground.service.token("old")))
    thread_id = await other.start()
    turn_id = await other.start_turn(thread_id)

    request = await asked(owner)
    new = ground.service.issue()["access_token"]
    answer = {"accessToken": new, "chatgptAccountId": "acc-1", "chatgptPlanType": None}
    await owner.peer.send({"id": request["id"], "result": answer})
    messages = await other.end_of(turn_id)

    assert messages[-1]["params"]["turn"]["status"] == "completed"
    assert REFRESH not in [message["method"] for message in messages]


async def test_another_client_is_asked_when_the_owner_is_gone(ground: Ground) -> None:
    server = await ground.server()
    owner, other = await ground.client(server), await ground.client(server)
    await owner.request(START, login(ground.service.token("old")))
    await owner.peer.transport.close()
    thread_id = await other.start()
    turn_id = await other.start_turn(thread_id)

    request = await asked(other)
    new = ground.service.issue()["access_token"]
    answer = {"accessToken": new, "chatgptAccountId": "acc-1"}
    await other.peer.send({"id": request["id"], "result": answer})

    end = (await other.end_of(turn_id))[-1]
    assert end["params"]["turn"]["status"] == "completed"


@pytest.mark.parametrize(
    ("answer", "message", "info"),
    [
        (
            {"error": {"code": -1, "message": "no"}},
            "auth refresh request failed: code=-1 message=no",
            "unauthorized",
        ),
        ({"result": {}}, "invalid auth refresh response", "unauthorized"),
        ({"result": None}, "invalid auth refresh response", "unauthorized"),
        ({"result": {"accessToken": 5}}, "invalid auth refresh response", "unauthorized"),
        (
            {"result": {"accessToken": "x", "chatgptAccountId": "acc-1"}},
            "invalid auth refresh response: invalid ID token format",
            "other",
        ),
    ],
)
async def test_a_client_without_new_tokens_fails_the_turn(
    ground: Ground, answer: JsonValue, message: str, info: str
) -> None:
    """Upstream: the texts; ours: a refusal is not repeated."""
    client = await ground.client()
    await client.request(START, login(ground.service.token("old")))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    request = await asked(client)

    await client.peer.send({"id": request["id"], **answer})
    turn = (await client.end_of(turn_id))[-1]["params"]["turn"]

    assert (turn["error"]["message"], turn["error"]["codexErrorInfo"]) == (message, info)
    assert len(ground.service.of_path("/v1/responses")) == 1


async def test_a_client_that_does_not_answer_fails_the_turn(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "CLIENT_SECONDS", 0.1)
    client = await ground.client()
    await client.request(START, login(ground.service.token("old")))

    turn = await answer_of(client)

    assert turn["error"]["message"] == "auth refresh request timed out after 0.1s"


async def test_other_logins_wait_for_a_logout(ground: Ground) -> None:
    """Upstream: a client that owns the tokens is not replaced by another way to log in."""
    ground.store(ground.service.auth_json())
    stored = ground.stored()
    client = await ground.client()
    await client.request(START, login(ground.service.token("one")))
    text = (
        "External auth is active. Use account/login/start (chatgptAuthTokens) to update it or"
        " account/logout to clear it."
    )

    for other in ({"type": "apiKey", "apiKey": "sk-1"}, {"type": "chatgpt"}):
        assert (await client.refusal(START, other)).message == text
    assert (await client.refusal(START, {"type": "chatgptDeviceCode"})).message == text
    await client.request(START, login(ground.service.token("two")))
    assert ground.stored() == stored

    await client.request("account/logout", None)
    assert (await client.request("account/read", {}))["account"] is None
    await client.request(START, {"type": "apiKey", "apiKey": "sk-1"})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"accessToken": "y", "chatgptAccountId": "a", "idToken": "x"},
            "failed to set external auth: invalid ID token format",
        ),
        (
            {"accessToken": "y", "chatgptAccountId": "a"},
            "failed to set external auth: invalid ID token format",
        ),
        (
            {"accessToken": "a.e30.c"},
            "Invalid request: missing field `chatgptAccountId`, also in the tokens",
        ),
        (
            {"chatgptAccountId": "a"},
            f"Invalid request: missing field `accessToken` in the params of {START}",
        ),
    ],
)
async def test_unusable_tokens_are_refused(ground: Ground, params: JsonValue, message: str) -> None:
    client = await ground.client()

    refused = await client.refusal(START, {"type": "chatgptAuthTokens", **params})

    assert refused.message == message
    assert (await client.request("account/read", {}))["account"] is None


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        (
            'forced_login_method = "api"',
            "External ChatGPT auth is disabled. Use API key login instead.",
        ),
        (
            'forced_chatgpt_workspace_id = ["acc-7", "acc-8"]',
            'External auth must use one of workspace(s) ["acc-7", "acc-8"], but received "acc-1".',
        ),
    ],
)
async def test_the_configuration_can_forbid_them(ground: Ground, forced: str, message: str) -> None:
    """Upstream's texts."""
    ground.configure(f"{forced}\n")
    client = await ground.client()

    refused = await client.refusal(START, login(ground.service.token("one")))

    assert refused.message == message


async def test_refreshed_tokens_of_another_workspace_are_refused(ground: Ground) -> None:
    ground.configure('forced_chatgpt_workspace_id = "acc-1"\n')
    client = await ground.client()
    await client.request(START, login(ground.service.token("old")))
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    request = await asked(client)

    new = {"accessToken": ground.service.token("new"), "chatgptAccountId": "acc-2"}
    await client.peer.send({"id": request["id"], "result": new})
    turn = (await client.end_of(turn_id))[-1]["params"]["turn"]

    assert turn["error"]["message"].startswith("external auth refresh returned workspace 'acc-2'")
