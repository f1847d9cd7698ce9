"""Hosts that commands connect to: requested as in the reference, remembered, denied."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.commands import Bench, bench, commands
from tests.harness.questions import answer, question, refuse
from tests.harness.sandbox import SANDBOX
from tests.harness.scripted import client_of, playing
from tests.harness.threads import outline, params_of, staged
from tests.sandbox.network.commands import FETCH, website
from treadle.config.configuration import Configuration
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, calls
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

ASK = "item/commandExecution/requestApproval"
DELTA = "item/commandExecution/outputDelta"
HOST, ALLOWED, DENIED = "127.0.0.2", "127.0.0.3", "127.0.0.4"
MANAGED = f"""
[sandbox_workspace_write]
network_access = true
[features.network_proxy]
enabled = true
allow_local_binding = true
[features.network_proxy.domains]
"{ALLOWED}" = "allow"
"{DENIED}" = "deny"
"""

TWICE = """
import _socket, sys
lines = [_socket.socket() for _each in range(2)]
for line in lines:
    line.connect(("127.0.0.1", 3128))
    line.send(f"GET http://{sys.argv[1]}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
print("asked twice", flush=True)
print([line.recv(15) for line in lines])
"""


@asynccontextmanager
async def managed(
    home: Path, more: str = MANAGED, policy: JsonValue = "on-request"
) -> AsyncIterator[Bench]:
    """A thread whose commands have a managed network."""
    async with bench(home, more, approvalPolicy=policy, sandbox="workspace-write") as on:
        yield on


def fetching(*urls: str, then: str = "") -> JsonValue:
    """A command that fetches pages, and then does something else."""
    script = shlex.join(["python3", "-c", FETCH, *urls])
    return {"cmd": f"{script}{then}", "login": False}


def verdict(outcome: str) -> str:
    """The answer of a reviewer."""
    about = {"risk_level": "low", "risk_score": 7, "user_authorization": "high"}
    return json.dumps({**about, "rationale": "because", "outcome": outcome})


def open_journal(path: str) -> str:
    """The stored journal of a thread."""
    return Path(path).read_text("utf-8")


def amendment(action: str, host: str = HOST) -> JsonValue:
    """A rule about a host, as clients send it."""
    rule = {"action": action, "host": host}
    return {"applyNetworkPolicyAmendment": {"network_policy_amendment": rule}}


async def run_with_decision(
    on: Bench, arguments: JsonValue, decision: JsonValue, call_id: str = "call-1"
) -> list[JsonValue]:
    """Let the user decide about a host; return the messages from the server request on."""
    turn_id = await on.start_call("exec_command", arguments, call_id)
    asked = await question(on.client, ASK)
    await answer(on.client, asked, {"decision": decision})
    return [asked, *await on.client.end_of(turn_id)]


async def test_a_host_request_has_the_same_text_as_in_the_reference(home: Path) -> None:
    async with website(HOST) as (port, _heads), managed(home) as on:
        messages = await run_with_decision(on, fetching(f"http://{HOST}:{port}/"), "accept")
        output = on.output()

    params = dict(messages[0]["params"])
    item_id, allow = params.pop("itemId"), {"host": HOST, "action": "allow"}
    assert item_id.startswith(f"network#local#http#{HOST}#{port}#")
    del params["startedAtMs"]
    assert params == {
        "threadId": on.thread_id,
        "turnId": messages[-1]["params"]["turn"]["id"],
        "kind": "command",
        "environmentId": "local",
        "reason": f"{HOST} is not in the allowed_domains",
        "networkApprovalContext": {"host": HOST, "protocol": "http"},
        "proposedNetworkPolicyAmendments": [allow, {"host": HOST, "action": "deny"}],
        "availableDecisions": [
            "accept",
            "acceptForSession",
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": allow}},
            "cancel",
        ],
    }
    assert "serverRequest/resolved" in outline(messages)
    assert [item["status"] for item in commands(messages)] == ["completed"]
    assert output.endswith("Output:\n200 hello\n")


async def test_an_acceptance_counts_for_one_connection(home: Path) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        url = f"http://{HOST}:{port}/"
        turn_id = await on.start_call("exec_command", fetching(url, url))
        for _time in range(2):
            await answer(on.client, await question(on.client, ASK), {"decision": "accept"})
        await on.client.end_of(turn_id)

    assert len(heads) == 2


async def test_a_session_approval_covers_the_port_and_the_protocol(home: Path) -> None:
    async with (
        website(HOST) as (port, heads),
        website(HOST) as (other, _heads),
        managed(home) as on,
    ):
        url = f"http://{HOST}:{port}/"
        await run_with_decision(on, fetching(url, url), "acceptForSession")
        messages, _ = await on.call("exec_command", fetching(url), "call-2")
        third = await run_with_decision(on, fetching(f"http://{HOST}:{other}/"), "accept", "call-3")

    assert ASK not in outline(messages)
    assert len(heads) == 3
    assert third[0]["params"]["networkApprovalContext"] == {"host": HOST, "protocol": "http"}
    assert not (home / "rules").exists()


async def test_a_rule_that_allows_a_host_is_stored_and_applies_at_once(home: Path) -> None:
    """Upstream: it applies to every protocol and port, and the model is informed."""
    async with (
        website(HOST) as (port, heads),
        website(HOST) as (other, _heads),
        managed(home) as on,
    ):
        urls = [f"http://{HOST}:{port}/", f"http://{HOST}:{other}/"]
        messages = await run_with_decision(on, fetching(*urls), amendment("allow"))
        said = on.stage.model.requests[-1].body["input"]
        new = await on.client.start(cwd=str(on.stage.workspace), sandbox="workspace-write")
        on.thread_id = new
        again, _ = await on.call("exec_command", fetching(urls[0]), "call-2")

    assert outline([*messages, *again]).count(ASK) == 1
    assert len(heads) == 2
    assert (home / "rules" / "default.rules").read_text() == (
        f'network_rule(host="{HOST}", protocol="http", decision="allow", '
        f'justification="Allow http access to {HOST}")\n'
    )
    texts = [part["text"] for item in said for part in item.get("content", [])]
    assert any(
        text == f"The user permanently allowed {HOST} with a network rule." for text in texts
    )


async def test_a_rule_that_denies_a_host_ends_the_command_and_needs_no_further_decision(
    home: Path,
) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        url = f"http://{HOST}:{port}/"
        messages = await run_with_decision(on, fetching(url, then="; echo late"), amendment("deny"))
        first = on.output()
        again, second = await on.call("exec_command", fetching(url), "call-2")

    (item,) = commands(messages)
    assert (item["status"], item["exitCode"]) == ("failed", -1)
    assert item["aggregatedOutput"] == "rejected by user\n"
    assert first == 'exec_command failed: ProcessFailed { message: "rejected by user" }'
    assert ASK not in outline(again)
    assert "403 blocked-by-denylist" in second
    assert heads == []
    assert 'decision="deny"' in (home / "rules" / "default.rules").read_text()


@pytest.mark.parametrize("is_error", [False, True], ids=["decline", "an error"])
async def test_a_denial_ends_the_command(home: Path, is_error: bool) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        url = f"http://{HOST}:{port}/"
        turn_id = await on.start_call("exec_command", fetching(url, then="; echo late"))
        asked = await question(on.client, ASK)
        if is_error:
            await refuse(on.client, asked)
        else:
            await answer(on.client, asked, {"decision": "decline"})
        messages = await on.client.end_of(turn_id)

    (item,) = commands(messages)
    assert (item["status"], item["exitCode"]) == ("failed", -1)
    assert outline(messages)[-1] == "turn/completed completed"
    assert heads == []


async def test_a_cancel_ends_the_turn(home: Path) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        messages = await run_with_decision(on, fetching(f"http://{HOST}:{port}/"), "cancel")

    assert outline(messages)[-1] == "turn/completed interrupted"
    assert [item["status"] for item in commands(messages)] == ["failed"]
    assert heads == []


async def test_an_amendment_about_another_host_is_a_denial(home: Path) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        decision = amendment("allow", "example.org")
        messages = await run_with_decision(on, fetching(f"http://{HOST}:{port}/"), decision)

    assert [item["status"] for item in commands(messages)] == ["failed"]
    assert (heads, (home / "rules").exists()) == ([], False)


async def test_connections_to_one_host_share_one_server_request(home: Path) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        arguments = {"cmd": shlex.join(["python3", "-c", TWICE, f"{HOST}:{port}"]), "login": False}
        turn_id = await on.start_call("exec_command", arguments)
        before = await on.client.until(ASK)
        if DELTA not in outline(before):
            await on.client.until(DELTA)
        await on.client.request("thread/loaded/list", {})
        await answer(on.client, before[-1], {"decision": "accept"})
        messages = await on.client.end_of(turn_id)

    assert ASK not in outline(messages)
    assert len(heads) == 2


async def test_listed_hosts_need_no_approval(home: Path) -> None:
    async with (
        website(ALLOWED) as (allowed, _heads),
        website(DENIED) as (denied, heads),
        managed(home) as on,
    ):
        urls = [f"http://{ALLOWED}:{allowed}/", f"http://{DENIED}:{denied}/"]
        messages, output = await on.call("exec_command", fetching(*urls, then="; echo after"))

    assert ASK not in outline(messages)
    assert "200 hello\n403 blocked-by-denylist" in output
    # Ours: the reference ends the command here.
    assert output.endswith(
        f'after\nNetwork access to "{DENIED}" was blocked: the host is denied by policy and '
        "cannot be approved.\n"
    )
    assert heads == []


async def test_a_host_is_denied_with_the_reason_where_approvals_are_disabled(home: Path) -> None:
    async with website(HOST) as (port, heads), managed(home, policy="never") as on:
        messages, output = await on.call("exec_command", fetching(f"http://{HOST}:{port}/"))

    assert ASK not in outline(messages)
    assert "403 blocked-by-allowlist" in output
    assert "was blocked: the host is not on the allow list." in output
    assert heads == []


async def test_an_interrupt_withdraws_the_server_request(home: Path) -> None:
    async with website(HOST) as (port, heads), managed(home) as on:
        turn_id = await on.start_call("exec_command", fetching(f"http://{HOST}:{port}/"))
        asked = await question(on.client, ASK)
        params = {"threadId": on.thread_id, "turnId": turn_id}
        await on.client.request("turn/interrupt", params)
        messages = await on.client.until("serverRequest/resolved")

    assert messages[-1]["params"]["requestId"] == asked["id"]
    assert "turn/completed interrupted" in outline(messages)
    assert heads == []


async def test_without_the_feature_network_access_is_the_whole_network(home: Path) -> None:
    more = "[sandbox_workspace_write]\nnetwork_access = true\n"
    async with website(HOST) as (port, _heads), managed(home, more) as on:
        messages, output = await on.call("exec_command", fetching(f"http://{HOST}:{port}/"))

    assert ASK not in outline(messages)
    assert output.endswith("Output:\n200 hello\n")


async def test_with_the_feature_no_network_access_is_still_none(home: Path) -> None:
    """Upstream."""
    more = MANAGED.replace("network_access = true", "network_access = false")
    async with website(ALLOWED) as (port, heads), managed(home, more) as on:
        messages, output = await on.call("exec_command", fetching(f"http://{ALLOWED}:{port}/"))

    assert ASK not in outline(messages)
    assert "failed" in output
    assert heads == []


async def test_an_administrators_network_is_there_for_commands_that_would_have_none(
    home: Path,
) -> None:
    """Upstream: also under a policy that only reads."""
    system = home.parent / "system"
    system.mkdir()
    (system / "requirements.toml").write_text(
        "[experimental_network]\nallow_local_binding = true\n"
    )
    async with website(HOST) as (port, _heads), staged(home) as stage:
        await stage.close()
        stage.server = Server(sandbox=SANDBOX, configuration=Configuration(home, system=system))
        client = await stage.client()
        params = {"approvalPolicy": "on-request", "sandbox": "read-only"}
        thread_id = await client.start(cwd=str(stage.workspace), **params)
        on = Bench(stage, client, thread_id)
        messages = await run_with_decision(on, fetching(f"http://{HOST}:{port}/"), "accept")
        output = on.output()

    assert [item["status"] for item in commands(messages)] == ["completed"]
    assert output.endswith("Output:\n200 hello\n")


@pytest.mark.parametrize(
    ("outcome", "status", "seen"), [("allow", "completed", 1), ("deny", "failed", 0)]
)
async def test_the_automatic_reviewer_decides_about_hosts_too(
    home: Path, outcome: str, status: str, seen: int
) -> None:
    async with website(HOST) as (port, heads):
        arguments = fetching(f"http://{HOST}:{port}/")

        def play(request: ModelRequest) -> Response:
            if request.subagent == "guardian":
                return verdict(outcome)
            if any("output" in item for item in request.input):
                return "done"
            return calls("exec_command", arguments, call_id="c1")

        (home / "config.toml").write_text(MANAGED)
        async with playing(home, ScriptedModel(play)) as server, client_of(server) as client:
            thread_id = await client.start(
                cwd=str(home.parent),
                sandbox="workspace-write",
                approvalPolicy="on-request",
                approvalsReviewer="auto_review",
            )
            messages = await client.run(thread_id)

    (reviewed,) = params_of(messages, "item/autoApprovalReview/started")
    assert reviewed["action"] == {
        "type": "networkAccess",
        "host": HOST,
        "port": port,
        "protocol": "http",
        "target": f"http://{HOST}:{port}",
    }
    assert ASK not in outline(messages)
    assert [item["status"] for item in commands(messages)] == [status]
    assert len(heads) == seen


async def test_the_model_is_informed_that_hosts_are_restricted(home: Path) -> None:
    async with managed(home) as on:
        await on.call("exec_command", {"cmd": "true", "login": False})
        first = on.stage.model.requests[0].body["input"]
        on.stage.configure(MANAGED.replace("enabled = true", "enabled = false"))
        on.thread_id = await on.client.start(cwd=str(on.stage.workspace), sandbox="workspace-write")
        await on.call("exec_command", {"cmd": "true", "login": False}, "call-2")
        second = on.stage.model.requests[-1].body["input"]

    assert ["through a proxy" in str(said) for said in (first, second)] == [True, False]


async def test_each_connection_is_recorded_in_the_journal(home: Path) -> None:
    async with website(ALLOWED) as (port, _heads), managed(home) as on:
        url = f"http://{ALLOWED}:{port}/"
        messages, _ = await on.call("exec_command", fetching(url, url))
        thread = await on.client.read(on.thread_id)
        journal = open_journal(thread["path"])
        lines = [line for line in journal.splitlines() if "connect to" in line]

    assert params_of(messages, ASK) == []
    assert len(lines) == 1
    assert f"connect to http://{ALLOWED}:{port}" in lines[0]
