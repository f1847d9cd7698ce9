"""What a model adds to a thread never makes the thread too large to be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.commands import together
from tests.harness.model_server import Reply, completed, created, done, says
from tests.harness.threads import Client, Stage, params_of, words
from treadle.engine.turn_limits import FULL
from treadle.store.rollout import journal, loader
from treadle.store.rollout.reading import MAX_ROLLOUT_BYTES

LARGEST = 400_000
GROWN = LARGEST // 8 * 7
LENGTH = 20_000


@pytest.fixture
def small_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the size of a thread, which is 1 GiB."""
    monkeypatch.setattr(loader, "MAX_ROLLOUT_BYTES", LARGEST)
    monkeypatch.setattr(journal, "MAX_ROLLOUT_BYTES", LARGEST, raising=False)
    monkeypatch.setattr(journal, "MAX_GROWN_BYTES", GROWN, raising=False)
    monkeypatch.setattr(journal, "MAX_SMALL_BYTES", LENGTH - 1, raising=False)


def grows(number: int) -> Reply:
    """A reply with a large item that clients do not see, and a call, so that another follows."""
    item = {"type": "compaction", "id": f"x{number}", "encrypted_content": "x" * LENGTH}
    call = {"type": "function_call", "call_id": f"c{number}", "name": "no", "arguments": "{}"}
    return Reply([created(), done(item), done(call), completed()])


def file_of(stage: Stage, thread_id: str) -> Path:
    (path,) = (stage.home / "sessions").rglob(f"rollout-*{thread_id}.jsonl")
    return path


async def assert_usable(stage: Stage, client: Client, thread_id: str) -> None:
    """Require that every request about the thread is answered, also by the next server."""
    assert words(await client.read(thread_id))[0] == ["remember me", "hello"]
    await stage.restart()
    client = await stage.client()
    thread = await client.read(thread_id)
    assert words(thread)[0] == ["remember me", "hello"]
    assert thread["turns"][-1]["status"] in {"failed", "interrupted"}
    for method in ("thread/resume", "thread/fork", "thread/turns/list"):
        await client.request(method, {"threadId": thread_id})
    assert file_of(stage, thread_id).stat().st_size <= LARGEST


@pytest.mark.usefixtures("small_threads")
async def test_a_thread_that_a_model_fills_stays_readable(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("hello"), *map(grows, range(2 * LARGEST // LENGTH)))
    await client.run(thread_id, "remember me")
    failed = params_of(await client.run(thread_id), "turn/completed")[-1]["turn"]

    assert failed["status"] == "failed"
    assert failed["error"]["message"] == FULL
    await assert_usable(stage, client, thread_id)


@pytest.mark.usefixtures("small_threads")
async def test_no_model_is_asked_about_a_thread_that_is_full(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("hello"), *map(grows, range(2 * LARGEST // LENGTH)))
    await client.run(thread_id, "remember me")
    await client.run(thread_id)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    requests = len(stage.model.requests)
    failed = params_of(await client.run(thread_id), "turn/completed")[-1]["turn"]

    assert len(stage.model.requests) == requests
    assert failed["error"]["message"] == FULL
    await assert_usable(stage, client, thread_id)


@pytest.mark.usefixtures("small_threads")
async def test_the_outputs_of_many_commands_leave_a_thread_readable(stage: Stage) -> None:
    """They end together, after the last request that could have been refused."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    script = f"printf '%0{LENGTH}d' 0"
    count = 2 * LARGEST // LENGTH
    commands = [
        ("shell", {"command": ["sh", "-c", script]}, f"c{number}") for number in range(count)
    ]
    stage.model.plays(says("hello"), together(*commands))
    await client.run(thread_id, "remember me")
    failed = params_of(await client.run(thread_id), "turn/completed")[-1]["turn"]

    assert failed["status"] == "failed"
    await assert_usable(stage, client, thread_id)


@pytest.mark.usefixtures("small_threads")
async def test_the_next_server_ends_the_turn_of_a_full_thread(stage: Stage) -> None:
    """The end of a turn that could not be stored takes room that only the next server uses."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("hello"), *map(grows, range(2 * LARGEST // LENGTH)))
    await client.run(thread_id, "remember me")
    await client.run(thread_id)
    await stage.close()
    # A server that is killed does not write what it still had to write.
    path = file_of(stage, thread_id)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if "encrypted_content" in line)
    path.write_text("".join(lines[: last + 1]), "utf-8")

    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    thread = await client.read(thread_id)
    assert thread["turns"][-1]["status"] == "interrupted"
    assert json.dumps(thread["turns"][-1]["error"]).count("the server ended") == 1


def test_a_thread_may_grow_to_a_size_that_can_be_loaded() -> None:
    assert journal.MAX_GROWN_BYTES < MAX_ROLLOUT_BYTES
