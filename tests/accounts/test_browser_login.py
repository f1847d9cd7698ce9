"""Login in a browser: consent, codes, states, and issuers that fail."""

from __future__ import annotations

import asyncio
import stat
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.accounts.browsing import (
    START,
    Page,
    begin,
    completed,
    end_of,
    visit,
)
from tests.accounts.ground import CHATGPT, Ground, answer_of
from tests.harness.account_service import Send, document, hangs, is_endless, jwt, raw
from tests.harness.model_server import Reply, write_reply
from treadle.accounts import services
from treadle.accounts.login import browser
from treadle.protocol.base import JsonValue

NO_CLAIM = (
    "Login is restricted to a specific workspace, but the token did not include an"
    " chatgpt_account_id claim."
)


async def test_a_login_in_the_browser(ground: Ground) -> None:
    """Upstream: the parameters of the address, the notifications, and the file in this format."""
    client = await ground.client()

    login = await begin(client)
    page = await visit(ground.service.consent(login["authUrl"]))
    end = await end_of(client)
    updated = (await client.until("account/updated"))[-1]["params"]

    assert page == Page(200, page.text)
    assert "You are signed in" in page.text
    assert end == completed(login)
    assert updated == {"authMode": "chatgpt", "planType": "pro"}
    assert (await client.request("account/read", {}))["account"] == CHATGPT
    query = {name: value for name, (value,) in parse_qs(urlsplit(login["authUrl"]).query).items()}
    port = urlsplit(query["redirect_uri"]).port
    assert login["authUrl"].startswith(f"{ground.service.url}/oauth/authorize?response_type=code&")
    assert query == {
        "response_type": "code",
        "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
        "redirect_uri": f"http://localhost:{port}/auth/callback",
        "scope": browser.SCOPES,
        "code_challenge": query["code_challenge"],
        "code_challenge_method": "S256",
        "id_token_add_organizations": "true",
        "codex_cli_simplified_flow": "true",
        "state": query["state"],
        "originator": "probe",
    }
    stored = ground.stored()
    assert list(stored) == ["auth_mode", "OPENAI_API_KEY", "tokens", "last_refresh"]
    assert (stored["auth_mode"], stored["OPENAI_API_KEY"]) == ("chatgpt", None)
    assert stored["tokens"]["account_id"] == "acc-1"
    assert stored["tokens"]["access_token"] in ground.service.valid
    assert stat.S_IMODE(ground.file.stat().st_mode) == 0o600
    assert (await answer_of(client))["status"] == "completed"


async def test_every_client_learns_of_the_login(ground: Ground) -> None:
    server = await ground.server()
    one, two = await ground.client(server), await ground.client(server)

    login = await begin(one)
    await visit(ground.service.consent(login["authUrl"]))

    assert await end_of(two) == completed(login)


async def test_a_login_outlives_the_client_that_started_it(ground: Ground) -> None:
    server = await ground.server()
    one, two = await ground.client(server), await ground.client(server)

    login = await begin(one)
    await one.peer.transport.close()
    await visit(ground.service.consent(login["authUrl"]))

    assert await end_of(two) == completed(login)
    assert ground.file.exists()


async def test_a_client_id_from_the_environment_is_used(ground: Ground) -> None:
    """Upstream's variable."""
    ground.environ["CODEX_APP_SERVER_LOGIN_CLIENT_ID"] = "app_other"
    client = await ground.client()

    login = await begin(client)
    await visit(ground.service.consent(login["authUrl"]))
    await end_of(client)

    assert "client_id=app_other" in login["authUrl"]
    assert ground.service.bodies("/oauth/token")[0]["client_id"] == "app_other"


# -- answers that the page does not accept


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"state": "guess"}, 400), ({"state": None}, 400), ({"state": "é"}, 400)],
)
async def test_a_wrong_state_changes_nothing(
    ground: Ground, changes: dict[str, str | None], status: int
) -> None:
    """Upstream: the login goes on, because any web page can send this request."""
    client = await ground.client()
    login = await begin(client)

    page = await visit(ground.service.consent(login["authUrl"], **changes))
    assert page.status == status
    assert ground.service.bodies("/oauth/token") == []
    await visit(ground.service.consent(login["authUrl"]))

    assert await end_of(client) == completed(login)


@pytest.mark.parametrize(
    ("target", "method"),
    [("/", "GET"), ("/auth/callbacks", "GET"), ("/auth/callback", "POST"), ("/success", "GET")],
)
async def test_other_requests_are_not_found(ground: Ground, target: str, method: str) -> None:
    client = await ground.client()
    login = await begin(client)
    address = ground.service.consent(login["authUrl"])
    query = urlsplit(address).query

    assert (await visit(urlsplit(address)._replace(path=target).geturl(), method)).status == 404

    assert query
    assert ground.service.bodies("/oauth/token") == []


async def test_a_code_is_exchanged_once(ground: Ground) -> None:
    """A reload of the page, or a program that has seen the address, changes nothing."""
    client = await ground.client()
    login = await begin(client)
    address = ground.service.consent(login["authUrl"])
    gate = asyncio.Event()
    granted = ground.service.issue()

    async def late(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await write_reply(writer, document(granted))

    ground.service.answer("/oauth/token", late)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(visit(address))
        await ground.service.wait_for("/oauth/token")
        again = await visit(address)
        gate.set()

    assert (first.result().status, again.status) == (200, 400)
    assert await end_of(client) == completed(login)
    assert len(ground.service.bodies("/oauth/token")) == 1


async def test_a_denied_consent_ends_the_login(ground: Ground) -> None:
    """Upstream: the description, or else the code."""
    client = await ground.client()
    for changes, reason in (
        ({"error": "access_denied"}, "access_denied"),
        ({"error": "x", "error_description": "The user <b>said</b> no"}, "The user <b>said</b> no"),
    ):
        login = await begin(client)
        page = await visit(ground.service.consent(login["authUrl"], code=None, **changes))
        error = f"Login server error: Sign-in failed: {reason}"
        assert await end_of(client) == completed(login, error)
        assert "<b>" not in page.text
    assert not ground.file.exists()


async def test_a_workspace_without_access_is_named(ground: Ground) -> None:
    """Upstream's text."""
    client = await ground.client()
    login = await begin(client)
    changes = {"error": "access_denied", "error_description": "Missing_codex_entitlement: no"}

    await visit(ground.service.consent(login["authUrl"], code=None, **changes))

    assert (await end_of(client))["error"] == (
        "Login server error: Codex is not enabled for your workspace. Contact your workspace"
        " administrator to request access to Codex."
    )


async def test_an_answer_without_a_code_ends_the_login(ground: Ground) -> None:
    client = await ground.client()
    login = await begin(client)

    await visit(ground.service.consent(login["authUrl"], code=None))

    assert (await end_of(client))["error"] == (
        "Login server error: Missing authorization code. Sign-in could not be completed."
    )


# -- an issuer that fails


EXCHANGE = "Login server error: Token exchange failed: "
TOKENS = {"access_token": "a-token-1", "refresh_token": "r-token-1"}
FAULTS: list[tuple[Reply | Send, str]] = [
    (document({"error": "invalid_grant"}, 400), "token endpoint returned status 400 Bad Request"),
    (document({"error": {"message": "no"}}, 500), "returned status 500 Internal Server Error: no"),
    (document({"error": "e", "error_description": "why"}, 403), "status 403 Forbidden: why"),
    (document([]), "the answer is not a JSON object"),
    (document({}), "the answer of the token endpoint lacks tokens"),
    (document({**TOKENS, "id_token": "x"}), "invalid ID token format"),
    (document({**TOKENS, "id_token": 5}), "the answer of the token endpoint lacks tokens"),
    (raw(b"\x00 garbage\r\n\r\n"), "not valid HTTP"),
    (raw(b""), "the server closed the connection"),
    (is_endless, "the answer has more than 1048576 bytes"),
    (hangs, "did not answer within 0.2 s"),
]


@pytest.mark.parametrize(("fault", "reason"), FAULTS)
async def test_an_issuer_that_fails_ends_the_login(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, fault: Reply | Send, reason: str
) -> None:
    if fault is hangs:
        monkeypatch.setattr(services, "DOCUMENT_SECONDS", 0.2)
    before = ground.service.auth_json()
    ground.store(before)
    client = await ground.client()
    login = await begin(client)
    ground.service.answer("/oauth/token", fault)

    page = await visit(ground.service.consent(login["authUrl"]))
    end = await end_of(client)

    assert (end["success"], end["loginId"]) == (False, login["loginId"])
    assert end["error"].startswith(EXCHANGE)
    assert reason in end["error"]
    assert "Sign-in could not be completed" in page.text
    assert ground.stored() == before


async def test_an_error_quotes_neither_code_nor_verifier(ground: Ground) -> None:
    client = await ground.client()
    login = await begin(client)
    address = ground.service.consent(login["authUrl"], code="code-that-is-secret")
    fault = {"error_description": "bad code code-that-is-secret"}
    ground.service.answer("/oauth/token", document(fault, 400))

    page = await visit(address)

    assert (await end_of(client))["error"] == (
        f"{EXCHANGE}token endpoint returned status 400 Bad Request: bad code [redacted]"
    )
    assert "code-that-is-secret" not in page.text


# -- workspaces


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"chatgpt_account_id": "acc-1"}, "Login is restricted to workspace id(s) acc-7, acc-8."),
        (
            {},
            NO_CLAIM,
        ),
    ],
)
async def test_a_login_of_another_workspace_is_refused(
    ground: Ground, claims: JsonValue, error: str
) -> None:
    """Upstream's texts."""
    ground.configure('forced_chatgpt_workspace_id = ["acc-7", "acc-8"]\n')
    client = await ground.client()
    login = await begin(client)
    tokens = {**TOKENS, "id_token": jwt({"https://api.openai.com/auth": claims})}
    ground.service.answer("/oauth/token", document(tokens))

    await visit(ground.service.consent(login["authUrl"]))

    assert "allowed_workspace_id=acc-7%2Cacc-8" in login["authUrl"]
    assert await end_of(client) == completed(login, f"Login server error: {error}")
    assert not ground.file.exists()


async def test_the_configuration_can_forbid_the_login(ground: Ground) -> None:
    ground.configure('forced_login_method = "api"\n')
    client = await ground.client()

    for kind in ("chatgpt", "chatgptDeviceCode"):
        refused = await client.refusal(START, {"type": kind})
        assert refused.message == "ChatGPT login is disabled. Use API key login instead."
