"""Login by a code that the user types elsewhere."""

from __future__ import annotations

import pytest

from tests.accounts.ground import CHATGPT, Ground, answer_of
from tests.harness.account_service import Send, document, hangs, is_endless, raw
from tests.harness.model_server import Reply
from tests.harness.threads import Client
from treadle.accounts import services
from treadle.accounts.login import device_code
from treadle.accounts.login.tokens import TokenIntake
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.workers import Workers

START, CANCEL, DONE = "account/login/start", "account/login/cancel", "account/login/completed"
CODE, POLL = "/api/accounts/deviceauth/usercode", "/api/accounts/deviceauth/token"
FAILED, BAD_REQUEST = "failed to request device code", "returned status 400 Bad Request"
DEVICE = {"type": "chatgptDeviceCode"}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll as often as the issuer allows."""
    monkeypatch.setattr(device_code, "MIN_INTERVAL", 0.001)


async def end_of(client: Client) -> JsonValue:
    """Wait for the end of a login."""
    return (await client.until(DONE))[-1]["params"]


async def test_a_login_by_code(ground: Ground) -> None:
    """Upstream: the requests, the answer and the notifications."""
    ground.service.pending = 2
    client = await ground.client()

    login = await client.request(START, DEVICE)
    end = await end_of(client)
    updated = (await client.until("account/updated"))[-1]["params"]

    assert login == {
        "type": "chatgptDeviceCode",
        "loginId": login["loginId"],
        "userCode": "ABCD-1234",
        "verificationUrl": f"{ground.service.url}/codex/device",
    }
    assert end == {
        "loginId": login["loginId"],
        "success": True,
        "error": None,
        "onboardingEntrypoint": None,
    }
    assert updated == {"authMode": "chatgpt", "planType": "pro"}
    assert ground.service.bodies(CODE) == [{"client_id": "app_EMoamEEZ73f0CkXaXp7hrann"}]
    poll = {"device_auth_id": "device-1", "user_code": "ABCD-1234"}
    assert ground.service.bodies(POLL) == [poll] * 3
    (exchange,) = ground.service.bodies("/oauth/token")
    assert exchange["redirect_uri"] == f"{ground.service.url}/deviceauth/callback"
    assert (await client.request("account/read", {}))["account"] == CHATGPT
    assert (await answer_of(client))["status"] == "completed"


async def test_a_login_by_code_is_cancelled(ground: Ground) -> None:
    """Upstream: without the words about a server, as there is none."""
    ground.service.pending = 10**6
    client = await ground.client()
    login = await client.request(START, DEVICE)

    answer = await client.request(CANCEL, {"loginId": login["loginId"]})
    end = await end_of(client)

    assert answer == {"status": "canceled"}
    assert (end["success"], end["error"]) == (False, "Login was not completed")


async def test_a_code_that_is_never_typed_expires(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_code, "WAIT_SECONDS", 0.05)
    ground.service.pending = 10**6
    client = await ground.client()

    await client.request(START, DEVICE)

    assert (await end_of(client))["error"] == "device auth timed out after 15 minutes"


REFUSALS: list[tuple[Reply | Send, int, str]] = [
    (document({}, 404), -32600, device_code.NOT_ENABLED),
    (
        document({}, 500),
        -32603,
        f"{FAILED}: device code request failed with status 500 Internal Server Error",
    ),
    (document([]), -32603, f"{FAILED}: the answer is not a JSON object"),
    (
        document({"user_code": "x"}),
        -32603,
        f"{FAILED}: the answer of the issuer has no usable code",
    ),
    (
        document({"user_code": "x" * 65, "device_auth_id": "d"}),
        -32603,
        f"{FAILED}: the answer of the issuer has no usable code",
    ),
    (
        document({"user_code": "\x1b[2J", "device_auth_id": "d"}),
        -32603,
        f"{FAILED}: the answer of the issuer has no usable code",
    ),
]


@pytest.mark.parametrize(("fault", "code", "message"), REFUSALS)
async def test_an_issuer_without_a_code_fails_the_request(
    ground: Ground, fault: Reply | Send, code: int, message: str
) -> None:
    ground.service.answer(CODE, fault)
    client = await ground.client()

    refused = await client.refusal(START, DEVICE)

    assert (refused.code, refused.message) == (code, message)


@pytest.mark.parametrize("fault", [hangs, is_endless, raw(b""), raw(b"\x00\r\n\r\n")])
async def test_an_issuer_that_does_not_answer_fails_the_request(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, fault: Send
) -> None:
    monkeypatch.setattr(services, "DOCUMENT_SECONDS", 0.2 if fault is hangs else 20)
    ground.service.answer(CODE, fault)
    client = await ground.client()
    waiting = await client.request(START, {"type": "chatgpt"})

    refused = await client.refusal(START, DEVICE)

    assert refused.message.startswith(f"{FAILED}: {ground.service.url}")
    # The login that waits is not replaced.
    cancelled = await client.request(CANCEL, {"loginId": waiting["loginId"]})
    assert cancelled == {"status": "canceled"}


@pytest.mark.parametrize(
    ("path", "fault", "message"),
    [
        (POLL, document({}, 500), "device auth failed with status 500 Internal Server Error"),
        (POLL, document({}), "the answer of the issuer has no authorization code"),
        (POLL, document("x"), "the answer is not a JSON object"),
        (
            "/oauth/token",
            document({"error": "invalid_grant"}, 400),
            f"device code exchange failed: token endpoint {BAD_REQUEST}: invalid_grant",
        ),
    ],
)
async def test_an_issuer_that_fails_ends_the_login(
    ground: Ground, path: str, fault: Reply, message: str
) -> None:
    ground.service.answer(path, fault)
    client = await ground.client()

    await client.request(START, DEVICE)

    assert (await end_of(client))["error"] == message
    assert not ground.file.exists()


@pytest.mark.parametrize(
    ("interval", "pause"), [(-1, 5.0), (10**9, 5.0), ("soon", 5.0), (None, 5.0), ("7", 7.0)]
)
async def test_an_unusable_pause_is_replaced(
    ground: Ground, interval: JsonValue, pause: float
) -> None:
    code = {"user_code": "A", "device_auth_id": "d", "interval": interval}
    ground.service.answer(CODE, document(code))
    credentials = (await ground.server()).credentials
    intake = TokenIntake(credentials, Workers("test", 1))

    found = await device_code.DeviceLogin(credentials, intake).request_code()

    assert found.interval == pause
