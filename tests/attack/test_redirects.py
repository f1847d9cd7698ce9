"""A redirect takes no secret to another origin, whichever part of Treadle makes the request."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.harness.mcp import settled, table
from tests.harness.threads import Stage
from tests.model.double import collect
from treadle.engine.mcp.tokens import McpLogin, TokenFile
from treadle.model.base import Model, ModelError
from treadle.model.provider import ProviderConfig, build_model
from treadle.protocol.base import JsonValue
from treadle.testing.recording import record
from treadle.unattended.graphql import graphql_tool

SECRETS = ("sk-the-key", "the-static-header", "the-env-header", "the-query-key")
ENVIRON = {"KEY": "sk-the-key", "HEADER": "the-env-header"}
PROVIDER: JsonValue = {
    "env_key": "KEY",
    "http_headers": {"x-static": "the-static-header"},
    "env_http_headers": {"x-env": "HEADER"},
    "query_params": {"api-key": "the-query-key"},
}


class Site:
    """An HTTP server that records requests; it redirects them, or refuses and quotes them."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.url = ""
        self.location: str | None = None
        self.status = 307

    async def answer(self, request: web.Request) -> web.Response:
        """Record one request and answer it."""
        head = "\n".join(f"{name}: {value}" for name, value in request.headers.items())
        whole = f"{request.method} {request.path_qs}\n{head}\n\n{await request.text()}"
        self.requests.append(whole)
        if self.location is None:
            return web.Response(status=401, text=whole)
        return web.Response(status=self.status, headers={"location": self.location})


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """Run a site on its own port of the loopback interface."""
    new_site = Site()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", new_site.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        new_site.url = str(server.make_url("")).rstrip("/")
        yield new_site


@pytest.fixture
async def near() -> AsyncIterator[Site]:
    """Provide the site that is configured."""
    async with site() as new_site:
        yield new_site


@pytest.fixture
async def far(near: Site) -> AsyncIterator[Site]:
    """Provide the site that the configured one redirects to."""
    async with site() as new_site:
        near.location = f"{new_site.url}/stolen?x=1"
        yield new_site


@asynccontextmanager
async def model_at(url: str, **settings: JsonValue) -> AsyncIterator[Model]:
    """Build a model whose requests carry every kind of secret."""
    config = msgspec.convert({"base_url": url, **PROVIDER, **settings}, ProviderConfig)
    model = build_model("near", config, environ=ENVIRON)
    try:
        yield model
    finally:
        await model.close()


async def error_of(url: str, **settings: JsonValue) -> ModelError:
    """Make one request to a model, which must fail, and return the error."""
    async with model_at(url, **settings) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model)
    return caught.value


@pytest.mark.parametrize("wire_api", ["responses", "chat", "anthropic"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_model_request_is_not_redirected_to_another_origin(
    near: Site, far: Site, wire_api: str, status: int
) -> None:
    near.status = status
    error = await error_of(near.url, wire_api=wire_api)

    assert far.requests == []
    assert f"to {far.url} was not followed" in error.message
    assert (error.http_status, error.is_retryable) == (status, False)
    assert not any(secret in error.message for secret in SECRETS)
    assert len(near.requests) == 1


async def test_model_listing_is_not_redirected_to_another_origin(near: Site, far: Site) -> None:
    async with model_at(near.url, wire_api="chat") as model:
        with pytest.raises(ModelError, match="was not followed"):
            await model.list_models()

    assert (len(near.requests), far.requests) == (1, [])


@pytest.mark.parametrize(
    "location",
    [
        "//localhost:{port}/v1",
        "http://localhost:{port}/v1",
        "https://127.0.0.1:{port}/v1",
        "http://user:password@evil.invalid/v1",
        "ftp://127.0.0.1:{port}/v1",
        "http://[::1/v1",
        "http://127.0.0.1:notaport/",
        "",
    ],
)
async def test_model_request_is_not_redirected_by_any_spelling(near: Site, location: str) -> None:
    near.location = location.format(port=near.url.rpartition(":")[2])
    error = await error_of(near.url)

    assert len(near.requests) == 1
    assert "was not followed" in error.message
    assert "password" not in error.message


@pytest.mark.parametrize("location", ["/elsewhere", "{url}/elsewhere"])
async def test_model_request_follows_a_redirect_within_its_origin(
    near: Site, location: str
) -> None:
    near.location = location.format(url=near.url)
    error = await error_of(near.url)

    assert len(near.requests) == 6, "the number of redirects is limited"
    assert near.requests[1].startswith("POST /elsewhere\n")
    assert near.requests[1].partition("\n\n")[2] == near.requests[0].partition("\n\n")[2]
    assert error.http_status == 307


async def test_error_that_quotes_the_request_shows_no_secret(near: Site) -> None:
    """Gateways echo headers; the text goes to the client, into the journal and into logs."""
    address = near.url.replace("://", "://somebody:the-password@")
    error = await error_of(address, wire_api="anthropic")

    assert any(all(secret in each for secret in SECRETS) for each in near.requests)
    shown = f"{error.message} {error.details} {error}"
    assert not any(secret in shown for secret in (*SECRETS, "the-password"))
    assert "[redacted]" in shown


async def test_password_in_the_address_and_a_key_exclude_each_other(near: Site) -> None:
    error = await error_of(near.url.replace("://", "://somebody:the-password@"))

    assert "the URL has a login" in error.message
    assert ("the-password" in error.message, error.is_retryable) == (False, False)


async def test_turn_reports_the_refused_redirect(stage: Stage, near: Site, far: Site) -> None:
    client = await stage.client()
    text = (stage.home / "config.toml").read_text("utf-8")
    (stage.home / "config.toml").write_text(text.replace(stage.model.base_url, near.url), "utf-8")
    thread = await client.start()
    published = await client.run(thread)

    failed = published[-1]["params"]["turn"]
    assert failed["status"] == "failed"
    assert f"to {far.url} was not followed" in failed["error"]["message"]
    assert far.requests == []


async def test_mcp_request_is_not_redirected_to_another_origin(
    stage: Stage, near: Site, far: Site
) -> None:
    stage.configure(table("web", url=near.url, http_headers={"x-api-key": "the-mcp-key"}))
    client = await stage.client()
    await client.start()
    outcome = (await settled(client, "web"))["web"]

    assert outcome["status"] == "failed"
    assert any("the-mcp-key" in each for each in near.requests)
    assert far.requests == []


async def test_token_renewal_is_not_redirected_to_another_origin(
    stage: Stage, near: Site, far: Site
) -> None:
    login = McpLogin(
        access_token="the-access-token",
        refresh_token="the-refresh-token",
        expires_at=time.time() - 100,
        token_endpoint=f"{near.url}/token",
    )
    TokenFile(stage.home).set("web", near.url, login)
    stage.configure(table("web", url=near.url))
    client = await stage.client()
    await client.start()
    await settled(client, "web")

    assert any("the-refresh-token" in each for each in near.requests)
    assert far.requests == []


async def test_sign_in_is_not_redirected_to_another_origin(
    stage: Stage, near: Site, far: Site
) -> None:
    stage.configure(table("web", url=near.url, http_headers={"x-api-key": "the-mcp-key"}))
    client = await stage.client()
    refused = await client.refusal("mcpServer/oauth/login", {"name": "web"})

    assert "No authorization support" in refused.message
    assert any("the-mcp-key" in each for each in near.requests)
    assert far.requests == []


async def test_graphql_request_is_not_redirected_to_another_origin(near: Site, far: Site) -> None:
    outcome = await _graphql(near.url)

    assert far.requests == []
    assert f"redirect to {far.url} was not followed" in outcome


async def test_graphql_answer_that_quotes_the_token_is_redacted(near: Site) -> None:
    outcome = await _graphql(near.url)

    assert "the-graphql-token" in near.requests[0]
    assert "the-graphql-token" not in outcome


async def test_recorder_does_not_redirect_to_another_origin(
    near: Site, far: Site, tmp_path: Path
) -> None:
    async with (
        record(near.url, tmp_path / "cassette.json") as recorder,
        aiohttp.ClientSession(headers={"x-api-key": "the-recorded-key"}) as http,
        http.post(f"{recorder.base_url}/responses", json={}, allow_redirects=False) as answer,
    ):
        assert answer.status == 307

    assert any("the-recorded-key" in each for each in near.requests)
    assert far.requests == []


async def _graphql(url: str) -> str:
    outcome = graphql_tool(url, "Bearer the-graphql-token")({"query": "{ viewer { id } }"})
    response = await outcome  # type: ignore[misc]  # the tool's function is a coroutine function
    return json.dumps(msgspec.to_builtins(response))
