"""What the reference does with logins and these services, and that either program uses the other's.

The release cannot log in here in a browser or by a code: it does that with its vendor only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.programs import folder_for_homes
from tests.accounts.ground import bearers
from tests.harness.account_service import AccountService, account_service, document
from tests.harness.golden import Golden
from tests.harness.peer import Peer
from tests.harness.releases import program
from tests.harness.threads import Client, Refused, environment
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import spawn

WHAM = "/backend-api/wham"
START, REFRESH = "account/login/start", "account/chatgptAuthTokens/refresh"
RETRIES = "request_max_retries = 0\nstream_max_retries = 0\n"
STATS = {"lifetime_tokens": 123, "daily_usage_buckets": [{"start_date": "d", "tokens": 1}]}
MESSAGE = {"message_id": "m", "message_type": "headline", "message_body": "B"}


class Play:
    """A server in its own process, its client and its services."""

    def __init__(self, home: Path, service: AccountService, client: Client) -> None:
        self.home = home
        self.service = service
        self.client = client

    async def ask(self, method: str, params: JsonValue = None) -> JsonValue:
        """Send a request; return its result, or its error without data."""
        try:
            return {"result": await self.client.request(method, params)}
        except Refused as refused:
            return {"error": {"code": refused.code, "message": refused.message}}

    async def notified(self, method: str) -> JsonValue:
        """Return the params of the next notification of a method."""
        return (await self.client.until(method))[-1]["params"]

    async def turn(self, answer: JsonValue = None) -> JsonValue:
        """Run a turn, and answer a request for new tokens; return what matters of both."""
        thread_id = await self.client.start(cwd=str(self.home))
        turn_id = await self.client.start_turn(thread_id)
        asked = None
        if answer is not None:
            request = (await self.client.until(REFRESH))[-1]
            asked = request["params"]
            await self.client.peer.send({"id": request["id"], **answer})
        turn = (await self.client.end_of(turn_id))[-1]["params"]["turn"]
        error = turn["error"] and {
            name: turn["error"][name] for name in ("message", "codexErrorInfo")
        }
        return {"status": turn["status"], "error": error, "asked": asked}


def store(home: Path, login: JsonValue) -> None:
    (home / "auth.json").write_text(json.dumps(login), "utf-8")


def stored(home: Path) -> JsonValue:
    return json.loads((home / "auth.json").read_text("utf-8"))


@asynccontextmanager
async def playing(executable: str, home: Path, service: AccountService) -> AsyncIterator[Play]:
    """Run a server in this home."""
    (home / "config.toml").write_text(service.config + RETRIES, "utf-8")
    environ = environment(home) | service.environ
    transport = spawn((executable, "app-server"), cwd=home, env=environ)
    try:
        async with asyncio.timeout(40):
            client = Client(Peer(transport))
            await client.initialize()
            yield Play(home, service, client)
    finally:
        await transport.close()


async def account_of(play: Play) -> JsonValue:
    """Return the account; only the reference asks which backend serves its workspace."""
    found = (await play.ask("account/read", {}))["result"]
    return {name: found[name] for name in ("account", "requiresOpenaiAuth")}


Scene = Callable[[Play, AccountService], Awaitable[JsonValue]]


async def uses_a_stored_login(play: Play, service: AccountService) -> JsonValue:
    service.answer(f"{WHAM}/profiles/me", document({"stats": STATS}))
    service.answer(f"{WHAM}/workspace-messages", document({"messages": [MESSAGE]}))
    consume = f"{WHAM}/rate-limit-reset-credits/consume"
    service.answer(consume, document({"code": "nothing_to_reset"}))
    nudge = f"{WHAM}/accounts/send_add_credits_nudge_email"
    service.answer(nudge, document({}), document({}, 429))
    facts = {
        "account": await account_of(play),
        "status": await play.ask("getAuthStatus", {"includeToken": True}),
        "limits": await play.ask("account/rateLimits/read", {}),
        "usage": await play.ask("account/usage/read", {}),
        "messages": await play.ask("account/workspaceMessages/read"),
        "consumed": await play.ask(
            "account/rateLimitResetCredit/consume", {"idempotencyKey": "k", "creditId": "c"}
        ),
        "sent": await play.ask("account/sendAddCreditsNudgeEmail", {"creditType": "credits"}),
        "recent": await play.ask("account/sendAddCreditsNudgeEmail", {"creditType": "usage_limit"}),
        "turn": await play.turn(),
        "logout": await play.ask("account/logout"),
        "updated": await play.notified("account/updated"),
        "after": await play.ask("account/read", {}),
    }
    paths = (consume, nudge, "/oauth/token", "/oauth/revoke")
    facts["sent to the services"] = {path: service.bodies(path) for path in paths}
    (request,) = service.of_path("/v1/responses")
    facts["headers"] = {
        name: request.headers.get(name) for name in ("authorization", "chatgpt-account-id")
    }
    facts["file"] = (play.home / "auth.json").exists()
    return facts


async def renews_a_rejected_token(play: Play, service: AccountService) -> JsonValue:
    service.valid.clear()
    first = await play.turn()
    file = stored(play.home)
    file["last_refresh"] = file["last_refresh"][:4]
    status = await play.ask("getAuthStatus", {"includeToken": True, "refreshToken": True})
    second = await play.turn()
    return {
        "turns": [first, second],
        "status": status,
        "file": file,
        "keys": list(file),
        "renewals": service.bodies("/oauth/token"),
        "bearers": bearers(service)[-2:],
    }


async def stops_when_the_issuer_refuses(play: Play, service: AccountService) -> JsonValue:
    service.valid.clear()
    service.answer("/oauth/token", document({"error": {"code": "refresh_token_reused"}}, 401))
    turns = [await play.turn(), await play.turn()]
    return {
        "turns": turns,
        "account": await play.ask("account/read", {"refreshToken": True}),
        "status": await play.ask("getAuthStatus", {"includeToken": True}),
        "renewals": len(service.bodies("/oauth/token")),
    }


async def reports_an_issuer_that_fails(play: Play, service: AccountService) -> JsonValue:
    service.valid.clear()
    service.answer("/oauth/token", document({"error": "boom"}, 500))
    return {"turn": await play.turn()}


async def uses_tokens_of_a_client(play: Play, service: AccountService) -> JsonValue:
    old, new = service.token("old"), service.issue()["access_token"]
    service.labels[old] = "<old>"
    login = {"type": "chatgptAuthTokens", "accessToken": old, "chatgptAccountId": "acc-1"}
    facts: dict[str, JsonValue] = {
        "login": await play.ask(START, login),
        "completed": await play.notified("account/login/completed"),
        "updated": await play.notified("account/updated"),
        "account": await account_of(play),
        "status": await play.ask("getAuthStatus", {"includeToken": True}),
        "key": await play.ask(START, {"type": "apiKey", "apiKey": "sk-1"}),
        "browser": await play.ask(START, {"type": "chatgpt"}),
        "code": await play.ask(START, {"type": "chatgptDeviceCode"}),
        "invalid": await play.ask(START, {**login, "accessToken": "x"}),
        "turn": await play.turn({"result": {"accessToken": new, "chatgptAccountId": "acc-1"}}),
        "file": (play.home / "auth.json").exists(),
        "logout": await play.ask("account/logout"),
        "after": await play.ask("getAuthStatus", {"includeToken": True}),
    }
    facts["bearers"] = bearers(service)[-1]
    return facts


async def refuses_without_a_login(play: Play, service: AccountService) -> JsonValue:
    asked = {
        "account/rateLimits/read": None,
        "account/usage/read": {},
        "account/workspaceMessages/read": None,
        "account/rateLimitResetCredit/consume": {"idempotencyKey": "k"},
        "account/sendAddCreditsNudgeEmail": {"creditType": "credits"},
        "account/read": {"refreshToken": True},
        "getAuthStatus": {"includeToken": True, "refreshToken": True},
        "account/logout": None,
        "account/login/cancel": {"loginId": "01a1e4cb-0cc5-7140-87a6-98b6fd11ad75"},
    }
    empty = {"idempotencyKey": ""}
    return {
        **{method: await play.ask(method, asked[method]) for method in asked},
        "an empty key": await play.ask("account/rateLimitResetCredit/consume", empty),
        "an invalid id": await play.ask("account/login/cancel", {"loginId": "x"}),
        "requests": len(service.of_path("/oauth/token")),
    }


WITHOUT_LOGIN = (uses_tokens_of_a_client, refuses_without_a_login)


@pytest.mark.parametrize(
    "scene",
    [
        uses_a_stored_login,
        renews_a_rejected_token,
        stops_when_the_issuer_refuses,
        reports_an_issuer_that_fails,
        uses_tokens_of_a_client,
        refuses_without_a_login,
    ],
)
async def test_both_programs_do_the_same(golden: Golden, scene: Scene) -> None:
    """Upstream: answers, notifications, requests to the services and the file."""
    with TemporaryDirectory(dir=folder_for_homes(), prefix="home-") as place:
        home = Path(place)
        async with account_service() as service:
            if scene not in WITHOUT_LOGIN:
                store(home, service.auth_json())
            async with playing(golden.program, home, service) as play:
                facts = await scene(play, service)
            text = json.dumps(facts)
            for token in sorted(service.labels, key=len, reverse=True):
                text = text.replace(token, service.labels[token])
    golden.check(scene.__name__.replace("_", " "), json.loads(text))


async def test_either_program_continues_the_login_of_the_other(reference: str) -> None:
    """A renewal by one replaces the refresh token that the other has read."""
    programs = (program("treadle"), reference, program("treadle"))
    with TemporaryDirectory(dir=folder_for_homes(), prefix="home-") as place:
        home = Path(place)
        async with account_service() as service:
            store(home, service.auth_json())
            seen: list[JsonValue] = []
            for executable in programs:
                service.valid.clear()
                async with playing(executable, home, service) as play:
                    turn = await play.turn()
                    seen.append((turn["status"], bearers(service)[-1]))
                    assert stored(home)["tokens"]["access_token"] == bearers(service)[-1]
            assert [status for status, _token in seen] == ["completed"] * 3
            assert len({token for _status, token in seen}) == 3
            assert len(service.bodies("/oauth/token")) == 3
