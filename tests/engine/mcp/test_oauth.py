"""Signing in to a real MCP server that requires it."""

from __future__ import annotations

import asyncio
import json
import stat
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.harness.mcp import call, http_server, settled, table, text_of
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue
from treadle.support.http import loopback_page

COMPLETED = "mcpServer/oauthLogin/completed"


async def started(stage: Stage, url: str) -> tuple[Client, str, JsonValue]:
    """A thread with a server that needs a login, and the status of that server."""
    stage.configure(table("web", url=url))
    client = await stage.client()
    thread_id = await client.start()
    return client, thread_id, (await settled(client, "web"))["web"]


async def open_page(url: str, **changes: str) -> tuple[int, str]:
    """Follow the redirects like a browser, to our own page in the end."""
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(url, params=changes or None) as response,
    ):
        return response.status, await response.text()


async def sign_in(client: Client, **params: JsonValue) -> JsonValue:
    """Sign in as a user does; return the params of the completion."""
    begun = await client.request("mcpServer/oauth/login", {"name": "web", **params})
    status, page = await open_page(begun["authorizationUrl"])
    assert (status, "You are signed in" in page) == (200, True)
    params = (await client.until(COMPLETED))[-1]["params"]
    assert params.pop("loginId") == begun["loginId"]
    return params


async def test_a_server_that_needs_a_login_reports_it(stage: Stage) -> None:
    async with http_server("oauth") as url:
        client, thread_id, server = await started(stage, url)
        listed = await client.request("mcpServerStatus/list", {"threadId": thread_id})

    assert (server["status"], server["error"]) == (
        "failed",
        "The web MCP server is not logged in. Sign in with mcpServer/oauth/login.",
    )
    (status,) = listed["data"]
    assert (status["runtimeStatus"], status["authStatus"]) == (
        "authenticationRequired",
        "notLoggedIn",
    )


async def test_after_a_sign_in_loaded_threads_use_the_server(stage: Stage) -> None:
    async with http_server("oauth") as url:
        client, thread_id, _ = await started(stage, url)
        completed = await sign_in(client)
        await settled(client, "web")
        item, output = await call(stage.model, client, thread_id, "mcp__web__echo", {"text": "in"})
        listed = await client.request("mcpServerStatus/list", {"threadId": thread_id})

    assert completed == {"name": "web", "success": True, "threadId": None}
    assert (item["status"], text_of(output)) == ("completed", "echo: in")
    assert listed["data"][0]["authStatus"] == "oAuth"


async def test_the_login_is_stored_privately_and_renewed_when_it_expires(
    stage: Stage,
) -> None:
    """The tokens of this server end at once, and it takes none but the newest."""
    async with http_server("oauth") as url:
        client, thread_id, _ = await started(stage, url)
        await sign_in(client)
        await settled(client, "web")
        path = stage.home / "mcp_logins.json"
        first = json.loads(path.read_text("utf-8"))
        await call(stage.model, client, thread_id, "mcp__web__echo")
        await stage.restart()
        later = await stage.client()
        thread_id = await later.start()
        server = (await settled(later, "web"))["web"]
        item, _ = await call(stage.model, later, thread_id, "mcp__web__echo")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(first) == [f"web|{url}"]
    assert set(first[f"web|{url}"]["client"]) <= {"client_id", "client_secret"}
    renewed = json.loads(path.read_text("utf-8"))[f"web|{url}"]["access_token"]
    assert renewed != first[f"web|{url}"]["access_token"]
    assert (server["status"], item["status"]) == ("ready", "completed")


@pytest.mark.parametrize("answer", ["<html>oops</html>", '{"access_token": 7}', "[]"])
async def test_an_invalid_answer_to_a_renewal_leaves_the_login_unchanged(
    stage: Stage, answer: str
) -> None:
    async def renew(_request: web.Request) -> web.Response:
        return web.Response(text=answer, content_type="application/json")

    app = web.Application()
    app.router.add_post("/token", renew)
    async with http_server("oauth") as url, TestServer(app) as elsewhere:
        client, *_ = await started(stage, url)
        await sign_in(client)
        await stage.restart()
        path = stage.home / "mcp_logins.json"
        logins = json.loads(path.read_text("utf-8"))
        logins[f"web|{url}"]["token_endpoint"] = str(elsewhere.make_url("/token"))
        path.write_text(json.dumps(logins), "utf-8")
        later = await stage.client()
        await later.start()
        server = (await settled(later, "web"))["web"]

    assert (server["status"], json.loads(path.read_text("utf-8"))) == ("ready", logins)


async def test_an_invalid_callback_url_is_rejected_by_name(stage: Stage) -> None:
    async with http_server("oauth") as url:
        stage.configure('mcp_oauth_callback_url = "nonsense"\n' + table("web", url=url))
        client = await stage.client()
        refusal = await client.refusal("mcpServer/oauth/login", {"name": "web"})

    assert refusal.message == "invalid OAuth callback URL 'nonsense'"


async def test_the_authorization_url_has_only_the_required_parameters(stage: Stage) -> None:
    async with http_server("oauth") as url:
        client, *_ = await started(stage, url)
        begun = await client.request(
            "mcpServer/oauth/login", {"name": "web", "scopes": ["read", "write"]}
        )

    address = urlsplit(begun["authorizationUrl"])
    query = {key: values[0] for key, values in parse_qs(address.query).items()}
    assert f"{address.scheme}://{address.netloc}" == url.removesuffix("/mcp")
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert query["scope"] == "read write"
    assert urlsplit(query["redirect_uri"])[:2] == ("http", urlsplit(query["redirect_uri"]).netloc)
    assert urlsplit(query["redirect_uri"]).hostname == "127.0.0.1"


async def test_a_callback_with_another_state_is_rejected(stage: Stage) -> None:
    async with http_server("oauth") as url:
        client, *_ = await started(stage, url)
        begun = await client.request("mcpServer/oauth/login", {"name": "web"})
        page = parse_qs(urlsplit(begun["authorizationUrl"]).query)["redirect_uri"][0]
        forged = await open_page(page, code="stolen", state="guessed")
        elsewhere = await open_page(page.replace("/callback", "/favicon.ico"))
        await open_page(begun["authorizationUrl"])
        params = (await client.until(COMPLETED))[-1]["params"]

    assert (forged[0], elsewhere[0], params["success"]) == (400, 404, True)


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /callback HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 32 * 1024,
    ],
    ids=["url", "line", "length"],
)
async def test_a_malformed_callback_affects_only_its_connection(
    stage: Stage, caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    async with http_server("oauth") as url:
        client, *_ = await started(stage, url)
        begun = await client.request("mcpServer/oauth/login", {"name": "web"})
        page = urlsplit(parse_qs(urlsplit(begun["authorizationUrl"]).query)["redirect_uri"][0])
        reader, writer = await asyncio.open_connection(page.hostname, page.port)
        writer.write(head)
        answer = await reader.read()
        writer.close()
        await open_page(begun["authorizationUrl"])
        params = (await client.until(COMPLETED))[-1]["params"]

    assert (answer, params["success"]) == (b"", True)
    assert "Unhandled exception" not in caplog.text


async def test_many_connections_to_the_callback_end_the_oldest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs a descriptor for ten seconds, and any program on the machine can connect."""
    async with http_server("oauth") as url:
        client, *_ = await started(stage, url)
        begun = await client.request("mcpServer/oauth/login", {"name": "web"})
        monkeypatch.setattr(loopback_page, "HEAD_SECONDS", 600.0)
        page = urlsplit(parse_qs(urlsplit(begun["authorizationUrl"]).query)["redirect_uri"][0])
        browsers = [
            await asyncio.open_connection(page.hostname, page.port)
            for _ in range(loopback_page.MAX_VISITORS + 1)
        ]
        with suppress(ConnectionError):
            assert await browsers[0][0].read() == b""
        await open_page(begun["authorizationUrl"])
        params = (await client.until(COMPLETED))[-1]["params"]
        for _reader, writer in browsers:
            writer.close()

    assert params["success"] is True


async def test_a_failed_sign_in_is_reported_with_the_reason(stage: Stage) -> None:
    async with http_server("oauth") as url:
        client, *_ = await started(stage, url)
        begun = await client.request("mcpServer/oauth/login", {"name": "web"})
        query = parse_qs(urlsplit(begun["authorizationUrl"]).query)
        await open_page(query["redirect_uri"][0], error="access_denied", state=query["state"][0])
        params = (await client.until(COMPLETED))[-1]["params"]

    assert params["success"] is False
    assert "access_denied" in params["error"]


async def test_an_abandoned_sign_in_ends_by_itself(stage: Stage) -> None:
    async with http_server("oauth") as url:
        client, *_ = await started(stage, url)
        await client.request("mcpServer/oauth/login", {"name": "web", "timeoutSecs": 1})
        params = (await client.until(COMPLETED))[-1]["params"]

    assert (params["success"], params["error"]) == (False, "timed out waiting for the sign-in")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "sh"}, "OAuth login is only supported for streamable HTTP servers."),
        ({"args": []}, "invalid transport"),
    ],
)
async def test_only_servers_at_an_address_can_be_signed_in_to(
    stage: Stage, settings: JsonValue, message: str
) -> None:
    stage.configure(table("web", **settings))
    client = await stage.client()
    refusal = await client.refusal("mcpServer/oauth/login", {"name": "web"})
    unknown = await client.refusal("mcpServer/oauth/login", {"name": "nope"})

    assert (refusal.code, refusal.message) == (-32600, message)
    assert (unknown.code, unknown.message) == (-32600, "No MCP server named 'nope' found.")


async def test_a_server_without_login_cannot_be_signed_in_to(stage: Stage) -> None:
    async with http_server() as url:
        stage.configure(table("web", url=url))
        client = await stage.client()
        refusal = await client.refusal("mcpServer/oauth/login", {"name": "web"})

    assert refusal.message == "No authorization support detected for this server."
