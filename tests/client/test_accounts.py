"""Signing in with a browser, on a server that reports how it ends."""

from __future__ import annotations

import asyncio

import pytest

from treadle import AsyncClient, Client, Disconnected, LoginFailed, RequestRefused, RequestTimeout
from treadle.protocol.base import JsonValue
from treadle.testing import FakeAppServer, VirtualClock, fake

SECONDS = 20
ENDED = "account/login/completed"
BEGUN: JsonValue = {"type": "chatgpt", "loginId": "l-1", "authUrl": "https://a.test/"}


def serving(*plays: fake.Play) -> FakeAppServer:
    return FakeAppServer().on("account/login/start", fake.steps(*plays))


async def test_a_sign_in_ends_when_the_server_reports_it() -> None:
    """Even before its own answer, and not when another sign-in ends."""
    other = fake.notifies(ENDED, {"loginId": "l-0", "success": False, "error": "no"})
    ours = fake.notifies(ENDED, {"loginId": "l-1", "success": True, "error": None})
    server = serving(other, ours, fake.answers(BEGUN))
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        login = await client.login_chatgpt()
        await login.wait()
    assert (login.id, login.url, login.code) == ("l-1", "https://a.test/", None)
    (params,) = server.received("account/login/start")
    assert params["type"] == "chatgpt"


async def test_a_sign_in_by_code_shows_the_code() -> None:
    begun = {
        "type": "chatgptDeviceCode",
        "loginId": "l-1",
        "userCode": "AB-12",
        "verificationUrl": "https://b.test/",
    }
    server = serving(fake.answers(begun))
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        login = await client.login_chatgpt(device_code=True)
    assert (login.id, login.url, login.code) == ("l-1", "https://b.test/", "AB-12")
    assert server.received("account/login/start") == [{"type": "chatgptDeviceCode"}]


async def test_a_failed_sign_in_is_raised_with_the_reason() -> None:
    ended = {"loginId": "l-1", "success": False, "error": "access denied"}
    server = serving(fake.answers(BEGUN), fake.notifies(ENDED, ended))
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        login = await client.login_chatgpt()
        with pytest.raises(LoginFailed, match="sign-in failed: access denied") as caught:
            await login.wait()
    assert caught.value.reason == "access denied"


async def test_waiting_for_a_sign_in_has_a_timeout(virtual_clock: VirtualClock) -> None:
    server = serving(fake.answers(BEGUN))
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        login = await client.login_chatgpt()
        with virtual_clock, pytest.raises(RequestTimeout):
            await login.wait(timeout=10)


async def test_a_server_that_disconnects_ends_the_wait() -> None:
    server = serving(fake.answers(BEGUN), fake.hangs_up())
    async with asyncio.timeout(SECONDS), AsyncClient(server, reconnect=False) as client:
        login = await client.login_chatgpt()
        with pytest.raises(Disconnected):
            await login.wait()


async def test_closing_the_client_ends_the_wait() -> None:
    server = serving(fake.answers(BEGUN))
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        login = await client.login_chatgpt()
        await client.close()
        with pytest.raises(Disconnected):
            await login.wait()


async def test_a_server_without_sign_in_refuses() -> None:
    server = serving(fake.refuses(-32600, "not here"))
    async with asyncio.timeout(SECONDS), AsyncClient(server) as client:
        with pytest.raises(RequestRefused, match="not here"):
            await client.login_chatgpt()


def test_the_blocking_client_waits_as_well() -> None:
    ours = fake.notifies(ENDED, {"loginId": "l-1", "success": True})
    server = serving(fake.answers(BEGUN), ours).on(
        "account/login/cancel", fake.answers({"status": "notFound"})
    )
    with Client(server) as client:
        login = client.login_chatgpt()
        login.wait(timeout=SECONDS)
        login.cancel()
    assert (login.id, login.url, login.code) == ("l-1", "https://a.test/", None)
