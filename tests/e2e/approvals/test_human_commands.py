"""Commands that an administrator reserves for the approval of a person (`prompt-user`)."""

from __future__ import annotations

import pytest

from tests.harness.model_server import calls, says
from tests.harness.questions import answer, question
from tests.harness.threads import Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue

APPROVAL = "item/commandExecution/requestApproval"
RULES = """\
[[rules.prefix_rules]]
pattern = [{{ token = "touch" }}, {{ any_of = ["made", "other"] }}]
decision = "{}"
justification = "why"
"""
ONE_TIME = "managed command policy requires a one-time human approval"


def require(stage: Stage, decision: str = "prompt-user") -> None:
    """Set the administrator's rule."""
    stage.require(RULES.format(decision))


async def ask(stage: Stage, client: Client, *commands: str, **params: JsonValue) -> tuple[str, str]:
    """Start a turn whose model runs these commands; return the ids of the thread and the turn."""
    replies = [calls("exec_command", {"cmd": text}, f"c{at}") for at, text in enumerate(commands)]
    stage.model.plays(*replies, says("done"))
    settings = {"sandbox": "workspace-write", "approvalPolicy": "on-request", **params}
    thread_id = await client.start(cwd=str(stage.workspace), **settings)
    return thread_id, await client.start_turn(thread_id)


def output(stage: Stage, call_id: str = "c0") -> str:
    """What the model learned of a command."""
    return str(stage.model.requests[-1].outputs()[call_id])


async def test_a_person_approves_one_command_once(stage: Stage) -> None:
    """Upstream 0.169: no grant for the session, and the item starts only afterwards."""
    require(stage)
    client = await stage.client(requiredHumanApproval=True)
    thread_id, turn_id = await ask(stage, client, "touch made", "touch made")
    first = await question(client, APPROVAL)
    before = [line for line in outline(client.received[-1:]) if "commandExecution" in line]
    await answer(client, first, {"decision": "accept"})
    second = await question(client, APPROVAL)
    await answer(client, second, {"decision": "decline"})
    await client.end_of(turn_id)

    asked = dict(first["params"])
    assert {name: asked[name] for name in ("kind", "itemId", "threadId", "availableDecisions")} == {
        "kind": "humanCommand",
        "itemId": "c0",
        "threadId": thread_id,
        "availableDecisions": ["accept", "decline", "cancel"],
    }
    assert asked["reason"].endswith("requires human approval: why")
    assert asked["approvalId"] != second["params"]["approvalId"]
    assert before == [APPROVAL]
    assert (stage.workspace / "made").exists()
    assert "rejected by user" in output(stage, "c1")


@pytest.mark.parametrize(
    "decision",
    [
        "acceptForSession",
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}},
    ],
    ids=["session", "rule"],
)
async def test_more_than_one_time_is_a_denial(stage: Stage, decision: JsonValue) -> None:
    """Upstream 0.169."""
    require(stage)
    client = await stage.client(requiredHumanApproval=True)
    _, turn_id = await ask(stage, client, "touch made")
    await answer(client, await question(client, APPROVAL), {"decision": decision})
    await client.end_of(turn_id)

    assert ONE_TIME in output(stage)
    assert not (stage.workspace / "made").exists()
    assert not (stage.home / "rules" / "default.rules").exists()


async def test_a_person_can_cancel_the_turn(stage: Stage) -> None:
    require(stage)
    client = await stage.client(requiredHumanApproval=True)
    _, turn_id = await ask(stage, client, "touch made")
    await answer(client, await question(client, APPROVAL), {"decision": "cancel"})
    messages = await client.end_of(turn_id)

    assert outline(messages)[-1] == "turn/completed interrupted"


async def test_a_client_without_a_person_cannot_approve(stage: Stage) -> None:
    """Upstream 0.169: the request fails at once."""
    require(stage)
    client = await stage.client()
    _, turn_id = await ask(stage, client, "touch made")
    messages = await client.end_of(turn_id)

    assert params_of(messages, APPROVAL) == []
    assert "approval request failed" in output(stage)
    assert not (stage.workspace / "made").exists()


async def test_the_request_goes_to_the_clients_with_a_person_alone(stage: Stage) -> None:
    """Ours: another client of the thread neither receives nor refuses it."""
    require(stage)
    person, other = await stage.client(requiredHumanApproval=True), await stage.client()
    stage.model.plays(calls("exec_command", {"cmd": "touch made"}, "c0"), says("done"))
    settings = {"sandbox": "workspace-write", "approvalPolicy": "on-request"}
    thread_id = await other.start(cwd=str(stage.workspace), **settings)
    await person.request("thread/resume", {"threadId": thread_id})
    turn_id = await other.start_turn(thread_id)
    await answer(person, await question(person, APPROVAL), {"decision": "accept"})
    await other.end_of(turn_id)

    assert params_of(other.received, APPROVAL) == []
    assert (stage.workspace / "made").exists()


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"approvalPolicy": "never"}, "a rule requires approval"),
        ({"approvalsReviewer": "auto_review"}, "this thread uses automatic review"),
    ],
    ids=["never", "guardian"],
)
async def test_neither_policy_nor_reviewer_replaces_a_person(
    stage: Stage, params: JsonValue, reason: str
) -> None:
    """Upstream 0.169: the command is rejected."""
    require(stage)
    client = await stage.client(requiredHumanApproval=True)
    _, turn_id = await ask(stage, client, "touch made", **params)
    messages = await client.end_of(turn_id)

    assert reason in output(stage)
    assert params_of(messages, APPROVAL) == []
    assert not (stage.workspace / "made").exists()


async def test_a_deadline_does_not_approve_for_a_person(stage: Stage) -> None:
    """Ours: the configured answer on expiry is for other approvals."""
    require(stage)
    stage.configure('[asks]\ndeadline_ms = 300\ndecision = "accept"\n')
    client = await stage.client(requiredHumanApproval=True)
    _, turn_id = await ask(stage, client, "touch made")
    await client.end_of(turn_id)

    assert "rejected by user" in output(stage)
    assert not (stage.workspace / "made").exists()


async def test_a_request_outlives_the_server(stage: Stage) -> None:
    """Upstream 0.169: pending requests are sent again to clients that present them."""
    require(stage)
    client = await stage.client(requiredHumanApproval=True)
    thread_id, _ = await ask(stage, client, "touch made")
    await question(client, APPROVAL)
    await stage.restart()
    client = await stage.client(requiredHumanApproval=True)
    await client.request("thread/resume", {"threadId": thread_id})
    await answer(client, await question(client, APPROVAL), {"decision": "accept"})
    await client.until("turn/completed")

    assert (stage.workspace / "made").exists()


class TestManagedRules:
    @pytest.mark.parametrize(
        ("decision", "is_made"), [("allow", True), ("prompt", True), ("forbidden", False)]
    )
    async def test_rules_of_an_administrator_apply(
        self, stage: Stage, decision: str, *, is_made: bool
    ) -> None:
        """Upstream: `[rules] prefix_rules` in requirements.toml."""
        require(stage, decision)
        client = await stage.client()
        _, turn_id = await ask(stage, client, "touch made")
        if decision == "prompt":
            asked = await question(client, APPROVAL)
            assert asked["params"]["kind"] == "command"
            await answer(client, asked, {"decision": "accept"})
        await client.end_of(turn_id)

        assert (stage.workspace / "made").exists() == is_made

    async def test_a_user_s_rule_cannot_weaken_them(self, stage: Stage) -> None:
        require(stage, "forbidden")
        (stage.home / "rules").mkdir()
        rule = 'prefix_rule(pattern=["touch"], decision="allow")\n'
        (stage.home / "rules" / "default.rules").write_text(rule)
        client = await stage.client()
        _, turn_id = await ask(stage, client, "touch other; true")
        await client.end_of(turn_id)

        assert "rejected: why" in output(stage)
        assert not (stage.workspace / "other").exists()

    @pytest.mark.parametrize(
        ("rules", "message"),
        [
            ('[{ pattern = [{ token = "a" }], decision = "maybe" }]', "`maybe`"),
            ('[{ pattern = [], decision = "prompt" }]', "must not be empty"),
            ('[{ pattern = [{}], decision = "prompt" }]', "needs `token` or `any_of`"),
            ('[{ pattern = [{ any_of = [] }], decision = "prompt" }]', "needs `token` or"),
            ('[{ pattern = "a", decision = "prompt" }]', "expected `array`, got `str`"),
            ('[{ decision = "prompt" }]', "missing field `pattern`"),
            ('"all"', "expected `array`, got `str`"),
        ],
    )
    async def test_invalid_rules_stop_new_threads(
        self, stage: Stage, rules: str, message: str
    ) -> None:
        stage.require(f"[rules]\nprefix_rules = {rules}\n")
        client = await stage.client()
        refused = await client.refusal("thread/start", {})

        assert message in refused.message

    async def test_rules_that_become_invalid_stop_turns(self, stage: Stage) -> None:
        """Ours: what cannot be read might forbid a command."""
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        stage.require("[rules]\nprefix_rules = 3\n")
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        refused = await client.refusal("turn/start", params)

        assert "expected `array`, got `int` in requirements.toml" in refused.message
