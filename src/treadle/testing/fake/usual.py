"""The default plays of a fake: a small, well-behaved app-server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from treadle.protocol.base import JsonValue
from treadle.testing.fake.connection import FakeConnection
from treadle.testing.fake.plays import Play, answers, never

THREAD: Final = "thr-1"
_REQUEST_FIELDS: Final = {"startedAtMs": 1, "itemId": "item-1"}
_INFO: Final = {
    "userAgent": "fake/0.1",
    "codexHome": "/home/fake",
    "platformFamily": "unix",
    "platformOs": "linux",
}
_USAGE: Final = {
    "cachedInputTokens": 0,
    "inputTokens": 3,
    "outputTokens": 2,
    "reasoningOutputTokens": 0,
    "totalTokens": 5,
}


def thread(id_: str = THREAD, **more: JsonValue) -> JsonValue:
    """Return a thread as a server presents it."""
    return {
        "id": id_,
        "sessionId": id_,
        "preview": "",
        "ephemeral": False,
        "modelProvider": "fake",
        "createdAt": 1,
        "updatedAt": 1,
        "status": {"type": "idle"},
        "cwd": "/home/fake/project",
        "cliVersion": "0.0.1",
        "source": "vscode",
        "projectId": None,
        "turns": [],
        **more,
    }


def message(text: str, id_: str = "item-1") -> JsonValue:
    """Return an agent message item."""
    return {"type": "agentMessage", "id": id_, "text": text}


def turn(
    text: str = "Hello",
    *,
    deltas: Sequence[str] = (),
    items: Sequence[JsonValue] = (),
    asks: Sequence[tuple[str, JsonValue]] = (),
    status: str = "completed",
    error: JsonValue = None,
) -> Play:
    """Run a turn for `turn/start`: server requests, items, a message, then the end.

    The ids of thread and turn are added to the server requests. An `error` fails the turn.
    """

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        thread_id = request["params"]["threadId"]
        turn_id = connection.new_id("turn")
        ids = {"threadId": thread_id, "turnId": turn_id}
        started = {"id": turn_id, "items": [], "status": "inProgress"}
        await connection.answer(request, {"turn": started})
        await connection.notify("turn/started", {**ids, "turn": started})
        for method, params in asks:
            await connection.ask(method, {**ids, **_REQUEST_FIELDS, **(params or {})})
        for item in items:
            await _send_item(connection, ids, item)
        if text:
            await _send_item(connection, ids, message(text), deltas or [text])
        usage = {"last": _USAGE, "total": _USAGE}
        await connection.notify("thread/tokenUsage/updated", {**ids, "tokenUsage": usage})
        completed = {**started, "status": "failed" if error else status, "error": error}
        if error:
            await connection.notify("error", {**ids, "error": error, "willRetry": False})
        await connection.notify("turn/completed", {**ids, "turn": completed})

    return play


async def _send_item(
    connection: FakeConnection, ids: JsonValue, item: JsonValue, deltas: Sequence[str] = ()
) -> None:
    started = {**item, "text": ""} if deltas else item
    await connection.notify("item/started", {**ids, "item": started, "startedAtMs": 1})
    for delta in deltas:
        params = {**ids, "itemId": item["id"], "delta": delta}
        await connection.notify("item/agentMessage/delta", params)
    await connection.notify("item/completed", {**ids, "item": item, "completedAtMs": 2})


def usual() -> Mapping[str, Play]:
    """Return the default plays by method."""
    numbers = count(1)

    async def start_thread(connection: FakeConnection, request: JsonValue) -> None:
        created = thread(f"thr-{next(numbers)}")
        await connection.answer(request, _session(created))
        await connection.notify("thread/started", {"thread": created})

    async def resume_thread(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, _session(thread(request["params"]["threadId"])))

    async def read_thread(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"thread": thread(request["params"]["threadId"])})

    async def steer(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, {"turnId": request["params"]["expectedTurnId"]})

    return {
        "initialize": answers(_INFO),
        "initialized": never(),
        "thread/start": start_thread,
        "thread/resume": resume_thread,
        "thread/read": read_thread,
        "turn/start": turn(),
        "turn/steer": steer,
        "turn/interrupt": answers({}),
        "model/list": answers({"data": [], "nextCursor": None}),
    }


def _session(of: JsonValue) -> JsonValue:
    return {
        "thread": of,
        "model": "fake",
        "modelProvider": "fake",
        "cwd": of["cwd"],
        "approvalPolicy": "never",
        "approvalsReviewer": "user",
        "sandbox": {"type": "readOnly"},
    }
