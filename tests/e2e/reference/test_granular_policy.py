"""The switches of a granular approval policy, side by side with the reference server.

Each switch is on and off in turn. Without its switch an action is refused, and the model receives
the refusal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness.commands import commands
from tests.harness.golden import Golden
from tests.harness.mcp import STATUS, namespaced, settled, stdio
from tests.harness.model_server import Reply, calls, patches, says
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import Stage
from treadle.protocol.base import JsonValue

Steps = Callable[[Scene], Awaitable[None]]

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
ELICITATION = "mcpServer/elicitation/request"
SWITCHES = (
    "sandbox_approval",
    "rules",
    "skill_approval",
    "request_permissions",
    "mcp_elicitations",
)
RULES = """\
prefix_rule(pattern=["echo", "asked"], decision="prompt", justification="let me look")
prefix_rule(pattern=["echo", "never"], decision="forbidden", justification="not this")
prefix_rule(pattern=["echo", "curt"], decision="prompt")
prefix_rule(pattern=["echo", "stop"], decision="forbidden")
"""


def policy(*on: str) -> JsonValue:
    """A granular policy with these switches on and all others off."""
    return {"granular": {name: name in on for name in SWITCHES}}


def command(text: str, **more: JsonValue) -> Reply:
    """A command of the model's."""
    return calls("exec_command", {"cmd": text, **more})


ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "need it"}
WIDER = {
    "sandbox_permissions": "with_additional_permissions",
    "additional_permissions": {"network": {"enabled": True}},
    "justification": "need it",
}
ACCEPT: JsonValue = {"decision": "accept"}


def turns(*moves: tuple[Reply, str | None, JsonValue], on: tuple[str, ...]) -> Steps:
    """Steps: one turn per move, each with the question it is to raise, if any, and the answer."""

    async def steps(scene: Scene) -> None:
        client = scene.client
        thread_id = await client.start(
            cwd=scene.cwd, sandbox="read-only", approvalPolicy=policy(*on), model="gpt-5.5"
        )
        for move, method, result in moves:
            scene.model.plays(move, says("ok"))
            turn_id = await client.start_turn(thread_id, "go")
            if method is not None:
                question = (await client.until(method))[-1]
                await client.peer.send({"id": question["id"], "result": result})
            await client.end_of(turn_id)

    return steps


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+text\n*** End Patch"
NETWORK: JsonValue = {"network": {"enabled": True}}
WISH = calls("request_permissions", {"reason": "need it", "permissions": NETWORK})
FORM: JsonValue = {"action": "accept", "content": {"name": "Bob"}}


def tool(name: str, result: JsonValue, *, on: tuple[str, ...]) -> Scenario:
    """One call of an MCP tool that asks the user, or is asked about; no result, no question."""

    async def steps(scene: Scene) -> None:
        client = scene.client
        params = {"cwd": scene.cwd, "approvalPolicy": policy(*on)}
        thread_id = (await client.request("thread/start", params))["thread"]["id"]
        await settled(client, "mini")
        scene.model.plays(namespaced(name), says("ok"))
        turn_id = await client.start_turn(thread_id, "go")
        if result is not None:
            question = (await client.until(ELICITATION))[-1]
            await client.peer.send({"id": question["id"], "result": result})
        await client.end_of(turn_id)

    return Scenario(steps, config=stdio(), loose=LOOSE | {STATUS}, outputs=False)


def but(name: str) -> tuple[str, ...]:
    """All switches but this one."""
    return tuple(each for each in SWITCHES if each != name)


LOOSE = frozenset({"item/commandExecution/outputDelta", "thread/status/changed active"})
# The reference publishes no item for a command that is refused without a server request, or that
# its sandbox stops.
UNASKED = ("+ item/started commandExecution", "+ item/completed commandExecution")


def asked(
    move: Reply,
    method: str,
    *on: str,
    result: JsonValue = ACCEPT,
    config: str = "",
    rules: str = "",
    but_for: frozenset[str] = frozenset(),
) -> Scenario:
    """With these switches on, and all others off, the user is asked."""
    steps = turns((move, method, result), on=on)
    keys = frozenset(f".params.{name}" for name in but_for)
    return Scenario(steps, loose=LOOSE, config=config, rules=rules, values=but_for, keys=keys)


def unasked(
    move: Reply,
    *on: str,
    differences: tuple[str, ...] = UNASKED,
    config: str = "",
    rules: str = "",
    outputs: bool = False,
) -> Scenario:
    """With these switches on, and all others off, the server sends no request."""
    steps = turns((move, None, None), on=on)
    # Refusals are worded differently for the model, unless a scenario sets `outputs`.
    return Scenario(steps, differences, loose=LOOSE, config=config, rules=rules, outputs=outputs)


TOOLS = "features.request_permissions_tool = true"
WIDENING = "features.exec_permission_approvals = true"
RULE = "acceptWithExecpolicyAmendment"
PROPOSED = frozenset(
    {
        "proposedExecpolicyAmendment",
        "availableDecisions",
        f"availableDecisions[].{RULE}",
        f"availableDecisions[].{RULE}.execpolicy_amendment",
    }
)
SCENARIOS: dict[str, Scenario] = {
    "more rights, on": asked(command("touch a", **ESCALATED), COMMAND, "sandbox_approval"),
    "more rights, off": unasked(command("touch a", **ESCALATED), *but("sandbox_approval")),
    "stopped by the sandbox, off": unasked(
        command("touch a"), *but("sandbox_approval"), outputs=True
    ),
    # No rule is ever proposed for a dangerous command here.
    "danger, on": asked(command("rm -rf a"), COMMAND, "sandbox_approval", but_for=PROPOSED),
    "danger, off": unasked(command("rm -rf a"), *but("sandbox_approval")),
    # Names in diffs begin where the reference takes a folder above for a repository.
    "patch, on": asked(patches(PATCH), FILES, "sandbox_approval", but_for=frozenset({"diff"})),
    "patch, off": unasked(patches(PATCH), *but("sandbox_approval"), differences=(), outputs=True),
    "some rights, off": unasked(
        command("echo a", **WIDER), *but("sandbox_approval"), config=WIDENING
    ),
    "a rule that asks, on": asked(command("echo asked"), COMMAND, "rules", rules=RULES),
    "a rule that asks, off": unasked(command("echo asked"), *but("rules"), rules=RULES),
    "a rule that asks without a reason, on": asked(
        command("echo curt"), COMMAND, "rules", rules=RULES
    ),
    "a rule that forbids": unasked(command("echo never"), *SWITCHES, rules=RULES, outputs=True),
    "a rule that forbids without a reason": unasked(
        command("echo stop"), *SWITCHES, rules=RULES, outputs=True
    ),
    "a rule that asks about more rights, both on": asked(
        command("echo asked", **ESCALATED), COMMAND, "rules", "sandbox_approval", rules=RULES
    ),
    "a rule that asks about more rights, one off": unasked(
        command("echo asked", **ESCALATED), *but("sandbox_approval"), rules=RULES
    ),
    "a rule that asks about more rights, the other off": unasked(
        command("echo asked", **ESCALATED), *but("rules"), rules=RULES
    ),
    "permissions, on": asked(
        WISH, PERMISSIONS, "request_permissions", result={"permissions": NETWORK}, config=TOOLS
    ),
    "permissions, off": unasked(
        WISH, *but("request_permissions"), differences=(), config=TOOLS, outputs=True
    ),
    "a server's question, on": tool("ask", FORM, on=("mcp_elicitations",)),
    "a server's question, off": tool("ask", None, on=but("mcp_elicitations")),
    # Whether a tool may be called is asked all the same.
    "a server's tool, on": tool("danger", {"action": "accept"}, on=("mcp_elicitations",)),
    "a server's tool, off": tool("danger", {"action": "accept"}, on=but("mcp_elicitations")),
    # Nothing that a skill brings is run here without being a command like any other.
    "a command under skill approval alone": unasked(
        command("touch a"), "skill_approval", outputs=True
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_switch_decides_whether_the_user_is_asked(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    await check(golden, name, SCENARIOS[name], tmp_path)


@pytest.mark.parametrize(
    ("on", "is_asked"), [(("sandbox_approval",), True), (but("sandbox_approval"), False)]
)
async def test_some_more_rights_are_a_question_of_the_sandbox(
    stage: Stage, on: tuple[str, ...], is_asked: bool
) -> None:
    """Ours: the reference refuses them under every policy but on-request."""
    stage.configure(WIDENING)
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy=policy(*on))
    stage.model.plays(command("touch a", **WIDER))
    turn_id = await client.start_turn(thread_id)
    if is_asked:
        question = (await client.until(COMMAND))[-1]
        await client.peer.send({"id": question["id"], "result": {"decision": "decline"}})
    events = await client.end_of(turn_id)
    assert [item["status"] for item in commands(events)] == ["declined"]
    output = stage.model.requests[-1].outputs()["call-1"]
    assert ("policy does not allow requests for approval" in output) is not is_asked


async def test_a_rule_allows_more_rights_without_an_approval(stage: Stage) -> None:
    """Ours: the reference refuses it, and allows it when it does not ask for more."""
    rules = stage.home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy=policy())
    stage.model.plays(command("touch a", **ESCALATED))
    events = await client.run(thread_id)
    assert [item["status"] for item in commands(events)] == ["completed"]
    assert (stage.workspace / "a").exists()
