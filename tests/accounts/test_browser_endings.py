"""Login in a browser: cancelled, replaced, late, and the ports on which it waits."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.accounts.browsing import (
    BROWSER,
    CANCEL,
    NOT_COMPLETED,
    START,
    begin,
    completed,
    end_of,
    visit,
)
from tests.accounts.ground import Ground
from tests.harness.account_service import hangs, jwt, raw
from treadle.accounts.login import browser
from treadle.protocol.base import JsonValue
from treadle.server import account_logins
from treadle.support.http import loopback_page


async def test_a_login_is_cancelled(ground: Ground) -> None:
    """Upstream: the answer, then the notification; then there is nothing to cancel."""
    client = await ground.client()
    login = await begin(client)
    address = ground.service.consent(login["authUrl"])
    wanted = {"loginId": login["loginId"]}

    assert await client.request(CANCEL, wanted) == {"status": "canceled"}
    assert client.unread == []
    assert await end_of(client) == completed(login, NOT_COMPLETED)
    assert await client.request(CANCEL, wanted) == {"status": "notFound"}
    assert (await client.refusal(CANCEL, {"loginId": "x"})).message == "invalid login id: x"
    with pytest.raises(ConnectionError):
        await visit(address)


async def test_a_login_that_has_begun_to_exchange_can_be_cancelled(ground: Ground) -> None:
    client = await ground.client()
    login = await begin(client)
    ground.service.answer("/oauth/token", hangs)
    async with asyncio.TaskGroup() as tasks:
        visiting = tasks.create_task(visit(ground.service.consent(login["authUrl"])))
        await ground.service.wait_for("/oauth/token")

        answer = await client.request(CANCEL, {"loginId": login["loginId"]})

        visiting.cancel()
        assert answer == {"status": "canceled"}
        assert await end_of(client) == completed(login, NOT_COMPLETED)
    assert not ground.file.exists()


async def test_a_second_login_replaces_the_first(ground: Ground) -> None:
    client = await ground.client()
    first = await begin(client)

    second = await begin(client)
    assert await end_of(client) == completed(first, NOT_COMPLETED)
    await visit(ground.service.consent(second["authUrl"]))

    assert await end_of(client) == completed(second)


async def test_many_logins_at_once_leave_one(ground: Ground) -> None:
    server = await ground.server()
    clients = [await ground.client(server) for _ in range(4)]

    async with asyncio.TaskGroup() as tasks:
        starts = [tasks.create_task(begin(client)) for client in clients]
    logins = {start.result()["loginId"]: start.result() for start in starts}
    ended = {(await end_of(clients[0]))["loginId"] for _ in range(3)}
    (left,) = logins.keys() - ended
    await visit(ground.service.consent(logins[left]["authUrl"]))

    assert await end_of(clients[0]) == completed(logins[left])


@pytest.mark.parametrize(
    "other",
    [
        {"type": "apiKey", "apiKey": "sk-1"},
        {"type": "chatgptDeviceCode"},
        {
            "type": "chatgptAuthTokens",
            "accessToken": jwt({"exp": 5}),
            "chatgptAccountId": "acc-1",
        },
    ],
)
async def test_another_way_to_log_in_cancels_it(ground: Ground, other: JsonValue) -> None:
    """Upstream: a login that ends later must not replace the newer one."""
    client = await ground.client()
    login = await begin(client)

    await client.request(START, other)
    ends = [await end_of(client)]
    if other["type"] != "chatgptDeviceCode":
        ends.append(await end_of(client))

    assert completed(login, NOT_COMPLETED) in ends


async def test_a_logout_cancels_it(ground: Ground) -> None:
    client = await ground.client()
    login = await begin(client)

    await client.request("account/logout", None)

    assert await end_of(client) == completed(login, NOT_COMPLETED)


async def test_a_refused_login_cancels_nothing(ground: Ground) -> None:
    client = await ground.client()
    login = await begin(client)

    await client.refusal(START, {"type": "apiKey", "apiKey": " "})
    await client.refusal(START, {"type": "chatgptAuthTokens", "accessToken": "x"})
    await client.refusal(START, {"type": "amazonBedrock", "apiKey": "k", "region": "r"})
    await visit(ground.service.consent(login["authUrl"]))

    assert await end_of(client) == completed(login)


async def test_a_login_that_takes_too_long_ends(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_logins, "LOGIN_SECONDS", 0.05)
    client = await ground.client()

    login = await begin(client)

    assert await end_of(client) == completed(login, "Login timed out")


async def test_the_end_of_the_server_ends_the_login(ground: Ground) -> None:
    server = await ground.server()
    login = await begin(await ground.client(server))

    await server.close()

    with pytest.raises(ConnectionError):
        await visit(ground.service.consent(login["authUrl"]))


# -- the login that was stored before


async def test_the_tokens_that_a_login_replaces_are_revoked(ground: Ground) -> None:
    """Upstream: after the new ones are stored."""
    old = ground.service.auth_json()
    ground.store(old)
    client = await ground.client()

    login = await begin(client)
    await visit(ground.service.consent(login["authUrl"]))
    await end_of(client)

    assert ground.service.revoked == [old["tokens"]["refresh_token"]]
    assert ground.stored()["tokens"]["refresh_token"] != old["tokens"]["refresh_token"]


async def test_a_revocation_that_fails_does_not_fail_the_login(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    ground.service.answer("/oauth/revoke", raw(b"\x00\r\n\r\n"))
    client = await ground.client()

    login = await begin(client)
    await visit(ground.service.consent(login["authUrl"]))

    assert await end_of(client) == completed(login)


async def test_a_login_that_cannot_be_stored_fails(ground: Ground) -> None:
    ground.file.mkdir()
    client = await ground.client()

    login = await begin(client)
    await visit(ground.service.consent(login["authUrl"]))

    assert (await end_of(client))["error"].startswith(
        "Login server error: Sign-in completed but credentials could not be saved locally: "
    )
    assert list(ground.file.iterdir()) == []


# -- the port


async def test_the_next_port_is_used_when_one_is_taken(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream: another login that waits there is asked to end, then the other port is tried."""
    monkeypatch.setattr(browser, "PORT_RETRY_SECONDS", 0.001)
    seen: list[str] = []

    async def stay(method: str, target: str) -> loopback_page.PageAnswer:
        seen.append(f"{method} {target}")
        return loopback_page.PageAnswer(HTTPStatus.OK, "no")

    async with loopback_page.loopback_page(0, stay) as taken:
        credentials = (await ground.server()).credentials
        async with loopback_page.loopback_page(0, stay) as free:
            pass
        ground.environ["TREADLE_LOGIN_PORT"] = ""
        monkeypatch.setattr("treadle.accounts.settings._PORTS", (taken, free))
        client = await ground.client()
        login = await begin(client)
        redirect = parse_qs(urlsplit(login["authUrl"]).query)["redirect_uri"]
        assert redirect == [f"http://localhost:{free}/auth/callback"]
        assert seen == ["GET /cancel"]
        await visit(ground.service.consent(login["authUrl"]))
        assert await end_of(client) == completed(login)
        assert credentials.current() is not None


async def test_ports_that_are_all_taken_are_reported(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream's text."""
    monkeypatch.setattr(browser, "PORT_RETRY_SECONDS", 0.001)

    async def stay(_method: str, _target: str) -> loopback_page.PageAnswer:
        return loopback_page.PageAnswer(HTTPStatus.OK, "no")

    async with loopback_page.loopback_page(0, stay) as taken:
        ground.environ["TREADLE_LOGIN_PORT"] = str(taken)
        client = await ground.client()
        refused = await client.refusal(START, BROWSER)

    assert refused.code == -32603
    assert refused.message == (
        f"failed to start login server: Port 127.0.0.1:{taken} is already in use"
    )


async def test_a_login_of_another_server_gives_the_port_away(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream: `/cancel`, which Codex requests too."""
    monkeypatch.setattr(browser, "PORT_RETRY_SECONDS", 0.01)
    one = await ground.client()
    first = await begin(one)
    port = urlsplit(parse_qs(urlsplit(first["authUrl"]).query)["redirect_uri"][0]).port
    ground.environ["TREADLE_LOGIN_PORT"] = str(port)
    two = await ground.client()

    second = await begin(two)

    assert await end_of(one) == completed(first, "Login server error: Login cancelled")
    await visit(ground.service.consent(second["authUrl"]))
    assert await end_of(two) == completed(second)
