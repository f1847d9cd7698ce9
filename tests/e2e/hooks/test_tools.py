"""Hooks see every tool: commands, patches, MCP tools, client tools, agents, searches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.hooks import Hooks, handler, matched, outcomes, runs
from tests.harness.mcp import settled, stdio
from tests.harness.model_server import Reply, calls, completed, created, done, patches, says
from tests.harness.questions import answer, question
from tests.harness.scripted import client_of, playing
from tests.harness.team import Team, spawn, wait
from tests.harness.threads import Client, Stage, outline, params_of
from treadle.protocol.base import JsonValue

NEW = "*** Begin Patch\n*** Add File: made\n+one\n*** End Patch\n"
IN_SHELL = f"apply_patch <<'EOF'\n{NEW}EOF\n"
TOOL = {"name": "lookup", "description": "d", "inputSchema": {"type": "object"}}

CALLS: dict[str, tuple[Reply, str, JsonValue]] = {
    "exec_command": (
        calls("exec_command", {"cmd": "touch made"}),
        "Bash",
        {"command": "touch made"},
    ),
    "shell_command": (
        calls("shell_command", {"command": "touch made"}),
        "Bash",
        {"command": "touch made"},
    ),
    "shell": (
        calls("shell", {"command": ["touch", "made"]}),
        "Bash",
        {"command": "touch made"},
    ),
    "patch": (patches(NEW), "apply_patch", {"command": NEW}),
    "patch function": (calls("apply_patch", {"input": NEW}), "apply_patch", {"command": NEW}),
    "patch in a shell": (
        calls("exec_command", {"cmd": IN_SHELL}),
        "Bash",
        {"command": IN_SHELL},
    ),
    "write_stdin": (
        calls("write_stdin", {"session_id": 7, "chars": "x"}),
        "write_stdin",
        {"session_id": 7, "chars": "x"},
    ),
    "plan": (
        calls("update_plan", {"plan": [{"step": "a", "status": "pending"}]}),
        "update_plan",
        {"plan": [{"step": "a", "status": "pending"}]},
    ),
    "image": (calls("view_image", {"path": "x"}), "view_image", {"path": "x"}),
    "client tool": (calls("lookup", {"id": 1}), "lookup", {"id": 1}),
    "mcp tool": (
        calls("mcp__mini__plain", {"text": "hi"}),
        "mcp__mini__plain",
        {"text": "hi"},
    ),
    "agent": (calls("spawn_agent", {"message": "go"}), "spawn_agent", {"message": "go"}),
    "unreadable arguments": (calls("update_plan", []), "update_plan", "[]"),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_a_denied_call_of_any_tool_does_not_happen(
    stage: Stage, client: Client, hooks: Hooks, kind: str
) -> None:
    """Upstream's complaint: hooks that see only some tools."""
    reply, name, given = CALLS[kind]
    stage.configure(stdio())
    await hooks.install(PreToolUse=hooks.says(error="no", code=2))
    where = {"cwd": str(stage.workspace), "dynamicTools": [TOOL], "sandbox": "danger-full-access"}
    thread_id = await client.start(**where)
    await settled(client, "mini")
    stage.model.plays(reply, says("done"))
    messages = await client.run(thread_id)

    (seen,) = hooks.given()
    assert (seen["tool_name"], seen["tool_input"]) == (name, given)
    output = stage.model.requests[-1].outputs()["call-1"]
    assert "blocked by PreToolUse hook: no" in str(output)
    assert not (stage.workspace / "made").exists()
    shown = {"item/started userMessage", "item/started agentMessage"}
    assert {line for line in outline(messages) if line.startswith("item/started")} == shown


@pytest.mark.parametrize("matcher", ["apply_patch", "Write", "Edit", "Write|Edit", "^apply"])
@pytest.mark.parametrize("kind", ["patch", "patch function", "patch in a shell"])
async def test_hooks_for_edits_see_every_way_to_make_one(
    stage: Stage, client: Client, hooks: Hooks, matcher: str, kind: str
) -> None:
    """Upstream: the names. Ours: a patch in a shell command counts as an edit too."""
    await hooks.install(PreToolUse=matched(matcher, "echo no >&2; exit 2"))
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="danger-full-access")
    stage.model.plays(CALLS[kind][0], says("done"))
    await client.run(thread_id)

    assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize(
    ("matcher", "is_seen"),
    [
        ("", True),
        ("*", True),
        ("Bash", True),
        ("Edit|Bash", True),
        ("^Ba.h$", True),
        ("Ba", False),
        ("bash", False),
        ("mcp__.*", False),
    ],
)
async def test_a_matcher_names_tools_or_is_a_regular_expression(
    stage: Stage, client: Client, hooks: Hooks, matcher: str, is_seen: bool
) -> None:
    """Upstream: names are compared as a whole, and other text is a pattern."""
    await hooks.install(PreToolUse=matched(matcher, hooks.records()))
    stage.model.plays(calls("exec_command", {"cmd": "true"}), says("done"))
    await client.run(await client.start())

    assert bool(hooks.given()) == is_seen


async def test_hooks_see_the_call_of_a_tool_that_is_still_loading(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: its MCP server starts slowly."""
    late = stdio(env={"MCP_LATE": "1"}, default_tools_approval_mode="approve")
    stage.configure("mcp_optional_startup_grace_ms = 1\n" + late)
    await hooks.install(PreToolUse=hooks.says(error="no", code=2))
    thread_id = await client.start()
    stage.model.plays(calls("mcp__mini__plain", {"text": "hi"}), says("done"))
    await client.run(thread_id)

    output = stage.model.requests[-1].outputs()["call-1"]
    assert output == "Tool call blocked by PreToolUse hook: no. Tool: mcp__mini__plain"


async def test_an_unknown_tool_runs_no_hooks(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: nothing is about to run."""
    await hooks.install(PreToolUse="exit 2", PostToolUse="exit 2")
    stage.model.plays(calls("no_such_tool", {}), says("done"))
    messages = await client.run(await client.start())

    assert runs(messages) == []


REWRITES: dict[str, tuple[Reply, JsonValue, JsonValue]] = {
    "shell": (
        calls("shell", {"command": ["false"]}),
        {"command": "echo 'a  b'"},
        {"command": "echo 'a  b'"},
    ),
    "shell_command": (
        calls("shell_command", {"command": "false"}),
        {"command": "echo changed"},
        {"command": "echo changed"},
    ),
    "mcp tool": (calls("mcp__mini__plain", {"text": "old"}), {"text": "new"}, {"text": "new"}),
}


@pytest.mark.parametrize("kind", REWRITES)
async def test_a_hook_changes_the_input_of_other_tools(
    stage: Stage, client: Client, hooks: Hooks, kind: str
) -> None:
    """Upstream."""
    reply, updated, seen = REWRITES[kind]
    stage.configure(stdio(default_tools_approval_mode="approve"))
    output = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    new = {"hookSpecificOutput": {**output, "updatedInput": updated}}
    await hooks.install(PreToolUse=hooks.says(new), PostToolUse=hooks.records())
    thread_id = await client.start()
    await settled(client, "mini")
    stage.model.plays(reply, says("done"))
    await client.run(thread_id)

    assert hooks.given("PostToolUse")[0]["tool_input"] == seen
    assert "changed" in str(hooks.given("PostToolUse")[0]) or kind != "shell_command"


async def test_a_hook_changes_a_patch(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream."""
    new = NEW.replace("made", "other")
    output: JsonValue = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    output |= {"updatedInput": {"command": new}}
    await hooks.install(PreToolUse=hooks.says({"hookSpecificOutput": output}))
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="workspace-write")
    stage.model.plays(patches(NEW), says("done"))
    await client.run(thread_id)

    assert [path.name for path in stage.workspace.iterdir()] == ["other"]


async def test_a_hook_replaces_the_output_of_an_mcp_tool(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: `updatedMCPToolOutput`, which the reference calls unsupported."""
    stage.configure(stdio(default_tools_approval_mode="approve"))
    specific = {"hookEventName": "PostToolUse", "updatedMCPToolOutput": {"masked": True}}
    await hooks.install(PostToolUse=hooks.says({"hookSpecificOutput": specific}))
    thread_id = await client.start()
    await settled(client, "mini")
    stage.model.plays(calls("mcp__mini__plain", {"text": "secret"}), says("done"))
    await client.run(thread_id)

    assert stage.model.requests[-1].outputs()["call-1"] == '{"masked":true}'


async def test_a_hook_asks_the_user_about_an_mcp_tool(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours."""
    stage.configure(stdio(default_tools_approval_mode="approve"))
    specific = {"hookEventName": "PreToolUse", "permissionDecision": "ask"}
    await hooks.install(PreToolUse=hooks.says({"hookSpecificOutput": specific}))
    thread_id = await client.start(approvalPolicy="on-request")
    await settled(client, "mini")
    stage.model.plays(calls("mcp__mini__plain", {"text": "hi"}), says("done"))
    turn_id = await client.start_turn(thread_id)
    asked = await question(client, "mcpServer/elicitation/request")
    await answer(client, asked, {"action": "decline"})
    await client.end_of(turn_id)

    assert "user rejected MCP tool call" in str(stage.model.requests[-1].outputs()["call-1"])


async def test_a_permission_hook_decides_about_an_mcp_tool(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream."""
    stage.configure(stdio())
    specific = {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
    await hooks.install(
        PermissionRequest=matched("mcp__mini__.*", hooks.says({"hookSpecificOutput": specific}))
    )
    thread_id = await client.start(approvalPolicy="on-request")
    await settled(client, "mini")
    stage.model.plays(calls("mcp__mini__plain", {"text": "hi"}), says("done"))
    messages = await client.run(thread_id)

    assert "mcpServer/elicitation/request" not in outline(messages)
    assert hooks.given()[0]["tool_input"] == {"text": "hi"}
    assert "hi" in str(stage.model.requests[-1].outputs()["call-1"])


SEARCH: JsonValue = {
    "type": "web_search_call",
    "id": "ws-1",
    "status": "completed",
    "action": {"type": "search", "query": "weather"},
}


async def test_a_search_of_the_provider_is_shown_to_hooks(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: the provider has run it by then, and the reference shows it to no hook."""
    await hooks.install(PreToolUse=hooks.records(), PostToolUse=hooks.records())
    text = {"type": "message", "role": "assistant", "id": "m", "content": []}
    stage.model.plays(Reply([created(), done(SEARCH), done(text), completed()]))
    await client.run(await client.start())

    assert [(each["tool_name"], each["tool_input"]) for each in hooks.given()] == [
        ("web_search", {"action": SEARCH["action"]})
    ] * 2


async def test_a_denied_search_ends_the_turn(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Ours: what it found must not be used."""
    await hooks.install(PreToolUse=matched("web_search", "echo offline >&2; exit 2"))
    stage.model.plays(Reply([created(), done(SEARCH), completed()]))
    messages = await client.run(await client.start())

    (failure,) = params_of(messages, "error")
    expected = "Tool call blocked by PreToolUse hook: offline. Tool: web_search"
    assert failure["error"]["message"] == expected
    assert outline(messages)[-1] == "turn/completed failed"


# -- hooks that are MCP tools


async def test_an_mcp_tool_is_a_hook(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: its input is filled in, and its text is read like the output of a command."""
    verdict = '{"decision": "block", "reason": "not that"}'
    stage.configure(stdio(env={"VERDICT_OF_Bash": verdict}))
    given = {"name": "VERDICT_OF_${tool_name}"}
    tool = {"type": "mcp_tool", "server": "mini", "tool": "environment", "input": given}
    await hooks.install(PreToolUse=tool)
    thread_id = await client.start()
    stage.model.plays(calls("exec_command", {"cmd": "ls"}), says("done"))
    messages = await client.run(thread_id)

    assert runs(messages)[0]["handlerType"] == "mcpTool"
    assert stage.model.requests[-1].outputs()["call-1"] == (
        "Command blocked by PreToolUse hook: not that. Command: ls"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"server": "none"}, "unknown MCP server 'none'"),
        ({"tool": "none"}, "MCP tool"),
        ({"input": {"text": "${nope}"}}, "hook input placeholder `${nope}` was not found"),
        ({"input": {"text": "no json"}}, "text that is not JSON"),
    ],
)
async def test_an_mcp_tool_that_cannot_decide_denies(
    stage: Stage, client: Client, hooks: Hooks, changes: JsonValue, reason: str
) -> None:
    """Ours."""
    stage.configure(stdio())
    tool = {"type": "mcp_tool", "server": "mini", "tool": "plain", "input": {"text": ""}, **changes}
    await hooks.install(PreToolUse=tool)
    stage.model.plays(calls("exec_command", {"cmd": "ls"}), says("done"))
    messages = await client.run(await client.start())

    assert reason in runs(messages)[0]["entries"][0]["text"]
    assert "the hook failed" in str(stage.model.requests[-1].outputs()["call-1"])


# -- sub-agents


@pytest.fixture
async def team() -> Team:
    """A parent and its children."""
    return Team()


@pytest.fixture
async def parent(home: Path, team: Team) -> AsyncIterator[Client]:
    """A client of a server whose model is the team."""
    async with playing(home, team.model) as server, client_of(server) as client:
        yield client


async def test_sub_agents_have_their_own_events(home: Path, parent: Client, team: Team) -> None:
    """Upstream: who the agent is, and whose session it belongs to."""
    log = home / "log"
    keep = f"given=$(cat); printf '%s\\n' \"$given\" >> {log}"
    events = ["SessionStart", "SubagentStart", "SubagentStop", "Stop", "UserPromptSubmit"]
    groups = {event: [{"hooks": [handler(keep)]}] for event in events}
    groups["SubagentStart"] = [matched("explorer", f"{keep}; echo for the child")]
    config = {"hooks": groups}
    (entry,) = (await parent.request("hooks/list", {}))["data"]
    assert entry["hooks"] == []
    thread_id = await parent.start(config=config)
    listed = await parent.request("hooks/list", {"threadId": thread_id})
    state = {h["key"]: {"trusted_hash": h["currentHash"]} for h in listed["data"][0]["hooks"]}
    edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
    await parent.request("config/batchWrite", {"edits": [edit]})
    team.plays(spawn(agent_type="explorer"), wait)
    await parent.end_of(await parent.start_turn(thread_id))
    given = [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    agent = {"agent_id": team.child_id, "agent_type": "explorer", "session_id": thread_id}
    of_child = [each for each in given if "agent_id" in each]
    assert [each["hook_event_name"] for each in of_child] == [
        "SubagentStart",
        "UserPromptSubmit",
        "SubagentStop",
    ]
    assert all(agent.items() <= each.items() for each in of_child)
    assert of_child[-1]["agent_transcript_path"] != of_child[-1]["transcript_path"]
    assert of_child[-1]["transcript_path"] == given[0]["transcript_path"]
    (request,) = [r for r in team.model.requests if r.subagent == "collab_spawn"]
    texts = [str(item.get("content")) for item in request.input if item["role"] == "developer"]
    assert "for the child" in texts[-1]


async def test_outcomes_of_a_call_without_hooks_are_none(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: a thread without hooks publishes nothing about them."""
    assert hooks.given() == []
    stage.model.plays(calls("exec_command", {"cmd": "true"}), says("done"))
    messages = await client.run(await client.start())

    assert outcomes(messages) == []
