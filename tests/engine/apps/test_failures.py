"""Services of apps that fail, hang, answer garbage or send too much."""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.apps.ground import (
    CALENDAR,
    DEMO,
    AppsGround,
    calls_app,
    items_of,
    outputs_of,
    spaces_of,
    statuses_of,
)
from tests.harness.account_service import Send, document, hangs, is_endless, raw
from tests.harness.apps_service import MCP, READS, TOOLS, tool
from tests.harness.model_server import Reply, calls, says
from tests.harness.threads import text_input
from treadle.engine.mcp import servers
from treadle.protocol.base import JsonValue

ALL = {DEMO: ["search"], CALENDAR: ["_create_event", "_list_events"]}
FAILED = "MCP client for `codex_apps` failed to start: "


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("initialize", document({"error": "no"}, 500)),
        ("initialize", document({"detail": "Not Found"}, 404)),
        ("initialize", raw(b"\x00garbage")),
        ("initialize", document(["not", "a", "message"])),
        ("initialize", {"result": {"capabilities": 7}}),
        ("initialize", {"error": {"code": -1, "message": "no"}}),
        ("tools/list", document({"error": "no"}, 500)),
        ("tools/list", raw(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{")),
        ("tools/list", {"result": {"tools": "not a list"}}),
        ("tools/list", {"result": {"tools": [7, {"name": 7}, {}]}}),
    ],
)
async def test_a_service_that_fails_leaves_a_thread_without_apps(
    ground: AppsGround, method: str, answer: Reply | Send | JsonValue
) -> None:
    """Ours: the turn runs; clients learn why."""
    ground.apps.fail(method, answer)
    client, thread = await ground.thread()
    messages = await client.run(thread)

    assert messages[-1]["params"]["turn"]["status"] == "completed"
    assert spaces_of(ground.requests[0]) == {}
    assert [status for _, status, _ in statuses_of(client)] == ["starting", "failed"]
    assert (statuses_of(client)[-1][2] or "").startswith(FAILED)


async def test_ten_thousand_tools_are_refused_with_the_limit(ground: AppsGround) -> None:
    ground.apps.tools = [tool(f"demo_{n}", "demo") for n in range(10_000)]
    client, thread = await ground.thread()
    await client.run(thread)

    error = f"{FAILED}MCP startup failed: the answers to tools/list have more than 5000 entries"
    assert statuses_of(client)[-1] == ("codex_apps", "failed", error)


async def test_thousands_of_tools_are_searched_and_called(ground: AppsGround) -> None:
    """Ours: five thousand are allowed."""
    ground.apps.tools = [tool(f"demo_{n}", "demo", annotations=READS) for n in range(4_999)]
    ground.apps.tools.append(TOOLS[1])
    ground.apps.replies.extend(
        [
            calls("tool_search", {"query": "google calendar"}, "s-1"),
            calls_app(CALENDAR, "_list_events", call_id="call-2"),
            says("ok"),
        ]
    )
    client, thread = await ground.thread()
    messages = await client.run(thread)

    assert spaces_of(ground.requests[0]) == {}
    assert list(spaces_of(ground.requests[1])) == [CALENDAR]
    assert [item["status"] for item in items_of(messages)] == ["completed"]


@pytest.mark.parametrize("answer", [hangs, is_endless])
async def test_a_service_that_hangs_delays_no_turn(ground: AppsGround, answer: Send) -> None:
    """Upstream: the turn begins without its tools; and the server can end."""
    ground.apps.methods["initialize"] = answer
    ground.configure_apps(waits=0)
    client = await ground.client()
    messages = await client.run(await client.start())

    assert messages[-1]["params"]["turn"]["status"] == "completed"
    assert spaces_of(ground.requests[0]) == {}


async def test_a_turn_that_mentions_an_app_waits_for_the_tools(ground: AppsGround) -> None:
    """Ours: the first turn of a server has them, even if they arrive late."""
    ground.apps.gate = asyncio.Event()
    ground.configure_apps(waits=0)
    client = await ground.client()
    thread = await client.start()
    mention = {"type": "mention", "name": "Demo App", "path": "app://demo"}
    turn = await client.start_turn(thread, input=[text_input("hi"), mention])
    await ground.apps.wait_for_method("tools/list")
    before = len(ground.requests)
    ground.apps.gate.set()
    await client.end_of(turn)

    assert before == 0
    assert spaces_of(ground.requests[0]) == ALL


async def test_a_call_that_hangs_can_be_interrupted(ground: AppsGround) -> None:
    ground.apps.methods["tools/call"] = hangs
    ground.apps.replies.append(calls_app(DEMO, "search"))
    client, thread = await ground.thread()
    turn = await client.start_turn(thread)
    await ground.apps.wait_for_method("tools/call")
    await client.request("turn/interrupt", {"threadId": thread, "turnId": turn})
    messages = await client.end_of(turn)

    (item,) = items_of(messages)
    assert (item["status"], item["error"]) == (
        "failed",
        {"message": "MCP tool call was interrupted"},
    )


@pytest.mark.parametrize(
    "answer",
    [
        document({"error": "no"}, 500),
        {"error": {"code": -1, "message": "no"}},
        {"result": 7},
        raw(b"\x00garbage"),
    ],
)
async def test_a_call_that_fails_fails_alone(
    ground: AppsGround, answer: Reply | Send | JsonValue
) -> None:
    ground.apps.fail("tools/call", answer)
    ground.apps.replies.extend([calls_app(DEMO, "search"), says("ok")])
    client, thread = await ground.thread()
    messages = await client.run(thread)

    assert [item["status"] for item in items_of(messages)] == ["failed"]
    assert outputs_of(ground.requests[1])["call-1"].startswith("tool call error: ")
    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_a_service_that_failed_is_started_again_by_a_later_turn(
    ground: AppsGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: after a minute, which is none here."""
    monkeypatch.setattr(servers, "APPS_RETRY_SECONDS", 0.0)
    ground.apps.methods["initialize"] = document({}, 500)
    client, thread = await ground.thread()
    await client.run(thread)
    ground.apps.methods.clear()
    await client.run(thread)

    assert [bool(spaces_of(each)) for each in ground.requests] == [False, True]


async def test_a_service_that_failed_is_left_alone_for_a_minute(ground: AppsGround) -> None:
    ground.apps.methods["initialize"] = document({}, 500)
    client, thread = await ground.thread()
    for _ in range(3):
        await client.run(thread)

    assert len(ground.apps.of_path(MCP)) == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"connector_id": 7, "connector_name": "x"},
        {"connector_id": "  "},
        {"connector_id": "x" * 100_000},
        {"connector_id": "odd", "connector_name": ["x"], "_codex_apps": 7, "ui": []},
        {"connector_id": "odd", "connector_name": "\x00/\u202e", "ui": {"resourceUri": 7}},
    ],
)
async def test_odd_metadata_harms_no_other_tool(ground: AppsGround, odd: JsonValue) -> None:
    ground.apps.tools = [*TOOLS, tool("odd", None, _meta=odd, annotations=READS)]
    ground.apps.replies.extend([calls_app(DEMO, "search"), says("ok")])
    client, thread = await ground.thread()
    messages = await client.run(thread)

    assert {CALENDAR, DEMO} <= set(spaces_of(ground.requests[0]))
    assert [item["status"] for item in items_of(messages)] == ["completed"]
