"""What each feature flag switches, seen by the model and by clients."""

from __future__ import annotations

import pytest

from tests.harness.model_server import calls, says
from tests.harness.threads import Stage
from treadle.protocol.base import JsonValue


def offered(stage: Stage, at: int = -1) -> set[str]:
    """The names of the tools in a request to the model."""
    tools = stage.model.requests[at].body["tools"]
    return {tool.get("name", tool["type"]) for tool in tools}


async def tools_with(stage: Stage, features: str, **params: JsonValue) -> set[str]:
    """The tools that the model sees with these features."""
    stage.configure(f"[features]\n{features}\n")
    client = await stage.client()
    await client.run(await client.start(cwd=str(stage.workspace), **params))
    return offered(stage)


@pytest.mark.parametrize(
    ("feature", "tools"),
    [
        ("shell_tool", {"exec_command", "write_stdin"}),
        ("view_image", {"view_image"}),
        ("goals", {"get_goal", "create_goal", "update_goal"}),
        (
            "multi_agent",
            {"spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent"},
        ),
    ],
)
async def test_a_feature_that_is_off_takes_its_tools_away(
    stage: Stage, feature: str, tools: set[str]
) -> None:
    """Upstream."""
    usual = await tools_with(stage, "")
    limited = await tools_with(stage, f"{feature} = false")

    assert tools <= usual
    assert limited == usual - tools


async def test_a_pinned_feature_is_off_whatever_else_enables_it(stage: Stage) -> None:
    """Upstream: requirements win over the request, the command line and the file."""
    stage.require("[features]\nmulti_agent = false\n")
    stage.configure("[features]\nmulti_agent = true\n")
    stage.model.plays(calls("spawn_agent", {"message": "x"}, call_id="c1"), says("done"))
    client = await stage.client()
    config = {"features.multi_agent": True}
    await client.run(await client.start(cwd=str(stage.workspace), config=config))

    assert "spawn_agent" not in offered(stage)
    assert stage.model.requests[-1].outputs() == {"c1": "unsupported call: spawn_agent"}


async def test_without_the_shell_tool_no_command_runs(stage: Stage) -> None:
    stage.configure("[features]\nshell_tool = false\n")
    made = stage.workspace / "made"
    commands = [
        calls(name, {"cmd": f"touch {made}", "command": ["touch", str(made)]}, call_id=name)
        for name in ("exec_command", "shell", "shell_command")
    ]
    stage.model.plays(*commands, says("done"))
    client = await stage.client()
    writes = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
    await client.run(await client.start(cwd=str(stage.workspace), **writes))

    outputs = stage.model.requests[-1].outputs()
    assert outputs == {name: f"unsupported call: {name}" for name in outputs}
    assert (len(outputs), made.exists()) == (3, False)


async def test_terminals_can_be_switched_off(stage: Stage) -> None:
    stage.configure("[features]\nunified_exec_tty = false\n")
    stage.model.plays(calls("exec_command", {"cmd": "true", "tty": True}, call_id="c1"))
    client = await stage.client()
    await client.run(await client.start(cwd=str(stage.workspace)))

    (tool,) = [
        tool for tool in stage.model.requests[0].body["tools"] if tool.get("name") == "exec_command"
    ]
    assert "tty" not in tool["parameters"]["properties"]
    refusal = "terminals are disabled: run the command without `tty`"
    assert stage.model.requests[-1].outputs() == {"c1": refusal}


@pytest.mark.parametrize(
    ("feature", "access"), [("web_search_request", True), ("web_search_cached", False)]
)
async def test_older_flags_set_the_mode_of_web_searches(
    stage: Stage, feature: str, *, access: bool
) -> None:
    """Upstream 0.118."""
    stage.configure(f"[features]\n{feature} = true\n")
    client = await stage.client()
    params: JsonValue = {"sandbox": "danger-full-access"} if not access else {}
    await client.run(await client.start(cwd=str(stage.workspace), **params))

    tools = stage.model.requests[0].body["tools"]
    (search,) = [tool for tool in tools if tool["type"] == "web_search"]
    assert search["external_web_access"] is access


async def test_patches_of_unknown_models_can_be_free_text(stage: Stage) -> None:
    """Upstream 0.118."""
    await tools_with(stage, "apply_patch_freeform = true")
    types = {tool.get("name"): tool["type"] for tool in stage.model.requests[0].body["tools"]}
    assert types["apply_patch"] == "custom"


@pytest.mark.parametrize(("is_on", "tier"), [("true", "priority"), ("false", None)])
async def test_without_fast_mode_requests_have_the_usual_tier(
    stage: Stage, is_on: str, tier: str | None
) -> None:
    """Upstream."""
    await tools_with(stage, f"fast_mode = {is_on}", serviceTier="fast")
    assert stage.model.requests[0].body.get("service_tier") == tier


async def test_without_collaboration_modes_the_default_mode_applies(stage: Stage) -> None:
    stage.configure("[features]\ncollaboration_modes = false\n")
    client = await stage.client()
    mode = {"mode": "plan", "settings": {"model": "mock-model"}}
    modes = await client.request("collaborationMode/list", {})
    await client.run(await client.start(cwd=str(stage.workspace)), collaborationMode=mode)

    assert modes == {"data": []}
    shown = "".join(text for _, text in stage.model.requests[0].messages("developer"))
    assert "plan mode" not in shown


async def test_without_goals_their_methods_are_refused(stage: Stage) -> None:
    """Upstream: the same message."""
    stage.configure("[features]\ngoals = false\n")
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    about = {"threadId": thread_id}
    refused = [
        await client.refusal("thread/goal/set", {**about, "objective": "x"}),
        await client.refusal("thread/goal/get", about),
        await client.refusal("thread/goal/clear", about),
    ]

    assert {error.message for error in refused} == {"goals feature is disabled"}
    assert {error.kind for error in refused} == {"unsupported"}


async def test_without_the_guardian_the_user_is_asked(stage: Stage) -> None:
    """Upstream: `guardian_approval` gates the automatic reviewer."""
    stage.configure("[features]\nguardian_approval = false\n")
    asked = {"sandbox_permissions": "require_escalated", "justification": "x"}
    stage.model.plays(calls("exec_command", {"cmd": "touch x", **asked}, call_id="c1"))
    client = await stage.client()
    params = {"approvalPolicy": "on-request", "approvalsReviewer": "auto_review"}
    thread_id = await client.start(cwd=str(stage.workspace), **params)
    turn_id = await client.start_turn(thread_id)
    question = (await client.until("item/commandExecution/requestApproval"))[-1]
    await client.peer.send({"id": question["id"], "result": {"decision": "decline"}})
    messages = await client.end_of(turn_id)

    assert "item/autoApprovalReview/started" not in {each.get("method") for each in messages}
