"""Decisions of users about commands, and the rules files that come before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.commands import Bench, bench, commands
from tests.harness.questions import answer, question
from tests.harness.threads import outline, params_of
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"
POLICY: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "read-only"}
UNTRUSTED: dict[str, JsonValue] = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}


def escalated(command: str) -> JsonValue:
    """A command that the model wants to run outside the sandbox."""
    return {"cmd": command, "login": False, "sandbox_permissions": "require_escalated"}


def plain(command: str) -> JsonValue:
    """A command as models usually request one."""
    return {"cmd": command, "login": False}


async def run_with_decision(
    on: Bench, arguments: JsonValue, decision: JsonValue
) -> list[JsonValue]:
    """Let the user decide about a command; return the messages from the server request on."""
    turn_id = await on.start_call("exec_command", arguments)
    asked = await question(on.client, ASK)
    await answer(on.client, asked, {"decision": decision})
    return [asked, *await on.client.end_of(turn_id)]


async def test_an_amendment_is_stored_as_a_rule(home: Path) -> None:
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
    async with bench(home, **POLICY) as on:
        await run_with_decision(on, escalated("touch a"), amendment)
        messages, _ = await on.call("exec_command", plain("touch b"))
        other = await on.client.start(cwd=str(on.stage.workspace), **POLICY)
        on.thread_id = other
        again, _ = await on.call("exec_command", plain("touch c"))
        workspace = on.stage.workspace

    assert ASK not in outline(messages) + outline(again)
    assert all((workspace / name).exists() for name in "abc")
    assert (home / "rules" / "default.rules").read_text() == (
        'prefix_rule(pattern=["touch"], decision="allow")\n'
    )


async def test_a_rule_counts_under_every_policy(home: Path) -> None:
    """Release 0.118.0 too runs what a rule allows outside the sandbox, and asks nothing."""
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
    async with bench(home, approvalPolicy="untrusted", sandbox="read-only") as on:
        turn_id = await on.start_call("exec_command", plain("touch a"))
        await answer(on.client, await question(on.client, ASK), {"decision": amendment})
        retry = await question(on.client, ASK)
        await answer(on.client, retry, {"decision": "decline"})
        await on.client.end_of(turn_id)
        messages, _ = await on.call("exec_command", plain("touch b"), "call-2")
        workspace = on.stage.workspace

    assert ASK not in outline(messages)
    assert [item["status"] for item in commands(messages)] == ["completed"]
    assert (workspace / "b").exists()


@pytest.mark.parametrize(
    "decision",
    [
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": []}},
        {
            "applyNetworkPolicyAmendment": {
                "network_policy_amendment": {"action": "allow", "host": "no host/at all"}
            }
        },
    ],
)
async def test_an_invalid_amendment_is_treated_as_an_invalid_answer(
    home: Path, decision: JsonValue
) -> None:
    async with bench(home, **POLICY) as on:
        messages = await run_with_decision(on, escalated("touch a"), decision)
        output = on.output()
        workspace = on.stage.workspace

    assert [item["status"] for item in commands(messages)] == ["failed"]
    assert "approval request failed" in output
    assert outline(messages)[-1] == "turn/completed completed"
    assert not (workspace / "a").exists()
    assert not (home / "rules" / "default.rules").exists()


async def test_an_amendment_that_cannot_be_stored_applies_to_this_command(home: Path) -> None:
    (home / "rules").write_text("in the way")
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
    async with bench(home, **POLICY) as on:
        messages = await run_with_decision(on, escalated("touch a"), amendment)
        workspace = on.stage.workspace

    assert [item["status"] for item in commands(messages)] == ["completed"]
    (warning,) = params_of(messages, "warning")
    assert warning["message"].startswith("failed to store the rule: ")
    assert (workspace / "a").exists()


@pytest.mark.parametrize(("action", "status"), [("allow", "completed"), ("deny", "declined")])
async def test_a_host_rule_is_stored_and_a_denied_host_declines_the_command(
    home: Path, action: str, status: str
) -> None:
    amendment = {"action": action, "host": "Example.org"}
    decision = {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment}}
    async with bench(home, **POLICY) as on:
        messages = await run_with_decision(on, escalated("touch a"), decision)

    assert [item["status"] for item in commands(messages)] == [status]
    assert (home / "rules" / "default.rules").read_text() == (
        f'network_rule(host="example.org", protocol="https", decision="{action}", '
        f'justification="{action.title()} https_connect access to example.org")\n'
    )


async def test_a_session_approval_covers_only_the_same_command(home: Path) -> None:
    async with bench(home, **UNTRUSTED) as on:
        await run_with_decision(on, plain("touch a"), "acceptForSession")
        same, _ = await on.call("exec_command", plain("touch a"))
        assert ASK not in outline(same)
        (on.stage.workspace / "sub").mkdir()
        others = {"workdir": "sub"}, {"tty": True}
        for arguments in (plain("touch b"), *(plain("touch a") | other for other in others)):
            messages = await run_with_decision(on, arguments, "decline")
            assert [item["status"] for item in commands(messages)] == ["declined"]


@pytest.mark.parametrize(("trust", "is_heeded"), [("trusted", True), ("untrusted", False)])
async def test_rules_of_a_project_apply_if_it_is_trusted(
    home: Path, trust: str, is_heeded: bool
) -> None:
    workspace = home.parent / "workspace"
    more = f'[projects."{workspace}"]\ntrust_level = "{trust}"'
    async with bench(home, more, **POLICY) as on:
        rules = workspace / ".codex" / "rules"
        rules.mkdir(parents=True)
        text = 'prefix_rule(pattern=["echo"], decision="forbidden", justification="quiet, please")'
        (rules / "project.rules").write_text(text)
        messages, output = await on.call("exec_command", plain("echo hello"))

    assert [item["status"] for item in commands(messages)] == [
        "declined" if is_heeded else "completed"
    ]
    assert ("quiet, please" in output) is is_heeded


async def test_a_broken_rules_file_is_reported_once_and_the_others_apply(home: Path) -> None:
    (home / "rules").mkdir()
    (home / "rules" / "a.rules").write_text(
        'prefix_rule(pattern=["date"], decision="forbidden")\nprefix_rule(pattern=)\n'
    )
    (home / "rules" / "b.rules").write_text(
        'prefix_rule(pattern=["uname"], decision="forbidden")\n'
    )
    async with bench(home, **POLICY) as on:
        first, _ = await on.call("exec_command", plain("uname"))
        second, _ = await on.call("exec_command", plain("echo hi"))
        settled = await on.client.settled()

    assert [item["status"] for item in commands(first)] == ["declined"]
    warnings = [params["message"] for params in params_of([*first, *second, *settled], "warning")]
    assert len([text for text in warnings if "a.rules" in text]) == 1
