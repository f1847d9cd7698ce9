"""The login behind the tools of apps: renewal, logout, other accounts, and secrets."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.engine.apps.ground import (
    ASKS,
    CALENDAR,
    DEMO,
    ELICITATION,
    AppsGround,
    calls_app,
    items_of,
    outputs_of,
    spaces_of,
    statuses_of,
)
from tests.harness.apps_service import MCP, READS, TOOLS, tool
from tests.harness.model_server import Reply, says
from tests.harness.threads import Client
from treadle.protocol.base import JsonValue

GONE = "not signed in with the ChatGPT account of these apps"
START, REFRESH = "account/login/start", "account/chatgptAuthTokens/refresh"


def search(call_id: str = "call-1", *gates: asyncio.Event) -> Reply:
    """A reply that calls a tool that only reads, after the gates."""
    reply = calls_app(DEMO, "search", call_id=call_id)
    return Reply([reply.steps[0], *gates, *reply.steps[1:]])


async def run(ground: AppsGround, client: Client, thread: str) -> JsonValue:
    """Run a turn with one call; return its item."""
    ground.apps.replies.extend([search(), says("ok")])
    (item,) = items_of(await client.run(thread))
    return item


def bearers_of(ground: AppsGround, method: str) -> list[str]:
    """The tokens of requests for a method of the MCP server."""
    heads = ground.apps.heads_of(method)
    return [head["authorization"].removeprefix("Bearer ") for head in heads]


async def test_a_token_that_is_rejected_is_renewed_once_and_the_call_repeated(
    ground: AppsGround,
) -> None:
    """Ours: by the same renewal as for the model, so that a refresh token counts once."""
    client, thread = await ground.thread()
    await client.run(thread)
    first = ground.stored()["tokens"]["access_token"]
    ground.apps.rejected.add(first)
    item = await run(ground, client, thread)

    second = ground.stored()["tokens"]["access_token"]
    assert item["status"] == "completed"
    assert bearers_of(ground, "tools/call") == [first, second]
    assert len(ground.apps.bodies("/oauth/token")) == 1
    assert statuses_of(client)[-1] == ("codex_apps", "ready", None)


async def test_a_token_that_is_rejected_at_the_start_is_renewed(ground: AppsGround) -> None:
    first = ground.stored()["tokens"]["access_token"]
    ground.apps.rejected.add(first)
    client, thread = await ground.thread()
    item = await run(ground, client, thread)

    assert item["status"] == "completed"
    assert statuses_of(client) == [("codex_apps", "starting", None), ("codex_apps", "ready", None)]
    assert len(ground.apps.bodies("/oauth/token")) == 1


async def test_threads_renew_a_rejected_token_together(ground: AppsGround) -> None:
    """Ours: two calls with one rejected token are one renewal."""
    client, thread = await ground.thread()
    other = await client.start()
    await client.run(thread)
    await client.run(other)
    ground.apps.rejected.add(ground.stored()["tokens"]["access_token"])
    params = {"server": "codex_apps", "tool": "search", "arguments": {}}
    async with asyncio.TaskGroup() as tasks:
        sent = [
            tasks.create_task(
                (await ground.joined()).request("mcpServer/tool/call", {**params, "threadId": each})
            )
            for each in (thread, other)
        ]

    assert [task.result()["content"][0]["text"] for task in sent] == ["search {}", "search {}"]
    assert len(ground.apps.bodies("/oauth/token")) == 1


async def test_a_login_that_cannot_be_renewed_fails_the_call_and_not_the_turn(
    ground: AppsGround,
) -> None:
    client, thread = await ground.thread()
    await client.run(thread)
    gate = asyncio.Event()
    ground.apps.replies.extend([search("call-1", gate), says("ok")])
    turn = await client.start_turn(thread)
    await ground.apps.wait_for("/v1/responses", 2)
    ground.apps.rejected.add(ground.stored()["tokens"]["access_token"])
    ground.apps.refresh_tokens.clear()
    gate.set()
    messages = await client.end_of(turn)

    (item,) = items_of(messages)
    assert item["status"] == "failed"
    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_a_failed_start_is_repeated_after_the_next_login(ground: AppsGround) -> None:
    """Ours: with the same account too."""
    ground.apps.rejected.add(ground.stored()["tokens"]["access_token"])
    ground.apps.refresh_tokens.clear()
    client, thread = await ground.thread()
    await client.run(thread)
    tokens = ground.apps.issue()
    login = {"type": "chatgptAuthTokens", "accessToken": tokens["access_token"]}
    await client.request(START, {**login, "chatgptAccountId": ground.apps.account})
    item = await run(ground, client, thread)

    rejected = "The codex_apps MCP server rejected the ChatGPT login. Sign in to ChatGPT again."
    assert ("codex_apps", "failed", rejected) in statuses_of(client)
    assert item["status"] == "completed"


async def test_tokens_of_a_client_are_renewed_by_that_client(ground: AppsGround) -> None:
    """Upstream: the client owns them."""
    ground.file.unlink()
    client, thread = await ground.thread()
    first, second = (ground.apps.issue()["access_token"] for _ in range(2))
    account = ground.apps.account
    login = {"type": "chatgptAuthTokens", "accessToken": first, "chatgptAccountId": account}
    await client.request(START, login)
    await client.run(thread)
    ground.apps.rejected.add(first)
    ground.apps.replies.extend([search(), says("ok")])
    turn = await client.start_turn(thread)
    asked = (await client.until(REFRESH))[-1]
    tokens = {"accessToken": second, "chatgptAccountId": account, "chatgptPlanType": "pro"}
    await client.peer.send({"id": asked["id"], "result": tokens})
    (item,) = items_of(await client.end_of(turn))

    assert item["status"] == "completed"
    assert bearers_of(ground, "tools/call") == [first, second]


async def test_a_logout_removes_the_tools_from_loaded_threads(ground: AppsGround) -> None:
    client, thread = await ground.thread()
    await client.run(thread)
    await client.request("account/logout", None)
    before = len(ground.apps.of_path(MCP))
    await client.run(thread)
    listed = await client.request("mcpServerStatus/list", {"threadId": thread})

    assert [bool(spaces_of(each)) for each in ground.requests[:2]] == [True, False]
    assert listed["data"] == []
    assert len(ground.apps.of_path(MCP)) == before


async def test_a_logout_during_a_turn_stops_its_next_call(ground: AppsGround) -> None:
    """Ours: the call is not sent."""
    gate = asyncio.Event()
    ground.apps.replies.extend([search("call-1", gate), says("ok")])
    client, thread = await ground.thread()
    turn = await client.start_turn(thread)
    await ground.apps.wait_for("/v1/responses")
    await client.request("account/logout", None)
    gate.set()
    (item,) = items_of(await client.end_of(turn))

    assert item["error"]["message"].endswith(GONE)
    assert ground.apps.calls == []


async def test_another_account_has_its_own_tools_and_approvals(ground: AppsGround) -> None:
    """Ours: also if another program stored its login; nothing is sent with the wrong one."""
    client, thread = await ground.thread(**ASKS)
    create = calls_app(CALENDAR, "_create_event")
    ground.apps.replies.extend([create, says("ok"), create, says("ok")])
    await client.start_turn(thread)
    asked = (await client.until(ELICITATION))[-1]
    accepted = {"action": "accept", "_meta": {"persist": "session"}}
    await client.peer.send({"id": asked["id"], "result": accepted})
    await client.until("turn/completed")

    ground.apps.account = "acc-2"
    ground.apps.tools = [TOOLS[0], tool("look", "demo", annotations=READS)]
    ground.store(ground.apps.auth_json())
    await client.start_turn(thread)
    asked = (await client.until(ELICITATION))[-1]
    await client.peer.send({"id": asked["id"], "result": {"action": "decline"}})
    (item,) = items_of(await client.until("turn/completed"))

    assert item["status"] == "failed"
    assert spaces_of(ground.requests[-1]) == {CALENDAR: ["_create_event"], DEMO: ["look"]}
    heads = ground.apps.heads_of("tools/list")
    assert [head["chatgpt-account-id"] for head in heads] == ["acc-1", "acc-2"]


async def test_the_login_is_sent_only_over_connections_that_others_cannot_read(
    ground: AppsGround, caplog: pytest.LogCaptureFixture
) -> None:
    ground.configure_apps()
    path = ground.home / "config.toml"
    text = path.read_text("utf-8").replace(
        f'chatgpt_base_url = "{ground.apps.url}', 'chatgpt_base_url = "http://backend.example'
    )
    path.write_text(text, "utf-8")
    client = await ground.client()
    await client.run(await client.start())
    refused = await client.refusal("app/list", {})

    assert spaces_of(ground.requests[0]) == {}
    assert "backend.example is not confidential" in refused.message
    assert "no tools of apps" in caplog.text


async def test_a_redirect_of_the_service_does_not_get_the_login(ground: AppsGround) -> None:
    lines: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ps/mcp"
        redirect = Reply(status=307, body={}, headers={"location": address}, is_document=True)
        ground.apps.methods["tools/call"] = redirect
        client, thread = await ground.thread()
        item = await run(ground, client, thread)

    assert item["status"] == "failed"
    assert lines == []


async def test_no_secret_reaches_clients_the_model_logs_or_files(
    ground: AppsGround, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the service quotes the request in an error."""
    caplog.set_level(logging.DEBUG)
    secrets = list(ground.stored()["tokens"].values())[:3]

    def quote(_params: JsonValue) -> JsonValue:
        (*_, head) = ground.apps.heads_of("tools/call")
        text = f"bad request: {head['authorization']}"
        return {"isError": True, "content": [{"type": "text", "text": text}]}

    ground.apps.result = quote
    client, thread = await ground.thread()
    item = await run(ground, client, thread)
    ground.apps.rejected.add(secrets[1])
    await run(ground, client, thread)
    secrets += list(ground.stored()["tokens"].values())[:3]
    await client.request("mcpServerStatus/list", {"threadId": thread})

    assert "[redacted]" in item["result"]["content"][0]["text"]
    assert "[redacted]" in outputs_of(ground.requests[1])["call-1"]
    logged = "\n".join(str(record.__dict__) for record in caplog.records)
    files = [path for path in ground.home.rglob("*") if path.is_file() and path != ground.file]
    kept = b"\n".join(path.read_bytes() for path in files)
    assert len(set(secrets)) == 6
    for secret in secrets:
        assert secret not in logged
        assert secret.encode() not in kept
        assert secret not in str(client.received)
        assert secret not in str(ground.requests)


async def test_lists_of_apps_are_requested_again_with_a_renewed_token(ground: AppsGround) -> None:
    """Ours: one renewal for both sources of the list."""
    first = ground.stored()["tokens"]["access_token"]
    ground.apps.rejected.add(first)
    ground.configure_apps()
    client = await ground.client()
    listed = await client.request("app/list", {})
    installed = await client.request("app/installed", {"forceRefresh": True})

    assert sorted(app["id"] for app in listed["data"] if app["isAccessible"]) == ["calendar"]
    assert [(app["id"], app["callable"]) for app in installed["apps"]] == [
        ("calendar", True),
        ("demo", True),
    ]
    assert len(ground.apps.bodies("/oauth/token")) == 1
    assert first != ground.stored()["tokens"]["access_token"]


async def test_a_list_fails_if_the_login_cannot_be_renewed(ground: AppsGround) -> None:
    ground.apps.rejected.add(ground.stored()["tokens"]["access_token"])
    ground.apps.refresh_tokens.clear()
    ground.configure_apps()
    refused = await (await ground.client()).refusal("app/list", {})

    assert refused.kind == "appsUnavailable"
