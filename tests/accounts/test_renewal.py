"""Tokens that have expired or are rejected: renewed once, by one process, and stored."""

from __future__ import annotations

import asyncio
import stat
import time

import pytest

from tests.accounts.ground import CHATGPT, Ground, answer_of, bearers
from tests.harness.account_service import document, hangs, is_endless, raw
from tests.harness.model_server import Reply, write_reply
from treadle.accounts import services
from treadle.model.provider import CredentialsRejected
from treadle.protocol.base import JsonValue

TOKEN = "/oauth/token"
AGAIN = " Please log out and sign in again."


async def test_a_rejected_token_is_renewed_and_the_request_repeated_once(ground: Ground) -> None:
    """Upstream: the same request to the issuer, and the same file afterwards."""
    old = ground.service.auth_json()
    ground.store({**old, "of_another_program": [1]})
    ground.service.valid.clear()

    turn = await answer_of(await ground.client())

    assert turn["status"] == "completed"
    new = ground.stored()
    assert bearers(ground.service) == [
        old["tokens"]["access_token"],
        new["tokens"]["access_token"],
    ]
    assert ground.service.bodies(TOKEN) == [
        {
            "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
            "grant_type": "refresh_token",
            "refresh_token": old["tokens"]["refresh_token"],
        }
    ]
    assert new["tokens"]["refresh_token"] != old["tokens"]["refresh_token"]
    assert new["tokens"]["id_token"] != old["tokens"]["id_token"]
    assert new["tokens"]["account_id"] == "acc-1"
    assert (new["auth_mode"], new["OPENAI_API_KEY"]) == ("chatgpt", None)
    assert new["of_another_program"] == [1]
    assert new["last_refresh"] > old["last_refresh"][:19]
    assert stat.S_IMODE(ground.file.stat().st_mode) == 0o600


async def test_a_second_rejection_ends_the_turn(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    fault = {"error": {"message": "go away"}}
    ground.service.answer("/v1/responses", Reply(status=401, body=fault))

    turn = await answer_of(await ground.client())

    assert turn["status"] == "failed"
    assert "go away" in turn["error"]["message"]
    assert turn["error"]["codexErrorInfo"] == {"httpConnectionFailed": {"httpStatusCode": 401}}
    assert len(ground.service.of_path("/v1/responses")) == 2
    assert len(ground.service.bodies(TOKEN)) == 1


async def test_an_expired_token_is_renewed_before_the_request(ground: Ground) -> None:
    ground.store(ground.service.auth_json(lifetime=-10))

    await answer_of(await ground.client())

    assert bearers(ground.service) == [ground.stored()["tokens"]["access_token"]]
    assert len(ground.service.bodies(TOKEN)) == 1


@pytest.mark.parametrize(("days", "renewals"), [(7, 0), (9, 1)])
async def test_a_token_without_an_expiry_is_renewed_after_eight_days(
    ground: Ground, days: int, renewals: int
) -> None:
    """Upstream: the age counts where the token does not say when it expires."""
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - days * 86400))
    login = ground.service.auth_json(last_refresh=then)
    login["tokens"]["access_token"] = "opaque-access-token"
    ground.service.valid.add("opaque-access-token")
    ground.store(login)

    await answer_of(await ground.client())

    assert len(ground.service.bodies(TOKEN)) == renewals


async def test_a_client_can_have_the_tokens_renewed(ground: Ground) -> None:
    old = ground.service.auth_json()
    ground.store(old)
    client = await ground.client()

    account = await client.request("account/read", {"refreshToken": True})
    status = await client.request("getAuthStatus", {"includeToken": True, "refreshToken": True})

    assert account["account"] == CHATGPT
    assert len(ground.service.bodies(TOKEN)) == 2
    assert status["authToken"] == ground.stored()["tokens"]["access_token"]
    assert status["authToken"] != old["tokens"]["access_token"]


async def test_many_threads_share_one_renewal(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    ground.service.valid.clear()
    client = await ground.client()
    threads = [await client.start() for _ in range(5)]

    for thread_id in threads:
        await client.start_turn(thread_id)
    ends = [(await client.until("turn/completed"))[-1] for _thread in threads]

    assert [end["params"]["turn"]["status"] for end in ends] == ["completed"] * 5
    assert len(ground.service.bodies(TOKEN)) == 1


async def test_servers_of_one_home_share_one_renewal(ground: Ground) -> None:
    """The issuer accepts a refresh token once: a second use would end the login."""
    ground.store(ground.service.auth_json())
    ground.service.valid.clear()
    clients = [await ground.client() for _ in range(3)]

    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(answer_of(client)) for client in clients]

    assert [run.result()["status"] for run in runs] == ["completed"] * 3
    assert len(ground.service.bodies(TOKEN)) == 1
    assert ground.service.refresh_tokens[ground.stored()["tokens"]["refresh_token"]]


async def test_tokens_that_another_program_has_renewed_are_used(ground: Ground) -> None:
    """Upstream: the file is read again before the issuer is asked."""
    ground.store(ground.service.auth_json())
    client = await ground.client()
    await answer_of(client)
    ground.service.valid.clear()
    new = ground.service.auth_json()
    ground.store(new)

    assert (await answer_of(client))["status"] == "completed"
    assert ground.service.bodies(TOKEN) == []
    assert bearers(ground.service)[-1] == new["tokens"]["access_token"]


async def test_a_login_with_another_account_is_not_renewed_for_the_first_one(
    ground: Ground,
) -> None:
    ground.store(ground.service.auth_json())
    server = await ground.server()
    client = await ground.client(server)
    token = ground.stored()["tokens"]["access_token"]
    await client.request("account/read", {})
    other = ground.service.auth_json()
    other["tokens"]["account_id"] = "acc-2"
    ground.store(other)

    login = await server.credentials.renewal.renew(token)

    # Requests of other turns may follow with the new account; nothing was sent to the issuer.
    assert login.account_id == "acc-2"
    assert ground.service.bodies(TOKEN) == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("refresh_token_expired", "because your refresh token has expired."),
        ("refresh_token_reused", "because your refresh token was already used."),
        ("refresh_token_invalidated", "because your refresh token was revoked."),
    ],
)
@pytest.mark.parametrize("is_nested", [True, False])
async def test_a_refusal_for_good_is_shown_and_not_repeated(
    ground: Ground, code: str, reason: str, *, is_nested: bool
) -> None:
    """Upstream: these texts, `unauthorized`, no account, and no further request."""
    ground.store(ground.service.auth_json())
    before = ground.file.read_bytes()
    ground.service.valid.clear()
    fault = {"error": {"code": code}} if is_nested else {"error": code}
    ground.service.answer(TOKEN, document(fault, 400))
    client = await ground.client()

    for _ in range(2):
        turn = await answer_of(client)
        assert turn["error"]["message"] == (
            f"Your access token could not be refreshed {reason}{AGAIN}"
        )
        assert turn["error"]["codexErrorInfo"] == "unauthorized"
    account = await client.request("account/read", {"refreshToken": True})
    status = await client.request("getAuthStatus", {"includeToken": True})

    assert account["account"] is None
    assert (status["authMethod"], status["authToken"]) == ("chatgpt", None)
    assert len(ground.service.bodies(TOKEN)) == 1
    assert ground.file.read_bytes() == before

    # A new login counts at once.
    del ground.service.answers[TOKEN]
    ground.store(ground.service.auth_json())
    assert (await answer_of(client))["status"] == "completed"


FAULTS = [
    (document({"error": "boom"}, 500), "500 Internal Server Error: boom"),
    (document({}, 503), "503 Service Unavailable: {}"),
    (raw(b"HTTP/1.1 502 Bad\r\ncontent-length: 4\r\n\r\noops"), "502 Bad: oops"),
    (raw(b"HTTP/1.1 302 Found\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n"), "302 Found"),
    (document([]), "the answer is not a JSON object"),
    (document({"access_token": 5}), "the answer has no access token"),
    (document({}), "the answer has no access token"),
    (document({"a": list(range(20_000))}), "the answer has more than 10000 values"),
    (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{"), "the answer is not a JSON object"),
    (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), "the server closed the connection"),
    (raw(b"\x00\xff garbage\r\n\r\n"), "not valid HTTP"),
    (raw(b""), "the server closed the connection"),
    (is_endless, "the answer has more than 1048576 bytes"),
    (hangs, "did not answer within 0.2 s"),
    (
        raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx"),
        "the answer is compressed (gzip), which was not requested",
    ),
]


@pytest.mark.parametrize(("fault", "reason"), FAULTS)
async def test_an_issuer_that_fails_does_not_end_the_login(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, fault: JsonValue, reason: str
) -> None:
    if fault is hangs:
        monkeypatch.setattr(services, "DOCUMENT_SECONDS", 0.2)
    login = ground.service.auth_json()
    ground.store(login)
    ground.service.answer(TOKEN, fault)
    client = await ground.client()

    account = await client.request("account/read", {"refreshToken": True})
    assert account["account"] == CHATGPT
    assert ground.stored() == login

    ground.service.valid.clear()
    path = ground.home / "config.toml"
    path.write_text(path.read_text("utf-8") + "request_max_retries = 0\n", "utf-8")
    turn = await answer_of(client)

    assert turn["error"]["message"].startswith("Failed to refresh token: ")
    assert reason in turn["error"]["message"]
    assert turn["error"]["codexErrorInfo"] == "other"
    assert ground.stored() == login
    # The issuer is asked again once it works.
    del ground.service.answers[TOKEN]
    assert (await answer_of(client))["status"] == "completed"


async def test_an_error_does_not_quote_a_token(ground: Ground) -> None:
    login = ground.service.auth_json()
    ground.store(login)
    ground.service.valid.clear()
    secret = login["tokens"]["refresh_token"]
    ground.service.answer(TOKEN, document({"error": {"message": f"bad token {secret}"}}, 400))
    path = ground.home / "config.toml"
    path.write_text(path.read_text("utf-8") + "request_max_retries = 0\n", "utf-8")

    turn = await answer_of(await ground.client())

    assert turn["error"]["message"] == (
        "Failed to refresh token: 400 Bad Request: bad token [redacted]"
    )


async def test_the_issuer_may_omit_tokens_that_stay_the_same(ground: Ground) -> None:
    old = ground.service.auth_json()
    ground.store(old)
    ground.service.answer(TOKEN, document({"access_token": "new-access-token"}))
    client = await ground.client()

    await client.request("account/read", {"refreshToken": True})

    assert ground.stored()["tokens"] == {**old["tokens"], "access_token": "new-access-token"}


async def test_a_logout_elsewhere_is_not_undone_by_a_renewal(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    server = await ground.server()
    token = ground.stored()["tokens"]["access_token"]
    assert server.credentials.current() is not None
    ground.file.unlink()

    with pytest.raises(CredentialsRejected, match="since logged out"):
        await server.credentials.renewal.renew(token)

    assert not ground.file.exists()


async def test_an_interrupted_turn_does_not_lose_the_new_tokens(ground: Ground) -> None:
    """The issuer has replaced the refresh token: its answer must be stored."""
    ground.store(ground.service.auth_json())
    ground.service.valid.clear()
    gate = asyncio.Event()
    new = ground.service.issue()

    async def late(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await write_reply(writer, document(new))

    ground.service.answer(TOKEN, late)
    client = await ground.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    await ground.service.wait_for(TOKEN)

    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)
    gate.set()
    assert (await answer_of(client))["status"] == "completed"

    assert ground.stored()["tokens"]["refresh_token"] == new["refresh_token"]
    assert len(ground.service.bodies(TOKEN)) == 1


async def test_an_interrupted_turn_does_not_end_the_wait_of_another(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    ground.service.valid.clear()
    gate = asyncio.Event()
    new = ground.service.issue()

    async def late(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await write_reply(writer, document(new))

    ground.service.answer(TOKEN, late)
    server = await ground.server()
    one, two = await ground.client(server), await ground.client(server)
    first, second = await one.start(), await two.start()
    turns = [await one.start_turn(first), await two.start_turn(second)]
    await ground.service.wait_for("/v1/responses", 2)
    await ground.service.wait_for(TOKEN)

    await one.request("turn/interrupt", {"threadId": first, "turnId": turns[0]})
    await one.end_of(turns[0])
    gate.set()

    end = (await two.end_of(turns[1]))[-1]
    assert end["params"]["turn"]["status"] == "completed"
    assert len(ground.service.bodies(TOKEN)) == 1


async def test_the_end_of_a_server_waits_for_a_renewal(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    server = await ground.server()
    token = ground.stored()["tokens"]["access_token"]
    gate = asyncio.Event()
    new = ground.service.issue()

    async def late(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await write_reply(writer, document(new))

    ground.service.answer(TOKEN, late)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.credentials.renewal.renew(token))
        await ground.service.wait_for(TOKEN)
        closing = tasks.create_task(server.close())
        await asyncio.sleep(0)
        gate.set()
        await closing

    assert ground.stored()["tokens"]["refresh_token"] == new["refresh_token"]
