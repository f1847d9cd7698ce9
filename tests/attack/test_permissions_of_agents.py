"""What a sub-agent may do follows its parent, also if that may do less than when it spawned it.

And how much a call about agents may ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.sandbox import SANDBOX
from tests.harness.scripted import OneModel, client_of, playing
from tests.harness.team import Team, close, more, resume, spawn, wait
from tests.harness.threads import Client, params_of
from tests.server.serving import configuration
from treadle.model.scripted.model import calls, waits_for
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

READ_ONLY: JsonValue = {"sandboxPolicy": {"type": "readOnly"}, "approvalPolicy": "never"}


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


async def spawned(client: Client, team: Team, workspace: Path) -> str:
    """Have a thread that may do anything spawn a child; return the thread's id."""
    thread_id = await client.start(
        cwd=str(workspace), sandbox="danger-full-access", approvalPolicy="never"
    )
    team.plays(spawn(), wait)
    await client.run(thread_id)
    return thread_id


async def test_a_child_may_do_no_more_than_its_parent_may_now(
    client: Client, team: Team, workspace: Path
) -> None:
    thread_id = await spawned(client, team, workspace)
    team.children = [calls("exec_command", {"cmd": f"touch {workspace}/made"}), "done"]
    team.plays(more(team.child_id), wait(team.child_id))

    await client.run(thread_id, **READ_ONLY)

    assert not team.children
    assert not (workspace / "made").exists()


async def test_a_child_that_works_meanwhile_follows_its_parent(
    client: Client, team: Team, workspace: Path
) -> None:
    thread_id = await client.start(
        cwd=str(workspace), sandbox="danger-full-access", approvalPolicy="never"
    )
    held = asyncio.Event()
    act = calls("exec_command", {"cmd": f"touch {workspace}/made"})
    team.children = [[waits_for(held), act], "done"]
    team.plays(spawn())
    await client.run(thread_id)

    await client.request("thread/settings/update", {"threadId": thread_id, **READ_ONLY})
    held.set()
    team.plays(wait(team.child_id))
    await client.run(thread_id)

    assert not team.children
    assert not (workspace / "made").exists()


async def test_a_child_keeps_what_a_client_chose_for_it(
    client: Client, team: Team, workspace: Path
) -> None:
    thread_id = await spawned(client, team, workspace)
    await client.request("thread/settings/update", {"threadId": team.child_id, **READ_ONLY})
    team.children = [calls("exec_command", {"cmd": f"touch {workspace}/made"}), "done"]
    team.plays(more(team.child_id), wait(team.child_id))

    await client.run(thread_id)

    assert not team.children
    assert not (workspace / "made").exists()


async def act_in(client: Client, team: Team, thread_id: str, workspace: Path) -> bool:
    """Have the parent send input to the child, which tries to write; return whether it did."""
    team.children = [calls("exec_command", {"cmd": f"touch {workspace}/made"}), "done"]
    team.plays(more(team.child_id), wait(team.child_id))
    await client.run(thread_id)
    assert not team.children
    return (workspace / "made").exists()


async def test_a_reopened_child_keeps_what_a_client_chose_for_it(
    client: Client, team: Team, workspace: Path
) -> None:
    """Its parent's settings replaced the stored ones."""
    thread_id = await spawned(client, team, workspace)
    await client.request("thread/settings/update", {"threadId": team.child_id, **READ_ONLY})
    team.plays(close(team.child_id), resume(team.child_id))
    await client.run(thread_id)

    assert not await act_in(client, team, thread_id, workspace)


async def test_a_child_keeps_what_a_client_chose_when_it_resumed_it(
    client: Client, team: Team, workspace: Path
) -> None:
    """The choice was not stored before the next turn."""
    thread_id = await spawned(client, team, workspace)
    team.plays(close(team.child_id))
    await client.run(thread_id)
    chosen = {"sandbox": "read-only", "approvalPolicy": "never"}
    await client.request("thread/resume", {"threadId": team.child_id, **chosen})
    for _ in range(2):
        team.plays(resume(team.child_id), close(team.child_id))
        await client.run(thread_id)
    team.plays(resume(team.child_id))
    await client.run(thread_id)

    assert not await act_in(client, team, thread_id, workspace)


async def test_a_child_keeps_what_a_client_chose_under_the_next_server(
    home: Path, team: Team, workspace: Path
) -> None:
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await spawned(client, team, workspace)
        await client.request("thread/settings/update", {"threadId": team.child_id, **READ_ONLY})
    async with playing(home, team.model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        assert not await act_in(client, team, thread_id, workspace)


async def test_an_administrators_limits_apply_to_what_a_client_chose_for_a_child(
    home: Path, team: Team, workspace: Path
) -> None:
    """The administrator set them after the child was stored."""
    free = {"sandboxPolicy": {"type": "dangerFullAccess"}, "approvalPolicy": "never"}
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(workspace), sandbox="read-only")
        team.plays(spawn(), wait)
        await client.run(thread_id)
        await client.request("thread/settings/update", {"threadId": team.child_id, **free})
    limits = 'allowed_sandbox_modes = ["read-only"]\nallowed_approval_policies = ["never"]\n'
    settings = configuration(home, requirements=limits)
    server = Server(sandbox=SANDBOX, configuration=settings, models=OneModel(team.model))
    try:
        async with client_of(server) as client:
            await client.request("thread/resume", {"threadId": thread_id})
            assert not await act_in(client, team, thread_id, workspace)
    finally:
        await server.close()


@pytest.mark.parametrize("is_viewed_first", [True, False])
async def test_a_closed_child_that_a_client_views_follows_its_parent(
    client: Client, team: Team, workspace: Path, *, is_viewed_first: bool
) -> None:
    """It kept what its parent could do when it was closed."""
    thread_id = await spawned(client, team, workspace)
    team.plays(close(team.child_id))
    await client.run(thread_id)
    steps = [
        ("thread/resume", {"threadId": team.child_id}),
        ("thread/settings/update", {"threadId": thread_id, **READ_ONLY}),
    ]
    for method, params in steps if is_viewed_first else reversed(steps):
        await client.request(method, params)
    team.plays(resume(team.child_id))
    await client.run(thread_id)

    seen = await client.request("thread/resume", {"threadId": team.child_id})
    assert seen["sandbox"]["type"] == "readOnly"
    assert not await act_in(client, team, thread_id, workspace)


async def test_a_child_that_is_loaded_before_its_parent_follows_it(
    home: Path, team: Team, workspace: Path
) -> None:
    async with playing(home, team.model) as server, client_of(server) as client:
        thread_id = await spawned(client, team, workspace)
        team.plays(close(team.child_id))
        await client.run(thread_id)
        await client.request("thread/settings/update", {"threadId": thread_id, **READ_ONLY})
    async with playing(home, team.model) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": team.child_id})
        await client.request("thread/resume", {"threadId": thread_id})
        seen = await client.request("thread/resume", {"threadId": team.child_id})
        assert (seen["approvalPolicy"], seen["sandbox"]["type"]) == ("never", "readOnly")


async def test_a_child_moves_with_its_parent_and_keeps_a_folder_that_a_client_chose(
    client: Client, team: Team, workspace: Path
) -> None:
    """It could still write the folder that its parent had left."""
    before, after, own = (workspace / name for name in ("before", "after", "own"))
    for folder in (before, after, own):
        folder.mkdir()
    policy = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
    thread_id = await client.start(cwd=str(before), approvalPolicy="never")
    team.plays(spawn(), wait)
    await client.run(thread_id, sandboxPolicy=policy)
    await client.run(thread_id, cwd=str(after))

    assert not await act_in(client, team, thread_id, before)
    assert await act_in(client, team, thread_id, after)

    chosen = {"threadId": team.child_id, "cwd": str(own)}
    await client.request("thread/settings/update", chosen)
    await client.run(thread_id, cwd=str(before))
    assert await act_in(client, team, thread_id, own)


async def test_a_child_keeps_to_the_budget_of_the_turn_that_it_works_for(
    client: Client, team: Team, workspace: Path
) -> None:
    """A model escaped the budget: it spawned an agent and ended its own turn."""
    thread_id = await client.start(cwd=str(workspace))
    held = asyncio.Event()
    act = calls("update_plan", {"plan": []})
    team.children = [[waits_for(held), act], *[act] * 20]
    team.plays(spawn())
    await client.run(thread_id, budget={"maxModelRequests": 5})
    held.set()
    ended = await client.until("turn/completed", lambda params: params["threadId"] == team.child_id)
    left = len(team.children)
    by_client = await client.run(team.child_id)

    turn = ended[-1]["params"]["turn"]
    assert turn["status"] == "failed"
    assert turn["error"]["message"] == "the turn's budget of 5 model requests is used"
    assert left == 18
    assert params_of(by_client, "turn/completed")[-1]["turn"]["status"] == "completed"


async def test_a_wait_for_very_many_agents_is_refused(client: Client, team: Team) -> None:
    thread_id = await client.start()
    targets: list[JsonValue] = [str(number) for number in range(1001)]
    team.plays(calls("wait_agent", {"targets": targets}, call_id="wait"))

    await client.run(thread_id)

    assert team.last_output() == "targets must be at most 1000"
