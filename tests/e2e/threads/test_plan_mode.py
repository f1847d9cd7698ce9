"""Plan mode: the model explores, asks and proposes, and nothing is changed."""

from __future__ import annotations

import pytest

from tests.harness.model_server import calls, patches, says
from tests.harness.threads import Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue

MODEL = "gpt-5.5"
PLAN: JsonValue = {"mode": "plan", "settings": {"model": MODEL}}
DEFAULT: JsonValue = {"mode": "default", "settings": {"model": MODEL}}
WRITES: JsonValue = {"sandbox": "workspace-write", "approvalPolicy": "never", "model": MODEL}
ADDS = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch"
NO_PATCH = "apply_patch is not allowed in Plan mode: describe the change in the proposed plan"
ASK = "item/commandExecution/requestApproval"
HEREDOC = f"apply_patch <<'EOF'\n{ADDS}\nEOF"


async def planning(stage: Stage, **params: JsonValue) -> tuple[Client, str]:
    """A client and a thread whose next turns plan."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), **{**WRITES, **params})
    change = {"threadId": thread_id, "collaborationMode": PLAN}
    await client.request("thread/settings/update", change)
    return client, thread_id


async def test_patches_are_refused(stage: Stage) -> None:
    """Ours: upstream only instructs the model not to."""
    stage.model.plays(patches(ADDS, "c1"), calls("exec_command", {"cmd": HEREDOC}, "c2"), says("x"))
    client, thread_id = await planning(stage)
    messages = await client.run(thread_id)

    outputs = stage.model.requests[-1].outputs()
    assert outputs["c1"] == NO_PATCH
    assert NO_PATCH in str(outputs["c2"])
    assert not (stage.workspace / "new.txt").exists()
    assert "item/started fileChange" not in outline(messages)


@pytest.mark.parametrize("sandbox", ["workspace-write", "danger-full-access"])
async def test_commands_read_and_write_nothing(stage: Stage, sandbox: str) -> None:
    """Ours: the sandbox of a turn that plans is read-only."""
    (stage.workspace / "a.txt").write_text("content of a")
    commands = [
        calls("exec_command", {"cmd": text}, f"c{at}")
        for at, text in enumerate(["cat a.txt", "touch b.txt"])
    ]
    stage.model.plays(*commands, says("looked"))
    client, thread_id = await planning(stage, sandbox=sandbox)
    await client.run(thread_id)

    last = stage.model.requests[-1]
    assert "content of a" in str(last.outputs()["c0"])
    assert "Process exited with code 1" in str(last.outputs()["c1"])
    assert not (stage.workspace / "b.txt").exists()
    permissions = [text for _, text in last.messages("developer") if "<permissions" in text]
    assert "write none" in permissions[-1]


async def test_the_checklist_tool_is_refused(stage: Stage) -> None:
    """Upstream 0.118: the same message."""
    steps = {"plan": [{"step": "a", "status": "pending"}]}
    stage.model.plays(calls("update_plan", steps, "c1"), says("ok"))
    client, thread_id = await planning(stage)
    messages = await client.run(thread_id)

    refusal = "update_plan is a TODO/checklist tool and is not allowed in Plan mode"
    assert stage.model.requests[-1].outputs() == {"c1": refusal}
    assert params_of(messages, "turn/plan/updated") == []


async def test_a_session_grant_does_not_apply_to_planning(stage: Stage) -> None:
    """Ours: the user allowed writes for the work, not for the plan."""
    stage.configure("[features]\nrequest_permissions_tool = true\n")
    outside = stage.home.parent / "outside"
    outside.mkdir()
    wants = {"permissions": {"file_system": {"write": [str(outside)]}}, "reason": "x"}
    write = {"cmd": f"touch {outside}/made"}
    stage.model.plays(calls("request_permissions", wants, "c1"), says("granted"))
    client = await stage.client()
    params = {**WRITES, "approvalPolicy": "on-request"}
    thread_id = await client.start(cwd=str(stage.workspace), **params)
    turn_id = await client.start_turn(thread_id)
    asked = (await client.until("item/permissions/requestApproval"))[-1]
    answer = {"permissions": asked["params"]["permissions"], "scope": "session"}
    await client.peer.send({"id": asked["id"], "result": answer})
    await client.end_of(turn_id)
    stage.model.plays(calls("exec_command", write, "c2"), says("x"))
    await client.run(thread_id, collaborationMode=PLAN, approvalPolicy="never")
    was_made = (outside / "made").exists()
    stage.model.plays(calls("exec_command", write, "c3"), says("x"))
    await client.run(thread_id, collaborationMode=DEFAULT)

    assert (was_made, (outside / "made").exists()) == (False, True)


@pytest.mark.parametrize("policy", ["never", "on-request", "untrusted"])
@pytest.mark.parametrize("is_escalated", [False, True])
async def test_a_rule_does_not_apply_to_planning(
    stage: Stage, policy: str, is_escalated: bool
) -> None:
    """Ours: an `allow` rule is for the work too. What needs approval is asked for or refused."""
    (stage.home / "rules").mkdir()
    rule = 'prefix_rule(pattern=["touch"], decision="allow")\n'
    (stage.home / "rules" / "default.rules").write_text(rule)
    escalation = {"sandbox_permissions": "require_escalated"} if is_escalated else {}
    write = {"cmd": "touch made", "login": False, **escalation}
    stage.model.plays(calls("exec_command", write, "c1"), says("x"))
    client, thread_id = await planning(stage, approvalPolicy=policy)
    turn_id = await client.start_turn(thread_id)
    while (message := await client.peer.receive())["method"] != "turn/completed":
        if message["method"] == ASK:
            await client.peer.send({"id": message["id"], "result": {"decision": "decline"}})

    assert message["params"]["turn"]["id"] == turn_id
    assert not (stage.workspace / "made").exists()


async def test_an_approval_for_the_session_does_not_apply_to_planning(stage: Stage) -> None:
    write = {"cmd": "touch made", "login": False, "sandbox_permissions": "require_escalated"}
    client = await stage.client()
    params = {**WRITES, "approvalPolicy": "on-request"}
    thread_id = await client.start(cwd=str(stage.workspace), **params)
    asked = []
    for mode, decision in ((DEFAULT, "acceptForSession"), (PLAN, "decline")):
        (stage.workspace / "made").unlink(missing_ok=True)
        stage.model.plays(calls("exec_command", write, f"c-{decision}"), says("x"))
        turn_id = await client.start_turn(thread_id, collaborationMode=mode)
        asked.append((await client.until(ASK))[-1])
        await client.peer.send({"id": asked[-1]["id"], "result": {"decision": decision}})
        await client.end_of(turn_id)

    assert not (stage.workspace / "made").exists()


async def test_a_sub_agent_writes_nothing_while_its_parent_plans(stage: Stage) -> None:
    """Ours: otherwise a plan could be carried out by another agent."""
    made = stage.workspace / "made"
    stage.model.plays(
        calls("spawn_agent", {"message": "do it"}, "c1"),
        says("started"),
        calls("exec_command", {"cmd": f"touch {made}"}, "c2"),
        patches(ADDS, "c3"),
    )
    client, thread_id = await planning(stage)
    await client.run(thread_id)
    await client.until("turn/completed", lambda params: params["threadId"] != thread_id)

    assert not made.exists()
    assert not (stage.workspace / "new.txt").exists()


async def test_after_plan_mode_the_policy_of_the_thread_applies(stage: Stage) -> None:
    client, thread_id = await planning(stage)
    await client.run(thread_id)
    stage.model.plays(patches(ADDS), says("done"))
    messages = await client.run(thread_id, collaborationMode=DEFAULT)

    assert (stage.workspace / "new.txt").exists()
    assert "item/completed fileChange" in outline(messages)


async def test_clients_and_the_next_server_see_the_policy_of_the_thread(stage: Stage) -> None:
    client, thread_id = await planning(stage)
    await client.run(thread_id)
    await stage.restart()
    client = await stage.client()
    answer = await client.request("thread/resume", {"threadId": thread_id})

    assert answer["sandbox"]["type"] == "workspaceWrite"


async def test_the_modes_are_listed_without_their_instructions(stage: Stage) -> None:
    """Upstream."""
    client = await stage.client()
    answer = await client.request("collaborationMode/list", {})

    assert [(each["name"], each["mode"]) for each in answer["data"]] == [
        ("Plan", "plan"),
        ("Default", "default"),
    ]


class TestApprovedPlans:
    async def test_an_approved_plan_is_in_the_context_of_the_first_turn(self, stage: Stage) -> None:
        """Upstream 0.169: the answer is the message to send."""
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        params = {
            "threadId": thread_id,
            "markdown": "# Build it\n- one step",
            "attachmentPath": str(stage.workspace / "plan.md"),
        }
        answer = await client.request("thread/prepareApprovedPlan", params)
        await client.run(thread_id, answer["prompt"])

        assert answer == {"prompt": "Implement the plan."}
        request = stage.model.requests[0]
        plans = [text for _, text in request.messages("developer") if "<approved_plan>" in text]
        assert len(plans) == 1
        assert "# Build it\n- one step" in plans[0]
        assert request.conversation()[-1] == ("user", "Implement the plan.")

    async def test_it_survives_the_server(self, stage: Stage) -> None:
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await client.run(thread_id)
        params = {"threadId": thread_id, "markdown": "# Build it"}
        await client.request("thread/prepareApprovedPlan", params)
        await stage.restart()
        client = await stage.client()
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)

        assert "# Build it" in str(stage.model.requests[-1].body["input"])

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"markdown": " \n"}, "the approved plan is empty"),
            ({"markdown": "x" * 1_048_577}, "markdown must have at most 1048576 characters"),
            ({}, "missing field `markdown`"),
            ({"markdown": 5}, "`markdown`"),
            (
                {"markdown": "x", "attachmentPath": "plan.md"},
                "attachmentPath must be an absolute path on the server",
            ),
            ({"markdown": "x", "threadId": "nope"}, "'nope' is not a UUID"),
            ({"markdown": "x", "threadId": "00000000-0000-7000-8000-000000000000"}, "not found"),
        ],
        ids=["blank", "long", "missing", "type", "relative", "id", "thread"],
    )
    async def test_a_request_that_cannot_be_met_changes_nothing(
        self, stage: Stage, params: JsonValue, message: str
    ) -> None:
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        asked = {"threadId": thread_id, **params}
        refused = await client.refusal("thread/prepareApprovedPlan", asked)
        await client.run(thread_id)

        assert message in refused.message
        assert "approved_plan" not in str(stage.model.requests[-1].body["input"])
