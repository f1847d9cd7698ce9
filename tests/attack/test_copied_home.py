"""A copied home is independent of the original: changes in one do not affect the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.sandbox import SANDBOX
from tests.harness.scripted import client_of
from tests.harness.threads import Client, Stage
from treadle.config.configuration import Configuration
from treadle.server.server import Server


async def start_conversation(stage: Stage) -> tuple[str, Path]:
    """Run one turn and stop the server; return the thread id and the rollout."""
    client = await stage.client()
    stage.model.plays(says("hi"))
    thread_id = await client.start()
    await client.run(thread_id)
    thread = await client.read(thread_id)
    await stage.close()
    return thread_id, Path(thread["path"])


@asynccontextmanager
async def client_in(home: Path) -> AsyncIterator[Client]:
    """Yield a client of another server with this home."""
    server = Server(sandbox=SANDBOX, configuration=Configuration(home))
    try:
        async with client_of(server) as client:
            yield client
    finally:
        await server.close()


async def paths(client: Client) -> list[str]:
    return [thread["path"] for thread in (await client.request("thread/list", {}))["data"]]


@pytest.mark.parametrize("method", ["thread/delete", "thread/archive"])
async def test_a_copy_leaves_the_threads_of_the_first_home_alone(
    stage: Stage, tmp_path: Path, method: str
) -> None:
    thread_id, path = await start_conversation(stage)
    before = path.read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(stage.home, copy)

    async with client_in(copy) as client:
        assert await paths(client) == [str(copy / path.relative_to(stage.home))]
        await client.request(method, {"threadId": thread_id})

    assert path.read_bytes() == before


async def test_a_copy_without_a_thread_does_not_read_that_of_the_first_home(
    stage: Stage, tmp_path: Path
) -> None:
    thread_id, path = await start_conversation(stage)
    copy = tmp_path / "copy"
    shutil.copytree(stage.home, copy)
    (copy / path.relative_to(stage.home)).unlink()

    async with client_in(copy) as client:
        assert await paths(client) == []
        refusal = await client.refusal("thread/resume", {"threadId": thread_id})
    assert refusal.kind == "threadNotFound"


async def test_another_name_of_the_same_home_keeps_its_index(stage: Stage, tmp_path: Path) -> None:
    thread_id, path = await start_conversation(stage)
    (tmp_path / "link").symlink_to(stage.home)

    async with client_in(tmp_path / "link") as client:
        (found,) = await paths(client)
        await client.request("thread/resume", {"threadId": thread_id})
    assert os.path.samefile(found, path)  # noqa: PTH121, ASYNC240  a file of the test
