"""A client whose connection is cut repeatedly ends up with the same state as any other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.processes import listening
from tests.harness.scripted import PacedModel, client_of, over, playing, write_script
from tests.harness.threads import Client
from treadle.engine.events import log as log_module
from treadle.model.base import Completed, ModelEvent
from treadle.model.scripted.script import says, thinks
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.transport.websocket.listener import WebSocketListener, connect_websocket

SECONDS = 50
PAUSE = {"type": "waits", "seconds": 0.01}
TEXT = "The quick brown fox jumps over the lazy dog, and then again."
PIECES = [TEXT[at : at + 4] for at in range(0, len(TEXT), 4)]


def is_event(message: JsonValue) -> bool:
    """Whether this message is an event of a thread, not a broadcast."""
    return "method" in message and "seq" in message


async def next_event(client: Client) -> JsonValue:
    """The next event of the thread."""
    while not is_event(message := await next_message(client)):
        pass
    return message


async def next_message(client: Client) -> JsonValue:
    return client.unread.pop(0) if client.unread else await client.peer.receive()


def is_end(message: JsonValue) -> bool:
    return bool(message["method"] == "turn/completed")


async def events_until_end(client: Client) -> list[JsonValue]:
    """All events of the thread until a turn ends."""
    events = [await next_event(client)]
    while not is_end(events[-1]):
        events.append(await next_event(client))
    return events


async def follow_with_cuts(
    url: str, thread_id: str, after: int, chance: random.Random
) -> list[JsonValue]:
    """Follow a thread to the end of a turn over a connection that breaks every few events."""
    events: list[JsonValue] = []
    while not events or not is_end(events[-1]):
        async with over(await connect_websocket(url)) as client:
            await client.request("thread/resume", {"threadId": thread_id, "afterSeq": after})
            for _ in range(chance.randrange(1, 8)):
                events.append(await next_event(client))
                if is_end(events[-1]):
                    break
        after = events[-1]["seq"]
    return events


async def test_a_connection_cut_every_few_events_delivers_each_event_once_and_in_order(
    home: Path,
) -> None:
    """Ours: `afterSeq` returns exactly what was missed, from a real server over a real socket."""
    steps: list[JsonValue] = []
    for number in range(12):
        steps += [
            {"type": "thinks", "summary": [f"thought {number}"], "raw": "raw"},
            {"type": "says", "text": TEXT, "deltas": PIECES},
            PAUSE,
        ]
    steps.append({"type": "calls", "tool": "update_plan", "arguments": {"plan": []}})
    script = write_script(home.parent / "script.json", [steps, ["done"]])
    with listening(home, "--listen", "ws://127.0.0.1:0", TREADLE_SCRIPT=str(script)) as process:
        url = process.websocket_url()
        async with asyncio.timeout(SECONDS), over(await connect_websocket(url)) as undisturbed:
            thread_id = await undisturbed.start()
            async with asyncio.TaskGroup() as tasks:
                chance = random.Random(7)  # noqa: S311 - the same cuts each time
                cut = tasks.create_task(follow_with_cuts(url, thread_id, 0, chance))
                await undisturbed.start_turn(thread_id)
                whole = await events_until_end(undisturbed)
        events = cut.result()
    assert events == whole
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) > 12 * (len(PIECES) + 6)


def rebuilt(messages: list[JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    """What a client shows after these messages: the items as they stand, and the ends of turns."""
    items: dict[str, JsonValue] = {}
    ends: list[str] = []
    for message in messages:
        params = message["params"]
        match message["method"]:
            case "item/started" | "item/completed":
                items[params["item"]["id"]] = dict(params["item"])
            case "item/agentMessage/delta":
                items[params["itemId"]]["text"] += params["delta"]
            case "turn/completed":
                ends.append(params["turn"]["status"])
            case _:
                pass
    return items, ends


class Turnstile:
    """Lets the model send a limited number of events."""

    def __init__(self) -> None:
        self._permits = 0
        self._more = asyncio.Event()
        self._stopped = asyncio.Event()

    async def pace(self, event: ModelEvent) -> None:
        """Wait for a permit; the last event needs none."""
        while self._permits == 0:
            self._stopped.set()
            self._more.clear()
            await self._more.wait()
        self._permits -= 1
        if isinstance(event, Completed):
            self._stopped.set()

    async def admit(self, count: int) -> None:
        """Admit some events, and wait until they have passed."""
        self._permits = count
        self._stopped.clear()
        self._more.set()
        await self._stopped.wait()


async def receive_some(url: str, thread_id: str, after: int, share: float) -> list[JsonValue]:
    """Reconnect, receive a part of what was missed, then lose the connection again."""
    async with over(await connect_websocket(url)) as client:
        await client.request("thread/resume", {"threadId": thread_id, "afterSeq": after})
        messages = [message for message in await client.settled() if is_shown(message)]
        return messages[: round(share * len(messages))]


def is_shown(message: JsonValue) -> bool:
    return bool(message["method"].startswith(("item/", "turn/")))


def check_texts(heard: list[JsonValue]) -> None:
    """Assert that the text of a message is always a prefix of what the model has sent."""
    items, _ends = rebuilt(heard)
    shown = [item["text"] for item in items.values() if item["type"] == "agentMessage"]
    assert all(TEXT.startswith(text) for text in shown), shown


@pytest.mark.parametrize("seed", range(4))
async def test_where_deltas_have_expired_the_item_is_sent_again_with_its_whole_text(
    home: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ours: a client that is away for longer than deltas are kept ends up with the same state."""
    monkeypatch.setattr(log_module, "MAX_RECENT", 4)
    chance = random.Random(seed)  # noqa: S311 - the same cuts each time
    turnstile = Turnstile()
    steps = (thinks("hm"), says(TEXT, deltas=PIECES), says(TEXT, deltas=PIECES))
    model = PacedModel([steps * 3], turnstile.pace)
    heard: list[JsonValue] = []
    async with listener_of(home, model) as (server, url), client_of(server) as undisturbed:
        thread_id = await undisturbed.start()
        await undisturbed.start_turn(thread_id)
        after = 0
        while not heard or not is_end(heard[-1]):
            if server.threads.get(thread_id).turn is not None:
                await turnstile.admit(chance.randrange(1, 16))
            heard += await receive_some(url, thread_id, after, chance.random())
            after = max([after, *(message.get("seq", 0) for message in heard)])
            check_texts(heard)
        thread = await undisturbed.read(thread_id)
    started = [each["params"]["item"] for each in heard if each["method"] == "item/started"]
    assert any(item.get("text") for item in started), "no open item was sent again"
    stored = {item["id"]: item for turn in thread["turns"] for item in turn["items"]}
    assert rebuilt(heard) == (stored, ["completed"])


@asynccontextmanager
async def listener_of(home: Path, model: PacedModel) -> AsyncIterator[tuple[Server, str]]:
    """A server in this process on a real socket."""
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    async with playing(home, model) as server, asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(listener))
        yield server, "ws://{}:{}".format(*listener.address)
        serving.cancel()
