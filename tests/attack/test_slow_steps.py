"""Steps whose length a client, a model or an MCP server decides: bounded, and off the event loop.

As in `test_freezes.py`, a step blocks while another client is served, or excessive work is
refused before it begins. No test measures time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.harness.model_server import calls, says
from tests.harness.stalls import stalled
from tests.harness.threads import EPILOGUE, Client, Stage, outline
from treadle.config.edit import writer as writing
from treadle.config.file import MAX_CONFIG_BYTES, MAX_DEPTH, MAX_SETTINGS
from treadle.engine.approvals import approvals
from treadle.engine.approvals.approvals import LONG_COMMAND
from treadle.engine.tools import tool_search
from treadle.engine.tools.tool_search import MAX_QUERY, MAX_SEARCHED
from treadle.model.http.client import ProviderEndpoint
from treadle.protocol.base import JsonValue
from treadle.server.server import MAX_SETTINGS_WORKERS
from treadle.server.sources import models


async def answers_others(stage: Stage) -> bool:
    """Return whether another client completes a whole turn while something blocks."""
    other = await stage.client()
    thread_id = await other.start(cwd=str(stage.workspace))
    stage.model.plays(says("here"))
    return outline(await other.run(thread_id))[-2:] == EPILOGUE


# -- the search for tools


def deferred(name: str, description: str) -> JsonValue:
    schema = {"type": "object", "properties": {}}
    return {
        "type": "function",
        "name": name,
        "description": description,
        "inputSchema": schema,
        "deferLoading": True,
    }


async def searcher(stage: Stage, query: str) -> tuple[Client, str]:
    """Start a thread whose model searches for tools first."""
    long = "word " * (MAX_SEARCHED // 5) + "hidden"
    tools = [deferred("first", "finds tickets"), deferred("second", long)]
    space = {"type": "namespace", "name": "desk", "description": "Help", "tools": tools}
    client = await stage.client()
    thread_id = await client.start(dynamicTools=[space])
    stage.model.plays(calls("tool_search", {"query": query}))
    return client, thread_id


async def test_other_clients_are_served_while_a_model_searches_for_tools(stage: Stage) -> None:
    client, thread_id = await searcher(stage, "ticket")
    with stalled(tool_search, "rank") as stall:
        turn_id = await client.start_turn(thread_id)
        await stall.reached()
        assert await answers_others(stage)
        stage.model.plays(says("ok"))
        stall.release()
        messages = await client.end_of(turn_id)

    assert outline(messages)[-2:] == EPILOGUE
    assert '"name":"first"' in stage.model.requests[-1].outputs()["call-1"]


async def test_only_the_beginning_of_a_description_is_searched(stage: Stage) -> None:
    client, thread_id = await searcher(stage, "hidden")
    stage.model.plays(says("ok"))
    await client.run(thread_id)
    assert stage.model.requests[-1].outputs()["call-1"] == '{"tools":[]}'


async def test_long_queries_for_tools_are_refused(stage: Stage) -> None:
    client, thread_id = await searcher(stage, "x" * (MAX_QUERY + 1))
    stage.model.plays(says("ok"))
    await client.run(thread_id)
    refused = f"query must have at most {MAX_QUERY} characters, not {MAX_QUERY + 1}"
    assert refused in stage.model.requests[-1].outputs()["call-1"]


# -- writes to the configuration


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = {"a": value}
    return value


LONG: list[JsonValue] = ["x"] * 30_000
HALF: list[JsonValue] = ["x"] * (MAX_SETTINGS // 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"notify": LONG}, f"`notify` has 30001 values: expected at most {MAX_SETTINGS}"),
        (
            {"notify": HALF, "desktop.other": HALF},
            "`desktop.other` has 1001 values, 2002 with the edits before it: expected at most 2000",
        ),
        (
            {"desktop": nested(MAX_DEPTH + 1)},
            f"`desktop` has {MAX_DEPTH + 1} levels: expected at most {MAX_DEPTH}",
        ),
    ],
    ids=["many", "many in all", "deep"],
)
async def test_excessive_writes_are_refused_before_the_file_is_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, values: dict[str, JsonValue], message: str
) -> None:
    monkeypatch.delattr(writing, "edit_file")
    client = await stage.client()
    edits = [
        {"keyPath": key, "value": value, "mergeStrategy": "replace"}
        for key, value in values.items()
    ]
    refused = await client.refusal("config/batchWrite", {"edits": edits})
    assert refused.message == message
    assert refused.data["path"] == list(values)[-1]


async def test_no_write_makes_the_file_too_large_to_be_read(stage: Stage) -> None:
    client = await stage.client()
    file = stage.home / "config.toml"
    before = file.read_bytes()
    edit = {"keyPath": "model", "value": "x" * MAX_CONFIG_BYTES, "mergeStrategy": "replace"}
    refused = await client.refusal("config/value/write", edit)
    assert f"bytes: expected at most {MAX_CONFIG_BYTES}" in refused.message
    assert file.read_bytes() == before
    await client.request("config/value/write", {**edit, "value": "small"})


# -- each kind of work has its own threads


@contextmanager
def busy_executor() -> Iterator[None]:
    """Occupy every thread of the loop's default executor."""
    released = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(released.wait)
        asyncio.get_running_loop().set_default_executor(executor)
        try:
            yield
        finally:
            released.set()


async def test_settings_and_watches_do_not_share_the_threads_of_other_work(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    path = str(stage.workspace)
    write = {"keyPath": "model", "value": "m", "mergeStrategy": "replace"}
    with busy_executor():
        async with asyncio.timeout(20):
            await client.request("config/value/write", write)
            await client.request("skills/config/write", {"name": "s", "enabled": False})
            await client.request("account/login/start", {"type": "apiKey", "apiKey": "k"})
            await client.request("account/logout", None)
            await client.request("fs/watch", {"watchId": "w", "path": path})
            await client.request("skills/list", {"cwds": [path]})
            await client.request("thread/delete", {"threadId": thread_id})


async def test_a_write_that_hangs_does_not_delay_other_clients(stage: Stage) -> None:
    edit = {"keyPath": "model", "value": "m", "mergeStrategy": "replace"}
    clients = [await stage.client() for _ in range(2 * MAX_SETTINGS_WORKERS)]
    with stalled(writing, "edit_file") as stall:
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.request("config/value/write", edit))
            await stall.reached()
            assert await answers_others(stage)
            assert stall.calls <= MAX_SETTINGS_WORKERS
            stall.release()


# -- providers that requests describe


async def other_provider(stage: Stage, client: Client, name: str) -> str:
    """Start a thread whose provider differs from all others in a header."""
    headers = {"x-name": name}
    return await client.start(config={"model_providers.mock_provider.http_headers": headers})


async def test_a_limited_number_of_models_is_kept_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MAX_KEPT", 3, raising=False)
    closed: list[str] = []
    close = ProviderEndpoint.close

    async def closing(endpoint: ProviderEndpoint) -> None:
        closed.append(endpoint.config.http_headers["x-name"])
        await close(endpoint)

    monkeypatch.setattr(ProviderEndpoint, "close", closing)
    client = await stage.client()
    gate = asyncio.Event()
    stage.model.plays(says("at last", None, ["at"], gate))
    first = await client.start_turn(await other_provider(stage, client, "first"))
    await client.until("item/agentMessage/delta")
    for number in range(6):
        stage.model.plays(says("ok"))
        thread_id = await other_provider(stage, client, f"{number}")
        assert outline(await client.run(thread_id))[-2:] == EPILOGUE

    # The model that a turn uses stays open, however long ago it was opened.
    assert closed == ["0", "1", "2", "3"]
    gate.set()
    assert outline(await client.end_of(first))[-2:] == EPILOGUE


async def test_a_model_that_was_closed_is_opened_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MAX_KEPT", 1, raising=False)
    client = await stage.client()
    threads = [await other_provider(stage, client, name) for name in "abab"]
    for thread_id in [*threads, *threads]:
        stage.model.plays(says("ok"))
        assert outline(await client.run(thread_id))[-2:] == EPILOGUE
    assert [request.headers["x-name"] for request in stage.model.requests] == list("abababab")


# -- the judgement of commands


async def test_other_clients_are_served_while_a_long_command_is_judged(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), approvalPolicy="never")
    stage.model.plays(calls("exec_command", {"cmd": "echo " + "a" * LONG_COMMAND}))
    with stalled(approvals, "warm_caches") as stall:
        turn_id = await client.start_turn(thread_id)
        await stall.reached()
        assert await answers_others(stage)
        stage.model.plays(says("ok"))
        stall.release()
        assert outline(await client.end_of(turn_id))[-2:] == EPILOGUE
