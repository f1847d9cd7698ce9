"""Forks that are attached to their source: upstream's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue


async def attached(stage: Stage, client: Client) -> tuple[str, str]:
    """Start a thread with a turn and attach a fork to it; return both ids."""
    stage.model.plays(says("first"), says("second"))
    source = await client.start(cwd=str(stage.workspace))
    await client.run(source, "hello there")
    answer = await client.request("thread/fork", {"threadId": source, "attachToSource": True})
    fork = answer["thread"]
    assert fork["attachedToThreadId"] == source
    await client.run(fork["id"], "hello again")
    return source, fork["id"]


async def found(client: Client, method: str, **params: JsonValue) -> list[str]:
    """Return the ids of the threads that a list or a search contains."""
    answer = await client.request(method, params)
    return [each.get("thread", each)["id"] for each in answer["data"]]


def remove_index(home: Path) -> None:
    """Remove the index, so that the next server builds it again."""
    for file in home.glob("treadle.sqlite*"):
        file.unlink()


async def test_an_attached_thread_is_only_listed_where_it_is_requested(stage: Stage) -> None:
    """It also stays so under the next server, and when the index is built again."""
    client = await stage.client(experimentalApi=True)
    source, fork = await attached(stage, client)
    for is_lost in (False, True):
        assert await found(client, "thread/list") == [source]
        assert await found(client, "thread/list", attachedToThreadId=source) == [fork]
        assert await found(client, "thread/search", searchTerm="hello") == [source]
        both = {"searchTerm": "hello", "includeAttachedThreads": True}
        assert sorted(await found(client, "thread/search", **both)) == sorted([source, fork])
        assert sorted(await found(client, "thread/list", **both)) == sorted([source, fork])
        read = await client.request("thread/read", {"threadId": fork})
        assert read["thread"]["attachedToThreadId"] == source
        await stage.close()
        if not is_lost:
            remove_index(stage.home)
        await stage.restart()
        client = await stage.client(experimentalApi=True)


async def test_a_source_outlives_the_threads_attached_to_it(stage: Stage) -> None:
    client = await stage.client(experimentalApi=True)
    source, fork = await attached(stage, client)
    refused = await client.refusal("thread/delete", {"threadId": source})
    assert refused.message == (
        f"cannot delete thread while attached thread {fork} exists; "
        "delete the attached thread first"
    )
    await client.request("thread/archive", {"threadId": fork})
    assert (await client.refusal("thread/delete", {"threadId": source})).kind == refused.kind
    await client.request("thread/delete", {"threadId": fork})
    await client.request("thread/delete", {"threadId": source})


async def test_a_fork_of_an_attached_thread_is_not_attached(stage: Stage) -> None:
    client = await stage.client(experimentalApi=True)
    _, fork = await attached(stage, client)
    answer = await client.request("thread/fork", {"threadId": fork})

    assert "attachedToThreadId" not in answer["thread"]


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (
            "thread/fork",
            {"attachToSource": True, "ephemeral": True},
            "attachToSource cannot be combined with ephemeral or deferGoalContinuation",
        ),
        (
            "thread/list",
            {"attachedToThreadId": "01a1f57b-9639-7061-9642-304a3bfd41b0", "parentThreadId": "x"},
            "attachedToThreadId cannot be combined with parentThreadId or ancestorThreadId",
        ),
        ("thread/list", {"attachedToThreadId": "x"}, "invalid thread id: 'x' is not a UUID"),
        (
            "thread/list",
            {"includeAttachedThreads": True},
            "includeAttachedThreads requires a non-empty searchTerm",
        ),
    ],
)
async def test_contradictory_params_are_refused(
    stage: Stage, method: str, params: JsonValue, message: str
) -> None:
    client = await stage.client(experimentalApi=True)
    thread_id = await client.start()
    given = {"threadId": thread_id, **params} if method == "thread/fork" else params

    assert (await client.refusal(method, given)).message == message
