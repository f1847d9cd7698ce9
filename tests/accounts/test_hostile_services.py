"""What services, proxies, pages and damaged files could do to an account and its keys."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.accounts.ground import CHATGPT, Ground
from tests.attack.test_keys_in_errors import service as raw_service
from tests.harness.account_service import USAGE, USER_CODE, document, raw
from treadle.accounts.services import ServiceError, Services
from treadle.protocol.base import JsonValue

CONSUME = "/backend-api/wham/rate-limit-reset-credits/consume"
CREDITS = "/backend-api/wham/rate-limit-reset-credits"


async def test_an_answer_of_the_wrong_type_does_not_show_the_login(ground: Ground) -> None:
    """The library quotes the value of the wrong type, which was the token."""
    ground.store(login := ground.service.auth_json())
    client = await ground.client()
    token = login["tokens"]["access_token"]
    ground.service.answer(CONSUME, document({"code": token}), document({"code": "x" * 100_000}))
    shown = await client.refusal("account/rateLimitResetCredit/consume", {"idempotencyKey": "k"})
    long = await client.refusal("account/rateLimitResetCredit/consume", {"idempotencyKey": "k"})

    assert token not in shown.message
    assert "Invalid enum value '[redacted]'" in shown.message
    assert len(long.message) < 1000


async def test_a_reason_that_quotes_the_login_does_not_show_it(ground: Ground) -> None:
    ground.store(login := ground.service.auth_json())
    token = login["tokens"]["access_token"]
    answer = f"HTTP/1.1 400 Bad {token}\r\ncontent-type: a/{token}\r\ncontent-length: 0\r\n\r\n"
    ground.service.answer("/backend-api/wham/usage", raw(answer.encode()))
    client = await ground.client()
    error = await client.refusal("account/rateLimits/read", None)

    assert token not in error.message
    assert "400 Bad [redacted]; content-type=a/[redacted]" in error.message


async def test_a_proxy_that_quotes_its_login_gets_it_into_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for requests to models."""

    def answer(head: str) -> bytes:
        (line,) = [each for each in head.split("\r\n") if each.startswith("Proxy-Authorization")]
        return f"HTTP/1.1 407 {line}\r\n\r\n".encode()

    async with raw_service(answer) as url:
        monkeypatch.setenv("https_proxy", url.replace("://", "://user:hunter2secret@"))
        with pytest.raises(ServiceError) as error:
            await Services({}).send("GET", "https://auth.invalid/x", {})

    assert "407 Proxy-Authorization: Basic dXNlcjp[redacted]" in str(error.value)


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
)
async def test_an_impossible_time_in_the_file_prevents_nothing(ground: Ground, moment: str) -> None:
    """Every request that needs the login failed."""
    login = ground.service.auth_json(last_refresh=moment)
    login["tokens"]["access_token"] = "a.b.c"  # it does not say when it expires
    ground.service.valid.add("a.b.c")
    ground.store(login)
    client = await ground.client()

    assert (await client.request("account/read", {}))["account"] == CHATGPT
    messages = await client.run(await client.start())
    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_a_time_without_a_zone_of_the_backend_is_passed_on(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    credit = {"id": "c", "granted_at": "0001-01-01T00:00:00", "status": "available"}
    ground.service.answer(CREDITS, document({"available_count": 1, "credits": [credit]}))
    ground.service.answer("/backend-api/wham/usage", document(USAGE))
    found = await (await ground.client()).request("account/rateLimits/read", None)

    assert found["rateLimitResetCredits"]["credits"][0]["grantedAt"] == -62135596800


@pytest.mark.parametrize("header", ["Origin: https://evil", "Sec-Fetch-Site: cross-site"])
async def test_a_page_in_a_browser_does_not_cancel_a_login(ground: Ground, header: str) -> None:
    """Any page can request it; programs that need the port send no such header."""
    client = await ground.client()
    login = await client.request("account/login/start", {"type": "chatgpt"})
    (target,) = parse_qs(urlsplit(login["authUrl"]).query)["redirect_uri"]
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(target).port)
    writer.write(f"GET /cancel HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode())
    status = await reader.readline()
    await reader.read()
    writer.close()
    cancelled = await client.request("account/login/cancel", {"loginId": login["loginId"]})

    assert b"404" in status
    assert cancelled == {"status": "canceled"}


async def test_tokens_that_are_too_large_to_be_read_replace_no_login(ground: Ground) -> None:
    """Each of the issuer's answers fits, and the file with the rest of the login does not."""
    ground.store(login := ground.service.auth_json(lifetime=-5))
    large = {"access_token": "x" * 500_000, "refresh_token": "y" * 500_000}
    ground.store(login | {"other": "z" * 100_000})
    ground.service.answer("/oauth/token", document(large))
    client = await ground.client()
    await client.request("account/read", {"refreshToken": True})

    assert ground.stored()["tokens"] == login["tokens"]
    assert (await client.request("account/read", {}))["account"] == CHATGPT


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
async def test_a_request_in_clear_text_goes_to_no_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """It stays within this machine, whichever of its addresses it has."""
    requests: list[str] = []

    def note(request: str) -> bytes:
        requests.append(request)
        return b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

    async with raw_service(note) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(ServiceError):
            await Services({}).send("GET", f"http://{host}:9/x", {"authorization": "Bearer token"})

    assert requests == []


@pytest.mark.parametrize(
    "interval", [10**400, "nan", "9" * 5000, [], -1], ids=["huge", "nan", "digits", "list", "minus"]
)
async def test_an_impossible_interval_does_not_fail_a_login(
    ground: Ground, interval: JsonValue
) -> None:
    """The issuer proposes how often it is asked."""
    code = {"device_auth_id": "device-1", "user_code": USER_CODE, "interval": interval}
    ground.service.answer("/api/accounts/deviceauth/usercode", document(code))
    client = await ground.client()
    login = await client.request("account/login/start", {"type": "chatgptDeviceCode"})

    assert login["userCode"] == USER_CODE
