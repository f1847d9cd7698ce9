"""The services behind a ChatGPT login, on the loopback: the issuer, the backend and the models.

Refresh tokens are used once, codes are exchanged once, and every request is kept. A test replaces
what a path answers, also by bytes that are not HTTP or by nothing at all.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.harness.model_server import Reply, says, write_reply
from treadle.protocol.base import JsonValue

Send: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes an answer by hand."""

ACCOUNT = "acc-1"
EMAIL = "user@example.com"
USER_CODE = "ABCD-1234"
USAGE: JsonValue = {
    "plan_type": "pro",
    "rate_limit": {
        "allowed": True,
        "limit_reached": False,
        "primary_window": {
            "used_percent": 25,
            "limit_window_seconds": 900,
            "reset_after_seconds": 60,
            "reset_at": 1730947200,
        },
        "secondary_window": None,
    },
    "credits": {"has_credits": True, "unlimited": False, "balance": "9.99"},
}


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request as it arrived; the body of a form is a dict of its fields."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: JsonValue


@dataclass
class AccountService:
    """Issues tokens, and answers requests that carry valid ones."""

    # Of access tokens, in seconds from now.
    lifetime: float = 3600
    plan: str = "pro"
    email: str = EMAIL
    account: str = ACCOUNT
    # How often a device login is answered that the user has not typed the code yet.
    pending: int = 1
    port: int = 0
    requests: list[ServiceRequest] = field(default_factory=list)
    # What paths answer instead, by path: each answer counts for one request, the last for all.
    answers: dict[str, deque[Reply | Send]] = field(default_factory=dict)
    replies: deque[Reply] = field(default_factory=deque)
    valid: set[str] = field(default_factory=set)
    refresh_tokens: dict[str, bool] = field(default_factory=dict)
    revoked: list[str] = field(default_factory=list)
    # Code to challenge and redirect URI.
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    numbers: count[int] = field(default_factory=lambda: count(1))
    serving: set[asyncio.Task[None]] = field(default_factory=set)
    # What to call each token in a document that is compared.
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The origin."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make a server use this service."""
        return {
            "CODEX_APP_SERVER_LOGIN_ISSUER": self.url,
            "CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{self.url}/oauth/token",
            "CODEX_REVOKE_TOKEN_URL_OVERRIDE": f"{self.url}/oauth/revoke",
            "TREADLE_LOGIN_PORT": "0",
        }

    @property
    def config(self) -> str:
        """The configuration that makes a server use this service."""
        return (
            f'model = "m"\nmodel_provider = "service"\n'
            f'chatgpt_base_url = "{self.url}/backend-api"\nopenai_base_url = "{self.url}/v1"\n'
            f'[model_providers.service]\nname = "Service"\nbase_url = "{self.url}/v1"\n'
            f'wire_api = "responses"\nrequires_openai_auth = true\n'
        )

    def answer(self, path: str, *answers: Reply | Send) -> None:
        """Answer requests for a path like this."""
        self.answers[path] = deque(answers)

    def bodies(self, path: str) -> list[JsonValue]:
        """The bodies of all requests for a path."""
        return [each.body for each in self.requests if each.path == path]

    def of_path(self, path: str) -> list[ServiceRequest]:
        """All requests for a path."""
        return [each for each in self.requests if each.path == path]

    async def wait_for(self, path: str, number: int = 1) -> ServiceRequest:
        """Wait for a request, counted from one."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.of_path(path)) >= number)
        return self.of_path(path)[number - 1]

    # -- tokens

    def issue(self, *, lifetime: float | None = None) -> dict[str, str]:
        """Return new tokens that the service accepts."""
        number = next(self.numbers)
        seconds = self.lifetime if lifetime is None else lifetime
        access = self.token(f"access-{number}", seconds)
        refresh = f"refresh-token-{number}"
        tokens = {
            "id_token": self.token(f"id-{number}", seconds),
            "access_token": access,
            "refresh_token": refresh,
        }
        self.valid.add(access)
        self.refresh_tokens[refresh] = True
        self.labels |= {token: f"<{name} {number}>" for name, token in tokens.items()}
        return tokens

    def token(self, name: str, lifetime: float = 3600) -> str:
        """Return a token about the account."""
        about = {
            "chatgpt_plan_type": self.plan,
            "chatgpt_account_id": self.account,
            "chatgpt_user_id": "user-1",
        }
        return jwt(
            {
                "jti": name,
                "email": self.email,
                "exp": int(time.time() + lifetime),
                "https://api.openai.com/auth": about,
            }
        )

    def auth_json(
        self, *, lifetime: float | None = None, last_refresh: str | None = None
    ) -> dict[str, JsonValue]:
        """Return the `auth.json` of a login, as Codex writes it."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
        return {
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": None,
            "tokens": {**self.issue(lifetime=lifetime), "account_id": self.account},
            "last_refresh": last_refresh or now,
        }

    def consent(self, auth_url: str, **changes: str | None) -> str:
        """Return the address to which the browser goes after the user agreed."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(auth_url).query).items()}
        code = f"code-{next(self.numbers)}"
        self.codes[code] = (query["code_challenge"], query["redirect_uri"])
        answer: dict[str, str | None] = {"code": code, "state": query["state"], **changes}
        given = {name: value for name, value in answer.items() if value is not None}
        return f"{query['redirect_uri']}?{urlencode(given)}"

    # -- requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which carries one request."""
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            request = await _read(reader)
            async with self.arrived:
                self.requests.append(request)
                self.arrived.notify_all()
            waiting = self.answers.get(request.path)
            if waiting:
                answer = waiting[0] if len(waiting) == 1 else waiting.popleft()
            else:
                answer = self._answer(request)
            if isinstance(answer, Reply):
                await write_reply(writer, answer)
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has given up
        finally:
            self.serving.discard(task)
            writer.close()

    async def stop(self) -> None:
        """Drop the remaining connections."""
        for task in list(self.serving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _answer(self, request: ServiceRequest) -> Reply | Send:
        match request.method, request.path:
            case "POST", "/oauth/token":
                return self._grant(request.body)
            case "POST", "/oauth/revoke":
                self.revoked.append(request.body["token"])
                return document({})
            case "POST", "/api/accounts/deviceauth/usercode":
                code = {"device_auth_id": "device-1", "user_code": USER_CODE, "interval": "0"}
                return document(code)
            case "POST", "/api/accounts/deviceauth/token":
                return self._device_token()
            case _:
                return self._protected(request)

    def _accounts(self) -> JsonValue:
        entry = {
            "id": self.account,
            "name": None,
            "structure": "personal",
            "profile_picture_url": None,
            "plan_type": self.plan,
            "workspace_backend_origin": "https://chatgpt.com",
            "account_routing_override": "NO_CONSTRAINT",
        }
        accounts = {"accounts": [entry], "account_ordering": [self.account]}
        return {**accounts, "default_account_id": self.account}

    def _protected(self, request: ServiceRequest) -> Reply:
        if request.path.endswith("/accounts/check"):
            return document(self._accounts())
        is_model = request.method == "POST" and request.path.endswith("/responses")
        if not is_model and not request.path.endswith(("/wham/usage", "/api/codex/usage")):
            return document({"detail": "Not Found"}, 404)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.valid:
            message = "Provided authentication token is expired."
            return document({"error": {"code": "token_expired", "message": message}}, 401)
        if not is_model:
            return document(USAGE)
        return self.replies.popleft() if self.replies else says("done")

    def _grant(self, form: JsonValue) -> Reply:
        match form["grant_type"]:
            case "authorization_code":
                challenge, redirect = self.codes.pop(form["code"], ("", ""))
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                if challenge != encoded(digest) or redirect != form["redirect_uri"]:
                    return document({"error": "invalid_grant"}, 400)
                return document(self.issue())
            case "refresh_token":
                token = form["refresh_token"]
                if not self.refresh_tokens.get(token, False):
                    code = "reused" if token in self.refresh_tokens else "invalidated"
                    return document({"error": {"code": f"refresh_token_{code}"}}, 401)
                self.refresh_tokens[token] = False
                return document(self.issue())
            case _:
                return document({"error": "unsupported_grant_type"}, 400)

    def _device_token(self) -> Reply:
        if self.pending:
            self.pending -= 1
            return document({"error": "authorization_pending"}, 403)
        verifier, code = "verifier", f"code-{next(self.numbers)}"
        challenge = encoded(hashlib.sha256(verifier.encode()).digest())
        self.codes[code] = (challenge, f"{self.url}/deviceauth/callback")
        granted = {"authorization_code": code, "code_verifier": verifier}
        return document({**granted, "code_challenge": challenge})


S = TypeVar("S", bound=AccountService)


def document(body: JsonValue, status: int = 200) -> Reply:
    """An answer with a JSON document."""
    return Reply(status=status, body=body, is_document=True)


def raw(data: bytes) -> Send:
    """An answer of these bytes."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return send


async def hangs(_writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def is_endless(writer: asyncio.StreamWriter) -> None:
    """Answer with a document that does not end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


def jwt(claims: JsonValue) -> str:
    """A token with these claims and without a signature that anyone could check."""
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join([*(encoded(json.dumps(part).encode()) for part in parts), "c2ln"])


def encoded(data: bytes) -> str:
    """Bytes in the base64 of URLs."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def _read(reader: asyncio.StreamReader) -> ServiceRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(": ") for line in head[1:-2])
    headers = {name.lower(): value for name, _, value in pairs}
    data = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    body: JsonValue = None
    if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        body = {name: values[0] for name, values in parse_qs(data.decode()).items()}
    elif data:
        with contextlib.suppress(ValueError):  # compressed, for example
            body = json.loads(data)
    return ServiceRequest(method, parts.path, query, headers, body)


@contextlib.asynccontextmanager
async def listening(service: S) -> AsyncIterator[S]:
    """Let a service listen on a free port until the block ends."""
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, limit=2**24)
    service.port = server.sockets[0].getsockname()[1]
    async with server:
        try:
            yield service
        finally:
            await service.stop()


@contextlib.asynccontextmanager
async def account_service() -> AsyncIterator[AccountService]:
    """Listen on a free port until the block ends."""
    async with listening(AccountService()) as service:
        yield service
