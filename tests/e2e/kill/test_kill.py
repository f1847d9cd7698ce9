"""A server that is killed repeatedly at any moment loses nothing that it has published."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.harness.peer import HungUp, Peer
from tests.harness.processes import spawn_server
from tests.harness.soak import rounds
from treadle.protocol.base import JsonValue
from treadle.transport.base import TransportError
from treadle.transport.subprocess import SubprocessTransport

TURNS = rounds(200)
KILLS = rounds(40)

FIRST = [
    {"type": "thinks", "summary": ["One thing", "and another"]},
    {"type": "says", "text": "Let me see.", "deltas": ["Let ", "me ", "see."]},
    {"type": "calls", "tool": "update_plan", "arguments": {"plan": []}},
]
SECOND = [
    {"type": "says", "text": "That is it.", "deltas": ["That ", "is ", "it."]},
    {"type": "usage", "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}},
]


class Witness:
    """A client that remembers across connections what it has received."""

    def __init__(self) -> None:
        self.thread_id = ""
        self.last_seq: int | None = None
        self.seqs: list[int] = []
        self.items: dict[str, JsonValue] = {}
        self.started: set[str] = set()
        self.ended: Counter[str] = Counter()
        self.statuses: dict[str, str] = {}
        self._ids = count()

    def hear(self, message: JsonValue) -> None:
        """Record a notification."""
        params = message["params"]
        if "seq" in message:
            self.seqs.append(message["seq"])
            self.last_seq = message["seq"]
        match message["method"]:
            case "item/completed":
                self.items[params["item"]["id"]] = params["item"]
            case "turn/started":
                self.started.add(params["turn"]["id"])
            case "turn/completed":
                self.ended[params["turn"]["id"]] += 1
                self.statuses[params["turn"]["id"]] = params["turn"]["status"]
            case _:
                pass

    async def request(self, peer: Peer, method: str, params: JsonValue) -> JsonValue:
        """Send a request; record the notifications that arrive meanwhile."""
        id_ = next(self._ids)
        await peer.send({"id": id_, "method": method, "params": params})
        while (message := await peer.receive()).get("id") != id_:
            self.hear(message)
        assert "result" in message, message
        return message["result"]

    async def come_back(self, peer: Peer) -> None:
        """Connect and continue the thread where it was left."""
        await peer.initialize(experimentalApi=True)
        if not self.thread_id:
            answer = await self.request(peer, "thread/start", {})
            self.thread_id = answer["thread"]["id"]
        else:
            params = {"threadId": self.thread_id, "afterSeq": self.last_seq}
            await self.request(peer, "thread/resume", params)

    async def say(self, peer: Peer, number: int) -> str:
        """Send a message, possibly again, and wait until its turn is over."""
        answer = await self.request(
            peer,
            "turn/start",
            {
                "threadId": self.thread_id,
                "input": [{"type": "text", "text": f"message {number}"}],
                "clientUserMessageId": f"m{number}",
            },
        )
        turn_id: str = answer["turn"]["id"]
        while turn_id not in self.ended:
            self.hear(await peer.receive())
        return turn_id

    async def listen_to_the_end(self, peer: Peer) -> None:
        """Record what was in transit when the server died."""
        try:
            while True:
                message = await peer.receive()
                if "method" in message:
                    self.hear(message)
        except (HungUp, TransportError):
            pass


class Executioner(Peer):
    """A connection whose server is killed after a number of messages."""

    def __init__(self, transport: SubprocessTransport, messages: int | None) -> None:
        super().__init__(transport)
        self._pid = transport.pid
        self._left = messages

    async def receive(self) -> JsonValue:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(self._pid, signal.SIGKILL)
        return await super().receive()


@asynccontextmanager
async def server(home: Path, script: Path, messages: int | None) -> AsyncIterator[Executioner]:
    transport = spawn_server(home, TREADLE_SCRIPT=str(script))
    try:
        yield Executioner(transport, messages)
    finally:
        if transport.exit_code is None and messages is not None:
            os.kill(transport.pid, signal.SIGKILL)
        await transport.close()


async def converse(home: Path, script: Path, witness: Witness, chance: random.Random) -> list[str]:
    """Run all the turns under a server that dies and is started again."""
    turns: list[str] = []
    for kills in count():
        messages = chance.randrange(3, 160) if kills < KILLS else None
        async with server(home, script, messages) as peer:
            try:
                await witness.come_back(peer)
                while len(turns) < TURNS:
                    turns.append(await witness.say(peer, len(turns)))
                answer = await witness.request(
                    peer, "thread/read", {"threadId": witness.thread_id, "includeTurns": True}
                )
                check(witness, answer["thread"]["turns"], turns)
                page = await witness.request(peer, "thread/list", {})
                listed = [(thread["id"], thread["preview"]) for thread in page["data"]]
                assert listed == [(witness.thread_id, "message 0")]
                return turns
            except (HungUp, TransportError):
                await witness.listen_to_the_end(peer)
    raise AssertionError


def check(witness: Witness, stored: list[JsonValue], turns: list[str]) -> None:
    """Compare what is stored at the end with all that was ever received."""
    items = {item["id"]: item for turn in stored for item in turn["items"]}
    assert {id_: items.get(id_) for id_ in witness.items} == witness.items
    said = [item["clientId"] for item in items.values() if item["type"] == "userMessage"]
    assert said == [f"m{number}" for number in range(TURNS)]
    assert {turn["status"] for turn in stored} <= {"completed", "interrupted"}
    assert {turn["id"]: turn["status"] for turn in stored} == witness.statuses
    assert set(witness.ended.values()) == {1}
    assert set(turns) | witness.started == set(witness.ended)
    assert witness.seqs == sorted(set(witness.seqs))
    interrupted = [turn for turn in stored if turn["status"] == "interrupted"]
    assert all("the server ended" in turn["error"]["message"] for turn in interrupted)


@pytest.mark.parametrize("seed", [1])
async def test_no_published_event_is_lost_and_no_message_is_duplicated(
    home: Path, seed: int
) -> None:
    """Ours: at random points of many turns, the next server knows all that was published."""
    script = home.parent / "script.json"
    script.write_text(json.dumps([FIRST, SECOND] * TURNS), "utf-8")
    witness = Witness()
    async with asyncio.timeout(50):
        chance = random.Random(seed)  # noqa: S311 - the same points each time
        turns = await converse(home, script, witness, chance)
    assert len(turns) == len(set(turns)) == TURNS
