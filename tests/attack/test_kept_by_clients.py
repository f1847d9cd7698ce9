"""What a client chooses freely and the server keeps is limited: ids, folders, logins, skills."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mcp import http_server, table
from tests.harness.model_server import calls, says
from tests.harness.threads import Stage
from treadle.engine.events.server_requests import ServerRequests
from treadle.engine.mcp.config import McpSource
from treadle.engine.mcp.servers import McpServers, temporary_servers
from treadle.engine.project import skills
from treadle.protocol.base import JsonValue
from treadle.server import mcp_logins
from treadle.server.client_commands import starting
from treadle.server.handlers import mcp, terminal
from treadle.server.query_limits import MAX_TERM_CHARACTERS
from treadle.server.session import MAX_FILE_REQUESTS, MAX_MCP_STARTS

SECONDS = 30
LONG = "x" * (MAX_TERM_CHARACTERS + 1)
LOGIN, COMPLETED = "mcpServer/oauth/login", "mcpServer/oauthLogin/completed"
TIMED_OUT = "timed out waiting for the sign-in"


@pytest.mark.parametrize(
    ("method", "field", "params"),
    [
        ("fs/watch", "watchId", {"path": "/"}),
        ("process/spawn", "processHandle", {"command": ["true"], "cwd": "/"}),
    ],
)
async def test_ids_that_are_kept_are_short(
    stage: Stage, method: str, field: str, params: JsonValue
) -> None:
    """256 ids could have 64 MB each."""
    client = await stage.client()
    refused = await client.refusal(method, {**params, field: LONG})
    assert refused.message == f"{field} must have at most 4096 characters, not 4097"
    assert (refused.kind, refused.data["path"]) == ("invalidParams", field)


async def test_a_client_has_a_limited_number_of_commands_in_threads(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a process and descriptors, which the commands of other clients then lack."""
    monkeypatch.setattr(terminal, "MAX_USER_COMMANDS", 2)
    client, other = await stage.client(), await stage.client()
    threads = [await client.start(), await client.start(), await other.start()]
    waiting: JsonValue = {"command": "exec sleep 600"}
    for thread_id in threads[:2]:
        await client.request("thread/shellCommand", {"threadId": thread_id, **waiting})
    refused = await client.refusal("thread/shellCommand", {"threadId": threads[0], **waiting})
    assert (refused.message, refused.kind) == (
        "a client may run 2 commands in threads",
        "unsupported",
    )
    await other.request("thread/shellCommand", {"threadId": threads[2], **waiting})

    await client.request("thread/archive", {"threadId": threads[0]})
    await client.request("thread/shellCommand", {"threadId": threads[1], **waiting})


async def test_clients_that_come_and_go_leave_no_threads(stage: Stage, tmp_path: Path) -> None:
    """Each had its own worker threads, which stayed for some seconds: hundreds of them."""
    first = await stage.client()
    await first.request("fs/getMetadata", {"path": str(tmp_path)})
    before = threading.active_count()
    for _ in range(50):
        client = await stage.client()
        await client.request("fs/getMetadata", {"path": str(tmp_path)})
        await client.peer.transport.close()
    assert threading.active_count() <= before + MAX_FILE_REQUESTS


async def test_samples_with_one_id_are_refused(stage: Stage) -> None:
    """They counted as one, so that 512 questions to the model could wait."""
    client = await stage.client()
    gate = asyncio.Event()
    stage.model.plays(says("ok"), says("late", None, (), gate, number=1))
    thread_id = await client.start()
    (ended,) = (await client.run(thread_id))[-1:]
    turn_id = ended["params"]["turn"]["id"]
    params = {"threadId": thread_id, "expectedTurnId": turn_id, "prompt": "?"}
    request = {"id": "same", "method": "thread/sample", "params": params}
    await client.peer.send(request, request)
    async with asyncio.timeout(SECONDS):
        refused = await client.peer.receive()
    message = "the id of the request is that of a sample which has not ended"
    assert (refused["id"], refused["error"]["message"]) == ("same", message)
    gate.set()


@pytest.mark.parametrize("method", ["process/spawn", "command/exec"])
async def test_a_command_that_no_system_can_start_is_refused_by_its_length(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The name of a program could have 60 MB, which were quoted and encoded on the event loop."""
    monkeypatch.setattr(starting, "MAX_CHARACTERS", 1000)
    client = await stage.client()
    handle = {"processHandle": "p", "cwd": "/"} if method == "process/spawn" else {}
    for much in ({"command": ["x" * 1001]}, {"command": ["true"], "env": {"A": "x" * 1000}}):
        refused = await client.refusal(method, {**handle, **much})
        assert refused.message.endswith("Argument list too long (os error 7)")


async def test_a_command_of_a_user_is_refused_by_its_length(stage: Stage) -> None:
    client = await stage.client()
    params = {"threadId": await client.start(), "command": "x" * (1024 * 1024 + 1)}
    refused = await client.refusal("thread/shellCommand", params)
    assert refused.message == "command must have at most 1048576 characters, not 1048577"


async def test_all_roots_of_a_request_for_skills_have_one_limit(stage: Stage) -> None:
    """100 entries for one folder had 10,000 roots, and the server kept those of 100 folders."""
    client = await stage.client()
    entry = {"cwd": "/a", "extraUserRoots": [f"/r{number}" for number in range(51)]}
    refused = await client.refusal(
        "skills/list", {"cwds": ["/a"], "perCwdExtraUserRoots": [entry, entry]}
    )
    message = "perCwdExtraUserRoots must have at most 100 folders, not 102"
    assert (refused.message, refused.kind) == (message, "invalidParams")


@pytest.mark.parametrize("limit", ["MAX_FOLDERS_OF_SCOPE", "MAX_ENTRIES_OF_SCOPE"])
async def test_all_extra_roots_have_one_limit(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Each turn of each thread searched 2,000 folders in each of 100 roots."""
    monkeypatch.setattr(skills, limit, 4)
    roots = [tmp_path / f"root{number}" for number in range(4)]
    for root in roots:
        folder = root / f"skill-{root.name}"
        folder.mkdir(parents=True)
        folder.joinpath("SKILL.md").write_text(f"---\nname: {root.name}\ndescription: d\n---\n")
    client = await stage.client()
    await client.request("skills/extraRoots/set", {"extraRoots": [*map(str, roots)]})
    (entry,) = (await client.request("skills/list", {"cwds": [str(stage.workspace)]}))["data"]
    assert [skill["name"] for skill in entry["skills"]] == ["root0", "root1"]


async def test_the_oldest_login_of_a_client_ends_when_it_starts_many(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each login keeps a port open as long as its client wishes, also after the client has left."""
    monkeypatch.setattr(mcp_logins, "MAX_LOGINS_OF_CLIENT", 2)
    async with http_server("oauth") as url:
        stage.configure(table("web", url=url))
        client, other = await stage.client(), await stage.client()
        params: JsonValue = {"name": "web", "timeoutSecs": 10**9}
        await other.request(LOGIN, params)
        first, *_ = [await client.request(LOGIN, params) for _ in range(3)]
        ended = (await client.until(COMPLETED))[-1]["params"]
    assert (ended["loginId"], ended["error"]) == (first["loginId"], TIMED_OUT)


async def test_the_oldest_login_ends_when_clients_start_many(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_logins, "MAX_LOGINS", 2)
    async with http_server("oauth") as url:
        stage.configure(table("web", url=url))
        params: JsonValue = {"name": "web", "timeoutSecs": 10**9}
        clients = [await stage.client() for _ in range(3)]
        first, *_ = [await client.request(LOGIN, params) for client in clients]
        ended = (await clients[-1].until(COMPLETED))[-1]["params"]
    assert (ended["loginId"], ended["error"]) == (first["loginId"], TIMED_OUT)


async def test_leaving_a_thread_costs_as_much_as_its_own_requests(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each thread all requests of the client were released: seconds for a hundred threads."""
    released: list[int] = []
    release = ServerRequests.release

    def counted(self: ServerRequests, request_id: int, holder: object) -> None:
        released.append(request_id)
        release(self, request_id, holder)

    client = await stage.client()
    threads = []
    for _ in range(3):
        stage.model.plays(calls("exec_command", {"cmd": "touch a"}))
        thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy="untrusted")
        await client.start_turn(thread_id)
        await client.until("item/commandExecution/requestApproval")
        threads.append(thread_id)
    monkeypatch.setattr(ServerRequests, "release", counted)
    await client.request("thread/unsubscribe", {"threadId": threads[0]})
    assert len(released) == 1


async def test_few_requests_of_a_client_start_all_mcp_servers_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 requests started as many processes of each server, until no descriptor was left."""
    begun, may_go_on = list[None](), asyncio.Event()

    @asynccontextmanager
    async def held(source: McpSource, **services: Any) -> AsyncIterator[McpServers]:  # noqa: ANN401
        begun.append(None)
        await may_go_on.wait()
        async with temporary_servers(source, **services) as servers:
            yield servers

    monkeypatch.setattr(mcp, "temporary_servers", held)
    client, other = await stage.client(), await stage.client()
    for each in (client, other):
        for number in range(5):
            request = {"id": f"s{number}", "method": "mcpServerStatus/list", "params": {}}
            await each.peer.send(request)
        for _ in range(5):
            await each.request("thread/loaded/list", {})
    assert len(begun) == 2 * MAX_MCP_STARTS
    may_go_on.set()
    while len(begun) < 10:
        await client.request("thread/loaded/list", {})


async def test_an_approved_action_must_fit_into_the_context(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client describes the action, and every later request to the model repeats it."""
    monkeypatch.setattr("treadle.engine.conversation.model_context.MAX_HISTORY_BYTES", 10_000)
    client = await stage.client()
    event = {"action": {"command": "x" * 10_000}, "status": "denied"}
    params = {"threadId": await client.start(), "event": event}
    refused = await client.refusal("thread/approveGuardianDeniedAction", params)

    assert (refused.kind, refused.data["path"]) == ("invalidParams", "event")


@pytest.mark.parametrize(
    ("field", "login"),
    [
        ("apiKey", {"type": "apiKey", "apiKey": "k" * 2_000_000}),
        (
            "chatgptAccountId",
            {"type": "chatgptAuthTokens", "accessToken": "a", "chatgptAccountId": "z" * 2000},
        ),
    ],
)
async def test_a_login_that_could_not_be_read_again_is_refused(
    stage: Stage, field: str, login: JsonValue
) -> None:
    """It would replace the login that works."""
    client = await stage.client()
    before = {"type": "apiKey", "apiKey": "sk-before"}
    await client.request("account/login/start", before)
    refused = await client.refusal("account/login/start", login)

    assert refused.data["path"] == field
    assert "sk-before" in (stage.home / "auth.json").read_text()
