"""An MCP server with an endless or restless list of tools costs a bounded amount."""

from __future__ import annotations

import sys

import pytest

from tests.harness.mcp import ROOT, STATUS, offered, settled, table
from tests.harness.threads import EPILOGUE, Stage, outline, params_of
from treadle.engine.mcp.connection import session
from treadle.engine.mcp.server import MAX_ENTRIES, MAX_LIST_BYTES
from treadle.protocol.base import JsonValue

LISTS = str(ROOT / "tests" / "harness" / "mcp_lists.py")


def lists(kind: str) -> str:
    return table("lists", command=sys.executable, args=[LISTS, kind], startup_timeout_sec=25)


def is_ready(params: JsonValue) -> bool:
    return bool(params["status"] == "ready")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("many", f"the answers to tools/list have more than {MAX_ENTRIES} entries"),
        ("large", f"the answers to tools/list have more than {MAX_LIST_BYTES} bytes"),
    ],
)
async def test_a_list_over_a_limit_fails_the_start_and_turns_continue(
    stage: Stage, kind: str, reason: str
) -> None:
    """100 pages of 16 MiB were kept for each thread."""
    stage.configure(lists(kind))
    client = await stage.client()
    thread_id = await client.start()
    status = (await settled(client, "lists"))["lists"]
    messages = await client.run(thread_id)

    assert (status["status"], reason in status["error"]) == ("failed", True)
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_reported_change_that_is_none_is_not_published(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients received a hundred notifications per second."""
    monkeypatch.setattr(session, "SECONDS_BETWEEN_LISTS", 0.0)
    stage.configure(lists("same"))
    client = await stage.client()
    thread_id = await client.start()
    first = await client.until(STATUS, is_ready)
    second = await client.until(STATUS, is_ready)
    await client.run(thread_id)

    statuses = [params["status"] for params in params_of([*first, *second], STATUS)]
    assert statuses == ["starting", "ready", "ready"]
    assert [name for name in offered(stage) if "lists" in name] == ["mcp__lists__new"]


async def test_a_list_that_changes_all_the_time_is_read_once_per_interval(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SECONDS_BETWEEN_LISTS", 3600.0)
    stage.configure(lists("changing"))
    client = await stage.client()
    thread_id = await client.start()
    messages = [*await client.until(STATUS, is_ready), *await client.until(STATUS, is_ready)]
    messages += await client.run(thread_id)

    statuses = [params["status"] for params in params_of(messages, STATUS)]
    assert statuses == ["starting", "ready", "ready"]
