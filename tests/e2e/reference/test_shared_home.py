"""One home, two servers in turn: each goes on with the threads that the other wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.model_server import ModelServer, calls, model_server, says
from tests.harness.releases import NEWEST, program
from tests.harness.threads import Client, configure, spawned, words

pytestmark = pytest.mark.usefixtures("reference")

OURS, REFERENCE = "treadle", NEWEST


@pytest.fixture
async def model(home: Path) -> AsyncIterator[ModelServer]:
    """A model that the home is configured for."""
    async with model_server() as model:
        configure(home, model)
        yield model


async def go_on(client: Client, thread_id: str, text: str) -> list[list[str]]:
    """Resume a thread, run a turn, and give what the thread says then."""
    await client.request("thread/resume", {"threadId": thread_id})
    await client.run(thread_id, text)
    return words(await client.read(thread_id))


@pytest.mark.parametrize(("first", "second"), [(OURS, REFERENCE), (REFERENCE, OURS)])
async def test_a_thread_goes_back_and_forth_between_the_servers(
    home: Path,
    model: ModelServer,
    first: str,
    second: str,
) -> None:
    cwd = str(home.parent)
    model.plays(calls("no_such_tool", {}), says("one", "msg_1"))
    async with spawned((program(first), "app-server"), home) as client:
        thread_id = await client.start(cwd=cwd)
        await client.run(thread_id, "first")
    async with spawned((program(second), "app-server"), home) as client:
        listed = (await client.request("thread/list", {}))["data"]
        middle = await go_on(client, thread_id, "second")
    async with spawned((program(first), "app-server"), home) as client:
        last = await go_on(client, thread_id, "third")

    assert [(thread["id"], thread["preview"]) for thread in listed] == [(thread_id, "first")]
    assert middle == [["first", "one"], ["second", "done"]]
    assert last == [*middle, ["third", "done"]]
    conversation = [
        pair for pair in model.requests[-1].conversation() if not pair[1].startswith("<")
    ]
    assert conversation == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "done"),
        ("user", "third"),
    ]
    assert model.requests[-1].outputs() == {"call-1": "unsupported call: no_such_tool"}


@pytest.mark.parametrize(("first", "second"), [(OURS, REFERENCE), (REFERENCE, OURS)])
async def test_a_compacted_thread_is_understood_by_the_other_server(
    home: Path, model: ModelServer, first: str, second: str
) -> None:
    async with spawned((program(first), "app-server"), home) as client:
        thread_id = await client.start(cwd=str(home.parent))
        await client.run(thread_id, "first")
        model.plays(says("NOTES", "msg_1"))
        await client.request("thread/compact/start", {"threadId": thread_id})
        await client.until("turn/completed")
    async with spawned((program(second), "app-server"), home) as client:
        await go_on(client, thread_id, "second")

    conversation = model.requests[-1].conversation()
    assert ("assistant", "done") not in conversation
    assert any("NOTES" in text for _, text in conversation)
    assert conversation[-1] == ("user", "second")


@pytest.mark.parametrize(("first", "second"), [(OURS, REFERENCE), (REFERENCE, OURS)])
async def test_a_thread_of_one_server_is_forked_by_the_other(
    home: Path, model: ModelServer, first: str, second: str
) -> None:
    async with spawned((program(first), "app-server"), home) as client:
        thread_id = await client.start(cwd=str(home.parent))
        await client.run(thread_id, "first")
    async with spawned((program(second), "app-server"), home) as client:
        forked = (await client.request("thread/fork", {"threadId": thread_id}))["thread"]
        await client.run(forked["id"], "second")
        copy = words(await client.read(forked["id"]))
    async with spawned((program(first), "app-server"), home) as client:
        seen = words(await client.read(forked["id"]))

    assert copy == seen == [["first", "done"], ["second", "done"]]
    assert model.requests[-1].conversation()[-1] == ("user", "second")


@pytest.mark.usefixtures("model")
async def test_a_name_that_the_reference_gives_is_seen_here(home: Path) -> None:
    """The reverse does not hold: the reference keeps names in a private database."""
    async with spawned((program(OURS), "app-server"), home) as client:
        thread_id = await client.start(cwd=str(home.parent))
        await client.run(thread_id)
    async with spawned((program(REFERENCE), "app-server"), home) as client:
        await client.request("thread/name/set", {"threadId": thread_id, "name": "Theirs"})
        await client.until("thread/name/updated")
    async with spawned((program(OURS), "app-server"), home) as client:
        listed = (await client.request("thread/list", {}))["data"]

    assert [(thread["id"], thread["name"]) for thread in listed] == [(thread_id, "Theirs")]
