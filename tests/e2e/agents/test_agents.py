"""Sub-agents: how they start, what clients see of them, and their limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.items import untimed
from tests.harness.scripted import client_of, playing
from tests.harness.team import (
    TASK,
    TOOLS,
    Team,
    close,
    deeds,
    is_over,
    is_unloaded,
    more,
    of,
    resume,
    spawn,
    wait,
)
from tests.harness.threads import EPILOGUE, FAILURE, UNKNOWN_THREAD, Client, outline, params_of
from treadle.model.scripted.model import ScriptedModel, calls, fails, usage, waits_for
from treadle.protocol.base import JsonValue
from treadle.server.server import Server


@pytest.fixture
def team() -> Team:
    return Team()


@pytest.fixture
async def server(home: Path, team: Team) -> AsyncIterator[Server]:
    async with playing(home, team.model) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client


async def test_a_child_is_a_separate_thread_whose_events_reach_the_parents_clients(
    client: Client, team: Team
) -> None:
    """Upstream sends no `thread/started` for it: a client would have to read its name."""
    thread_id = await client.start()
    team.plays(spawn(agent_type="explorer"), wait)
    turn_id = await client.start_turn(thread_id)
    messages = await client.end_of(turn_id)
    child_id = team.child_id
    thread = params_of(messages, "thread/started")[0]["thread"]

    assert outline(of(messages, child_id)) == [
        "thread/status/changed active",
        "turn/started",
        "item/started userMessage",
        "item/completed userMessage",
        "item/started agentMessage",
        "item/completed agentMessage",
        *EPILOGUE,
    ]
    assert params_of(of(messages, child_id), "turn/started")[0]["turn"]["rootTurnId"] == turn_id
    assert thread["id"] == child_id
    about = {"agent_nickname": "Ada", "agent_path": None, "agent_role": "explorer"}
    spawned = {"depth": 1, "parent_thread_id": thread_id, **about}
    assert thread["source"] == {"subAgent": {"thread_spawn": spawned}}
    assert (thread["parentThreadId"], thread["agentNickname"]) == (thread_id, "Ada")
    assert thread["agentRole"] == "explorer"


async def test_the_items_of_the_parent_show_what_it_does_with_its_child(
    client: Client, team: Team
) -> None:
    thread_id = await client.start(model="gpt-5.4")
    team.plays(spawn(), wait, more, wait, close, resume)
    messages = await client.run(thread_id)
    child_id = team.child_id
    done: JsonValue = {"status": "completed", "message": "child done"}
    pending: JsonValue = {"status": "pendingInit", "message": None}
    item = {"type": "collabAgentToolCall", "senderThreadId": thread_id, "status": "completed"}
    plain = {**item, "receiverThreadIds": [child_id], "prompt": None, "reasoningEffort": None}

    finished = deeds(messages)
    assert untimed(finished[0]) == plain | {
        "id": "spawn",
        "tool": "spawnAgent",
        "model": "gpt-5.4",
        "prompt": "look",
        "agentsStates": {child_id: pending},
    }
    running: JsonValue = {"status": "running", "message": None}
    assert [(deed["tool"], deed["agentsStates"][child_id]) for deed in finished[1:]] == [
        ("wait", done),
        ("sendInput", running),
        ("wait", done),
        ("closeAgent", done),
        ("resumeAgent", pending),
    ]
    assert {deed["status"] for deed in finished} == {"completed"}
    outputs = team.outputs(team.model.requests[-1])
    status = {"status": {child_id: {"completed": "child done"}}, "timed_out": False}
    assert outputs[0] == {"agent_id": child_id, "nickname": "Ada"}
    assert list(outputs[2]) == ["submission_id"]
    assert [outputs[1], *outputs[3:]] == [
        status,
        status,
        {"previous_status": {"completed": "child done"}},
        {"status": "pending_init"},
    ]


async def test_a_resumed_child_publishes_events_again_and_remembers(
    client: Client, team: Team
) -> None:
    thread_id = await client.start()
    team.plays(spawn(), wait, close, resume, more, wait)
    messages = await client.run(thread_id)
    statuses = [
        params["status"]["type"]
        for params in params_of(of(messages, team.child_id), "thread/status/changed")
    ]

    assert statuses == ["active", "idle", "notLoaded", "idle", "active", "idle"]
    assert len(params_of(of(messages, team.child_id), "turn/completed")) == 2
    second = [request for request in team.model.requests if request.subagent][-1]
    assert "child done" in json.dumps(list(second.input))


async def test_a_child_has_no_agent_tools_and_no_history_unless_it_is_forked(
    client: Client, team: Team
) -> None:
    thread_id = await client.start()
    await client.run(thread_id, "a word of the user")
    team.plays(spawn(), wait, spawn(fork_context=True), wait)
    await client.run(thread_id)
    plain, forked = [request for request in team.model.requests if request.subagent]

    names = [tool.get("name") for tool in team.model.requests[0].tools]
    assert [name for name in names if name in TOOLS] == TOOLS
    assert not set(TOOLS) & {tool.get("name") for tool in plain.tools}
    assert "a word of the user" not in json.dumps(list(plain.input))
    assert "a word of the user" in json.dumps(list(forked.input))
    assert "function_call" not in json.dumps(list(forked.input))


async def test_a_child_that_ends_later_is_reported_to_the_parent_in_its_next_turn(
    client: Client, team: Team
) -> None:
    thread_id = await client.start()
    done = asyncio.Event()
    team.children = [[waits_for(done), "child done"]]
    team.plays(spawn())
    messages = await client.run(thread_id)
    done.set()
    await client.until("turn/completed", is_over(team.child_id))
    await client.run(thread_id, "and?")
    notes = [
        item["content"][0]["text"]
        for item in team.model.requests[-1].input
        if "<subagent_notification>" in json.dumps(item)
    ]

    assert outline(of(messages, thread_id))[-2:] == EPILOGUE
    news = {
        "agent_path": team.child_id,
        "nickname": "Ada",
        "status": {"completed": "child done"},
    }
    assert [json.loads(note.splitlines()[1]) for note in notes] == [news]


async def test_a_failed_child_has_the_status_errored(client: Client, team: Team) -> None:
    thread_id = await client.start()
    team.children = [fails("out of order")]
    team.plays(spawn(), wait)
    messages = await client.run(thread_id)

    assert outline(of(messages, team.child_id))[-3:] == FAILURE
    assert (deeds(messages)[1]["status"], deeds(messages)[1]["agentsStates"][team.child_id]) == (
        "failed",
        {"status": "errored", "message": "out of order"},
    )
    assert outline(of(messages, thread_id))[-2:] == EPILOGUE


async def test_at_most_six_agents_run_at_once(client: Client, team: Team) -> None:
    thread_id = await client.start()
    held = asyncio.Event()
    team.children = [[waits_for(held), "child done"] for _ in range(6)]
    many = [calls("spawn_agent", TASK, call_id=f"s{number}") for number in range(8)]
    team.plays(many, close, spawn())
    messages = await client.run(thread_id)
    held.set()

    spawned = [deed for deed in deeds(messages) if deed["tool"] == "spawnAgent"]
    assert sorted(deed["status"] for deed in spawned) == ["completed"] * 7 + ["failed"] * 2
    # The agent that starts last may send its model request after the parent does.
    parent = [request for request in team.model.requests if request.subagent is None][-1]
    outputs = [str(item["output"]) for item in parent.input if "output" in item]
    assert sum("6 agents are open" in output for output in outputs) == 2


async def test_interrupting_a_parent_closes_its_children(
    client: Client, team: Team, server: Server
) -> None:
    """Ours: upstream leaves them running."""
    thread_id = await client.start()
    team.children = [[waits_for(asyncio.Event())]]
    team.plays(spawn(), wait)
    turn_id = await client.start_turn(thread_id)
    messages = await client.until(
        "item/started", lambda params: params["item"].get("tool") == "wait"
    )
    child_id = team.child_id
    if "turn/started" not in outline(of(messages, child_id)):
        await client.until("turn/started", is_over(child_id))
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    # The order varies: they are events of two threads.
    messages = await client.until("thread/status/changed", is_unloaded(child_id))
    if "turn/completed interrupted" not in outline(of(messages, thread_id)):
        messages += await client.until("turn/completed", is_over(thread_id))

    assert [(deed["tool"], deed["status"]) for deed in deeds(messages)] == [("wait", "interrupted")]
    assert outline(of(messages, child_id))[-2:] == [
        "turn/completed interrupted",
        "thread/status/changed notLoaded",
    ]
    assert server.threads.loaded_ids() == [thread_id]


async def test_the_usage_of_a_child_counts_for_its_parent(client: Client, team: Team) -> None:
    thread_id = await client.start(budget={"maxTokens": 100})
    team.children = [[calls("update_plan", {"plan": []}), usage(90, 20)], "too late"]
    team.plays(spawn(), wait)
    await client.start_turn(thread_id)
    ended: dict[str, JsonValue] = {}
    while len(ended) < 2:
        params = (await client.until("turn/completed"))[-1]["params"]
        ended[params["threadId"]] = params["turn"]["error"]["message"]

    assert thread_id in ended
    assert list(ended.values()) == ["the thread's budget of 100 tokens is used"] * 2


async def test_other_threads_cannot_reach_a_child(client: Client, team: Team) -> None:
    first = await client.start()
    team.plays(spawn(), wait)
    await client.run(first)
    second = await client.start()
    for tool, arguments in [
        ("send_input", {"target": team.child_id, "message": "x"}),
        ("close_agent", {"target": team.child_id}),
        ("resume_agent", {"id": team.child_id}),
        ("close_agent", {"target": UNKNOWN_THREAD}),
    ]:
        team.plays(calls(tool, arguments))
        messages = await client.run(second)
        target = arguments.get("target") or arguments["id"]
        assert team.last_output() == f"agent with id {target} not found"
        assert [(deed["status"], deed["agentsStates"]) for deed in deeds(messages)] == [
            ("failed", {target: {"status": "notFound", "message": None}})
        ]


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("spawn_agent", {}, "provide either message or items, not empty"),
        ("spawn_agent", {"message": "a", "items": [{"text": "b"}]}, "provide either"),
        (
            "spawn_agent",
            {"items": [{"type": "image"}]},
            "an item of type 'image' is unknown or lacks",
        ),
        ("spawn_agent", {"message": "a", "agent_type": "king"}, "unknown agent_type 'king'"),
        ("wait_agent", {"targets": []}, "targets must not be empty"),
        (
            "wait_agent",
            {"targets": [UNKNOWN_THREAD]},
            f'{{"status":{{"{UNKNOWN_THREAD}":"not_found"}}',
        ),
        ("close_agent", {}, "failed to parse function arguments"),
    ],
)
async def test_invalid_arguments_are_reported_to_the_model(
    client: Client, team: Team, tool: str, arguments: JsonValue, text: str
) -> None:
    thread_id = await client.start()
    team.plays(calls(tool, arguments))
    messages = await client.run(thread_id)

    assert team.last_output().startswith(text)
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_client_that_joins_later_receives_the_events_of_children_too(
    client: Client, team: Team, server: Server
) -> None:
    thread_id = await client.start()
    held = asyncio.Event()
    team.children = [[waits_for(held), "child done"]]
    team.plays(spawn())
    await client.run(thread_id)
    async with client_of(server) as late:
        await late.request("thread/resume", {"threadId": thread_id})
        held.set()
        messages = await late.until("turn/completed", is_over(team.child_id))

    assert [item["item"]["text"] for item in params_of(messages, "item/completed")] == [
        "child done"
    ]


async def test_children_are_closed_with_a_parent_that_has_no_subscribers(
    client: Client, team: Team, server: Server
) -> None:
    thread_id = await client.start()
    team.plays(spawn(), wait)
    await client.run(thread_id)
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    await client.until("thread/status/changed", is_unloaded(team.child_id))

    assert server.threads.loaded_ids() == []


async def test_the_configuration_limits_and_disables_agents(
    client: Client, team: Team, home: Path
) -> None:
    (home / "config.toml").write_text("[agents]\nmax_threads = 1\nmax_depth = 2\n", "utf-8")
    thread_id = await client.start()
    team.plays(spawn(), wait, spawn())
    await client.run(thread_id)

    assert team.last_output().startswith("1 agents are open")
    child = next(request for request in team.model.requests if request.subagent)
    assert set(TOOLS) <= {tool.get("name") for tool in child.tools}
    (home / "config.toml").write_text("[features]\nmulti_agent = false\n", "utf-8")
    await client.run(await client.start())
    assert not set(TOOLS) & {tool.get("name") for tool in team.model.requests[-1].tools}


async def test_clients_of_the_parent_answer_the_server_requests_of_a_child(
    client: Client, team: Team, tmp_path: Path
) -> None:
    thread_id = await client.start(cwd=str(tmp_path), approvalPolicy="on-request")
    more_rights = {"sandbox_permissions": "require_escalated", "justification": "may I"}
    team.children = [
        calls("exec_command", {"cmd": f"touch {tmp_path}/made", **more_rights}, call_id="e1")
    ]
    team.plays(spawn(), wait)
    turn_id = await client.start_turn(thread_id)
    asked = (await client.until("item/commandExecution/requestApproval"))[-1]
    await client.peer.send({"id": asked["id"], "result": {"decision": "accept"}})
    messages = await client.end_of(turn_id)

    assert asked["params"]["threadId"] == team.child_id
    assert (tmp_path / "made").exists()
    assert outline(of(messages, thread_id))[-2:] == EPILOGUE


async def test_only_subscribers_of_the_parent_receive_the_events_of_a_child(
    client: Client, team: Team, server: Server
) -> None:
    thread_id = await client.start()
    async with client_of(server) as other:
        own = await other.start()
        team.plays(spawn(), wait)
        await client.run(thread_id)
        # Every client receives the status of every thread, and nothing else of it.
        messages = of(await other.settled(), team.child_id)
        await other.run(own, "hello")

    assert outline(messages) == ["thread/status/changed active", "thread/status/changed idle"]


async def test_a_child_is_found_again_after_a_restart(home: Path, team: Team) -> None:
    async with playing(home, ScriptedModel(team.play)) as server, client_of(server) as client:
        thread_id = await client.start()
        team.plays(spawn(), wait)
        await client.run(thread_id)
        listed = (await client.request("thread/list", {}))["data"]
        children = (await client.request("thread/list", {"sourceKinds": ["subAgent"]}))["data"]
    child_id = team.child_id
    async with playing(home, ScriptedModel(team.play)) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        team.plays(more(child_id), wait(child_id))
        messages = await client.run(thread_id)

    assert [[thread["id"] for thread in page] for page in (listed, children)] == [
        [thread_id],
        [child_id],
    ]
    assert [(deed["tool"], deed["status"]) for deed in deeds(messages)] == [
        ("sendInput", "completed"),
        ("wait", "completed"),
    ]
    assert params_of(messages, "thread/started")[0]["thread"]["agentNickname"] == "Ada"
