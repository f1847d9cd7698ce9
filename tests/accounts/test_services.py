"""Where a login is sent: to OpenAI's services for it, to a configured provider, nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.accounts.browsing import visit
from tests.accounts.ground import Ground, answer_of
from tests.harness.account_service import AccountService
from tests.harness.processes import TREADLE
from treadle import AsyncClient, LoginFailed
from treadle.accounts.settings import AccountSettings, endpoints, is_confidential


def arguments_of_processes() -> bytes:
    """Return the command lines of all processes."""
    lines = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines += path.read_bytes()
    return lines


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that refuses every tunnel, and the first lines of its requests."""
    lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readline()).decode().strip())
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lines


@pytest.mark.parametrize(
    ("login", "host"),
    [("chatgpt", "chatgpt.com:443"), ("apikey", "api.openai.com:443")],
)
async def test_each_login_reaches_its_own_service(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, login: str, host: str
) -> None:
    """Upstream: ChatGPT logins have another base URL, unless one is configured."""
    document = ground.service.auth_json() if login == "chatgpt" else {"OPENAI_API_KEY": "sk-1"}
    ground.store(document)
    retries = "request_max_retries = 0\nstream_max_retries = 0\n"
    # Tools of apps are requested from another service.
    text = f'model = "m"\nmodel_provider = "openai"\n[model_providers.openai]\n{retries}'
    text += "[features]\napps = false\n"
    (ground.home / "config.toml").write_text(text, "utf-8")
    async with proxy() as (address, lines):
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, address)
        turn = await answer_of(await ground.client())

    assert turn["status"] == "failed"
    assert [line.split(" ")[:2] for line in lines] == [["CONNECT", host]]


async def test_every_service_has_a_default(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream: these hosts."""
    ground.environ.clear()
    ground.environ["TREADLE_LOGIN_PORT"] = "0"
    ground.store(ground.service.auth_json())
    (ground.home / "config.toml").write_text('model_provider = "openai"', "utf-8")
    async with proxy() as (address, lines):
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, address)
        client = await ground.client()
        await client.request("account/read", {"refreshToken": True})
        await client.refusal("account/rateLimits/read", {"excludeResetCreditDetails": True})
        await client.refusal("account/login/start", {"type": "chatgptDeviceCode"})
        login = await client.request("account/login/start", {"type": "chatgpt"})
        await client.request("account/logout", None)

    hosts = [line.split(" ")[1] for line in lines]
    assert hosts == [
        "auth.openai.com:443",
        "chatgpt.com:443",
        "auth.openai.com:443",
        "auth.openai.com:443",
    ]
    assert login["authUrl"].startswith("https://auth.openai.com/oauth/authorize?")


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (None, "https://chatgpt.com/backend-api/wham/usage"),
        ("https://chatgpt.com/", "https://chatgpt.com/backend-api/wham/usage"),
        ("https://chat.openai.com", "https://chat.openai.com/backend-api/wham/usage"),
        ("https://a.test/x/backend-api/", "https://a.test/x/backend-api/wham/usage"),
        ("https://a.test/", "https://a.test/api/codex/usage"),
    ],
)
def test_the_backend_follows_the_configured_address(base: str | None, url: str) -> None:
    """Upstream: which paths a backend has follows from its address."""
    assert endpoints({}, AccountSettings(chatgpt_base_url=base)).backend_url("usage") == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com/x", True),
        ("http://localhost:1/x", True),
        ("http://127.0.0.1/x", True),
        ("http://[::1]:5/x", True),
        ("http://127.0.0.1.example.com/", False),
        ("http://localhost.example.com/", False),
        ("http://example.com/", False),
        ("//example.com", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_secrets_go_to_this_machine_or_encrypted(url: str, *, expected: bool) -> None:
    assert is_confidential(url) is expected


async def test_the_typed_client_logs_in(ground: Ground) -> None:
    """Ours: `login_chatgpt` of the client, with a server in its own process."""
    environ = {**ground.environ, "CODEX_HOME": str(ground.home), "TREADLE_HOME": str(ground.home)}
    command = [TREADLE, "app-server"]
    async with asyncio.timeout(40), AsyncClient(command, env=environ) as client:
        login = await client.login_chatgpt()
        await visit(ground.service.consent(login.url))
        await login.wait(timeout=20)
        account = (await client.read_account()).account
        again = await client.login_chatgpt()
        await again.cancel()
        with pytest.raises(LoginFailed, match="Login was not completed"):
            await again.wait(timeout=20)

    assert account is not None
    assert getattr(account, "email", None) == "user@example.com"
    assert ground.stored()["auth_mode"] == "chatgpt"


async def test_no_secret_reaches_logs_rollouts_or_arguments(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """Every secret of a life: login, renewal, failed renewal, usage, logout."""
    caplog.set_level(logging.DEBUG)
    service: AccountService = ground.service
    client = await ground.client()
    login = await client.request("account/login/start", {"type": "chatgpt"})
    await visit(service.consent(login["authUrl"]))
    await client.until("account/login/completed")
    await answer_of(client)
    secrets = list(ground.stored()["tokens"].values())[:3]
    service.valid.clear()
    await answer_of(client)
    secrets += list(ground.stored()["tokens"].values())[:3]
    await client.request("account/rateLimits/read", None)
    service.valid.clear()
    service.refresh_tokens.clear()
    turn = await answer_of(client)
    await client.request("account/logout", None)

    query = urlsplit(login["authUrl"]).query
    verifier = service.bodies("/oauth/token")[0]["code_verifier"]
    secrets += [verifier, query.split("state=")[1].split("&")[0]]
    assert turn["status"] == "failed"
    assert len(set(secrets)) == 8
    logged = "\n".join(str(record.__dict__) for record in caplog.records)
    files = [path for path in ground.home.rglob("*") if path.is_file()]
    kept = b"\n".join(path.read_bytes() for path in files)
    sent = str(client.received)
    arguments = arguments_of_processes()
    for secret in secrets:
        assert secret not in logged
        assert secret.encode() not in kept
        assert secret not in sent.replace(login["authUrl"], "")
        assert secret.encode() not in arguments
