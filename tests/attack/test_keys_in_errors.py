"""No error, rollout or log line repeats a key, whatever a service answers to the request."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import re
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec
import pytest

from tests.harness.mcp import settled, table
from tests.harness.model_server import calls
from tests.harness.threads import Client, Stage
from tests.model.double import collect
from treadle.engine.mcp.tokens import McpLogin, TokenFile
from treadle.model.base import ModelError
from treadle.model.provider import ProviderConfig, build_model
from treadle.protocol.base import JsonValue
from treadle.unattended.graphql import graphql_tool

KEY, HEADER, PARAMETER = "sk-TheKey123", "TheHeader456", "TheParameter789"
SECRETS = (KEY, HEADER, PARAMETER)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PROVIDER: JsonValue = {
    "env_key": "KEY",
    "http_headers": {"x-custom": HEADER},
    "query_params": {"code": PARAMETER},
    "stream_idle_timeout_ms": 300,
}
Answers = Callable[[str], bytes]


@asynccontextmanager
async def service(answer: Answers) -> AsyncIterator[str]:
    """Answer each request with bytes made from its text; yield the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"(?i)content-length: (\d+)", head)
        body = (await reader.readexactly(int(length[1]))).decode() if length else ""
        writer.write(answer(head + body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def quoted_secrets(request: str) -> bytes:
    """Return the secrets in a request, as a service quotes them."""
    named = re.findall(r"(?im)^(?:authorization|x-api-key|x-custom): (.*)\r$", request)
    return " ".join([*named, parse_qs(request.split()[1].partition("?")[2])["code"][0]]).encode()


def as_base64(request: str) -> bytes:
    """Return the secrets in a request, quoted in base64."""
    return base64.b64encode(quoted_secrets(request))


def stream_of(event: bytes) -> bytes:
    """Answer with a stream of one event."""
    return OK + b"content-type: text/event-stream\r\n\r\ndata: " + event + b"\n\n"


ANSWERS: dict[str, Answers] = {
    "length below zero": lambda _: OK + b"content-length: -1\r\n\r\n",
    "length is the key": lambda message: (
        OK + b"content-length: " + quoted_secrets(message) + b"\r\n\r\n"
    ),
    "bad status line": lambda message: b"your key is " + quoted_secrets(message) + b"\r\n\r\n",
    "bad header": lambda message: OK + b"bad header " + quoted_secrets(message) + b"\r\n\r\n",
    "too many headers": lambda _: OK + b"a: b\r\n" * 100_000 + b"\r\n",
    "bad chunk": lambda message: CHUNKED + quoted_secrets(message) + b"\r\n",
    "encoding": lambda message: OK + b"content-encoding: " + quoted_secrets(message) + b"\r\n\r\n",
    "reason": lambda message: (
        b"HTTP/1.1 400 " + quoted_secrets(message) + b"\r\ncontent-length: 0\r\n\r\n"
    ),
    "body": lambda message: b"HTTP/1.1 500 X\r\n\r\n" + quoted_secrets(message),
    "body in lower case": lambda message: (
        b"HTTP/1.1 400 X\r\n\r\n" + quoted_secrets(message).lower()
    ),
    "body in base64": lambda message: b"HTTP/1.1 400 X\r\n\r\n" + as_base64(message),
    "body with percents": lambda message: (
        b"HTTP/1.1 400 X\r\n\r\n" + quote(quoted_secrets(message), safe="").encode()
    ),
    "body with every byte as percents": lambda message: (
        b"HTTP/1.1 400 X\r\n\r\n" + b"".join(b"%%%02X" % byte for byte in quoted_secrets(message))
    ),
    "body with every byte as a JSON escape": lambda message: (
        b"HTTP/1.1 400 X\r\n\r\n" + b"".join(b"\\u%04X" % byte for byte in quoted_secrets(message))
    ),
    "key at the cut": lambda _: b"HTTP/1.1 400 X\r\n\r\n" + b"x" * 1989 + KEY.encode(),
    "redirect": lambda message: (
        b"HTTP/1.1 307 X\r\nlocation: http://evil."
        + quoted_secrets(message).split()[-1]
        + b".example/\r\n\r\n"
    ),
    "event": lambda message: stream_of(
        b'{"type":"error","error":{"message":"%s"}}' % quoted_secrets(message)
    ),
    "event with the key at a cut": lambda _: stream_of(
        b'{"type":"error","error":{"message":"%s%s"}}' % (b"x" * 1989, KEY.encode())
    ),
    "long event with the key at a cut": lambda _: stream_of(
        b'{"type":"error","error":{"message":"%s%s"}}' % (b"x" * 3989, KEY.encode())
    ),
}


def leaked_parts(text: str) -> list[str]:
    """Return what is left of the secrets in a text, ignoring case; ten characters are too many."""
    shown = "".join([text, unquote(text), re.sub(r"\\+u00(..)", r"%\1", text)]).lower()
    shown += unquote(shown).lower()
    encoded = [base64.b64encode(secret.encode()).decode()[:12] for secret in SECRETS]
    starts = [secret[:10] for secret in SECRETS]
    return [each for each in (*starts, *encoded) if each.lower() in shown]


async def error_of(answer: Answers, wire_api: str) -> ModelError:
    """Make one request, which must fail, and return its error."""
    async with service(answer) as url:
        config = msgspec.convert(
            {"base_url": url, "wire_api": wire_api, **PROVIDER}, ProviderConfig
        )
        model = build_model("quoting", config, environ={"KEY": KEY})
        try:
            with pytest.raises(ModelError) as caught:
                await collect(model)
        finally:
            await model.close()
    return caught.value


@pytest.mark.parametrize("wire_api", ["responses", "chat", "anthropic"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_error_of_a_model_shows_no_secret(answer: Answers, wire_api: str) -> None:
    error = await error_of(answer, wire_api)

    assert leaked_parts(f"{error.message} {error.details} {error}") == []
    assert leaked_parts("".join(traceback.format_exception(error))) == []


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_error_of_a_listing_shows_no_secret(answer: Answers) -> None:
    async with service(answer) as url:
        config = msgspec.convert({"base_url": url, "wire_api": "chat", **PROVIDER}, ProviderConfig)
        model = build_model("quoting", config, environ={"KEY": KEY})
        try:
            with pytest.raises(ModelError) as caught:
                await model.list_models()
        finally:
            await model.close()
    assert leaked_parts("".join(traceback.format_exception(caught.value))) == []


async def test_short_values_do_not_mutilate_an_error() -> None:
    async with service(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\nthe key is a bad key") as url:
        config = ProviderConfig(base_url=url, env_key="KEY", http_headers={"x-a": "a"})
        model = build_model("short", config, environ={"KEY": "key"})
        with pytest.raises(ModelError, match="400 Bad Request: the key is a bad key"):
            await collect(model)
        await model.close()


@pytest.mark.parametrize("name", ["length below zero", "bad status line", "redirect", "body"])
async def test_turn_shows_and_stores_no_secret(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Searches the warnings of retries, the error of the turn, the rollout and the log."""
    monkeypatch.setenv("KEY", KEY)
    caplog.set_level(logging.DEBUG, "treadle")
    async with service(ANSWERS[name]) as url:
        stage.configure(retries=1)
        path = stage.home / "config.toml"
        settings = f'"{url}"\nenv_key = "KEY"\nhttp_headers = {{ "x-custom" = "{HEADER}" }}\n'
        settings += f'query_params = {{ "code" = "{PARAMETER}" }}'
        text = path.read_text("utf-8").replace(f'"{stage.model.base_url}"', settings)
        path.write_text(text, "utf-8")
        client = await stage.client()
        published = await client.run(await client.start())

    assert published[-1]["params"]["turn"]["status"] == "failed"
    stored = [each.read_text("utf-8") for each in stage.home.rglob("*.jsonl")]
    assert stored
    assert leaked_parts("".join([json.dumps(published), *stored, caplog.text])) == []
    assert leaked_parts(" ".join(str(vars(record)) for record in caplog.records)) == []


# -- compressed answers


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_compressed_answer_is_refused_and_not_unpacked(encoding: str) -> None:
    bomb = gzip.compress(b"data: " + bytes(20_000_000))
    head = OK + f"content-type: text/event-stream\r\ncontent-encoding: {encoding}\r\n".encode()
    error = await error_of(lambda _: head + b"\r\n" + bomb, "responses")

    assert f"is compressed (content-encoding: {encoding})" in error.message
    assert not error.is_retryable


async def test_refusal_with_a_compressed_body_keeps_its_status() -> None:
    body = gzip.compress(b"busy")
    head = b"HTTP/1.1 503 X\r\ncontent-encoding: gzip\r\n\r\n"
    error = await error_of(lambda _: head + body, "responses")

    assert (error.http_status, error.is_retryable, error.info) == (503, True, "serverOverloaded")


# -- streams that send only keep-alives


@pytest.mark.parametrize("wire_api", ["responses", "chat", "anthropic"])
@pytest.mark.parametrize(
    "keep_alive",
    [b": PROCESSING\n\n", b"\n", b'event: ping\ndata: {"type": "ping"}\n\n', b"data: 1\n\n"],
)
async def test_keep_alives_hold_a_turn_for_a_limited_time(wire_api: str, keep_alive: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-type: text/event-stream\r\n\r\n")
        try:
            while True:
                writer.write(keep_alive)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            writer.close()

    async with asyncio.timeout(10), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        config = ProviderConfig(
            base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            wire_api=wire_api,  # type: ignore[arg-type]  # a parameter of the test
            stream_idle_timeout_ms=50,
            stream_keep_alive_timeout_ms=50,
        )
        model = build_model("lively", config, environ={})
        with pytest.raises(ModelError, match=r"only keep-alives|no data"):
            await collect(model)
        await model.close()


# -- MCP servers, sign-ins and the GraphQL tool


def json_answer(request: str, result: JsonValue) -> bytes:
    """Answer a request of the MCP protocol."""
    message = json.loads(request.partition("\r\n\r\n")[2])
    body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
    head = "content-type: application/json\r\nconnection: close\r\n"
    return OK + f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def mcp_server(request: str) -> bytes:
    """Initialize correctly, and answer tool calls with a line that quotes the request."""
    if '"initialize"' in request:
        about = {"name": "x", "version": "1"}
        return json_answer(
            request,
            {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
        )
    if '"tools/list"' in request:
        tool = {"name": "t0", "inputSchema": {"type": "object"}}
        return json_answer(request, {"tools": [tool | {"annotations": {"readOnlyHint": True}}]})
    if '"tools/call"' in request:
        return quoting(request)
    return b"HTTP/1.1 202 A\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def quoting(request: str) -> bytes:
    """Answer with a line that is not HTTP and quotes all headers and the body of the request."""
    return b"garbage " + request.replace("\r\n", " ").encode()[:4000] + b"\r\n\r\n"


def all_of(published: list[JsonValue], caplog: pytest.LogCaptureFixture) -> str:
    """Return everything that clients received and everything that was logged."""
    return " ".join([json.dumps(published), *(str(vars(each)) for each in caplog.records)])


async def test_mcp_server_that_dies_shows_no_secret(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", KEY)
    caplog.set_level(logging.DEBUG, "treadle")
    async with service(mcp_server) as url:
        settings = {"bearer_token_env_var": "KEY", "http_headers": {"x-custom": HEADER}}
        stage.configure(table("web", url=f"{url}/mcp?code={PARAMETER}", **settings))
        client = await stage.client()
        thread = await client.start()
        await settled(client, "web")
        stage.model.plays(calls("mcp__web__t0", {}))
        published = await client.run(thread)

    shown = all_of(published, caplog)
    assert "mcp server ended" in shown
    assert leaked_parts(shown) == []


async def test_mcp_server_that_does_not_start_shows_no_secret(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "treadle")
    async with service(quoting) as url:
        login = McpLogin(
            access_token=KEY,
            refresh_token=HEADER,
            expires_at=1.0,
            token_endpoint=f"{url}/token",
        )
        TokenFile(stage.home).set("web", f"{url}/mcp?code={PARAMETER}", login)
        stage.configure(table("web", url=f"{url}/mcp?code={PARAMETER}"))
        client = await stage.client()
        await client.start()
        outcome = (await settled(client, "web"))["web"]

    assert outcome["status"] == "failed"
    assert "[redacted]" in outcome["error"], "the renewal quoted the token"
    assert leaked_parts(all_of([outcome], caplog)) == []


async def test_mcp_process_that_prints_its_key_shows_no_secret(stage: Stage) -> None:
    command = ["-c", 'echo "bad key $API_KEY" >&2']
    stage.configure(table("local", command="sh", args=command, env={"API_KEY": KEY}))
    client = await stage.client()
    await client.start()
    outcome = (await settled(client, "local"))["local"]

    assert "bad key [redacted]" in outcome["error"]


async def test_failed_sign_in_shows_no_secret(stage: Stage) -> None:
    async with service(quoting) as url:
        settings = {"http_headers": {"x-custom": HEADER}}
        stage.configure(table("web", url=f"{url}/mcp?code={PARAMETER}", **settings))
        client = await stage.client()
        refused = await client.refusal("mcpServer/oauth/login", {"name": "web"})

    assert "failed to sign in to `web`" in refused.message
    assert leaked_parts(refused.message) == []


async def test_sign_in_whose_token_exchange_fails_shows_no_secret(stage: Stage) -> None:
    sent: list[str] = []

    def answer(request: str) -> bytes:
        path = request.split()[1]
        base = "http://" + re.findall(r"(?im)^host: (.*)\r$", request)[0]
        if "oauth-protected-resource" in path:
            return document({"resource": f"{base}/mcp", "authorization_servers": [base]})
        if "oauth-authorization-server" in path:
            return document(
                {
                    "issuer": base,
                    "authorization_endpoint": f"{base}/authorize",
                    "token_endpoint": f"{base}/token",
                    "registration_endpoint": f"{base}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
            )
        if path == "/register":
            message = json.loads(request.partition("\r\n\r\n")[2])
            return document({**message, "client_id": "c1"}, "201 Created")
        if path == "/token":
            sent.append(request)
            return document({"access_token": {"wrong": KEY}, "token_type": "Bearer"})
        return b"HTTP/1.1 401 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

    async with service(answer) as url:
        stage.configure(table("web", url=f"{url}/mcp"))
        client = await stage.client()
        begun = await client.request("mcpServer/oauth/login", {"name": "web"})
        query = parse_qs(urlsplit(begun["authorizationUrl"]).query)
        back = urlsplit(query["redirect_uri"][0])
        await browse(back.port or 0, f"{back.path}?code={HEADER}&state={query['state'][0]}")
        login = await completed_login(client)

    assert HEADER in sent[0]
    assert login["success"] is False
    assert "failed to sign in" in login["error"]
    assert leaked_parts(login["error"]) == []


def document(value: JsonValue, status: str = "200 OK") -> bytes:
    """Answer with a JSON document."""
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def browse(port: int, target: str) -> None:
    """Request a page as a browser does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await reader.read()
    writer.close()


async def completed_login(client: Client) -> JsonValue:
    """Wait for the end of a sign-in and return its notification."""
    return (await client.until("mcpServer/oauthLogin/completed"))[-1]["params"]


@pytest.mark.parametrize("name", ["length below zero", "bad status line", "redirect"])
async def test_graphql_error_shows_no_secret(name: str) -> None:
    async with service(ANSWERS[name]) as url:
        tool = graphql_tool(f"{url}/graphql?code={PARAMETER}", f"Bearer {KEY}")
        outcome = await tool({"query": "{ viewer { id } }"})  # type: ignore[misc]  # a coroutine

    assert leaked_parts(json.dumps(msgspec.to_builtins(outcome))) == []
