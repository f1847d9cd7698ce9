"""Agents that wait for each other many times over: each of them is examined once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

from msgspec.structs import replace

from tests.harness.scripted import client_of, playing
from tests.harness.team import Team, deeds, spawn
from tests.store.builders import Clock, meta
from treadle.engine.stored.threads import MAX_AGENTS, StoredThreads
from treadle.engine.thread import LoadedThread
from treadle.engine.tools.agent_calls import MAX_TARGETS
from treadle.model.scripted.model import calls
from treadle.model.scripted.script import Response
from treadle.protocol.turn import Turn
from treadle.store.journal import ThreadNotFound
from treadle.store.records import RequestOpened
from treadle.store.store import Store
from treadle.store.stored_thread import StoredThread
from treadle.support.concurrency.workers import OnAbandoned, ignore

T = TypeVar("T")

REPEATS = 8
LAYERS = 20


def id_of(number: int) -> str:
    """Return the id of an agent; those of later ones are greater."""
    return f"agent-{number:06}"


def waiting_thread(
    number: int, targets: Sequence[int], *, has_request: bool = False
) -> StoredThread:
    """Return a thread whose server ended while it waited for agents, several times for each."""
    arguments = json.dumps({"targets": [id_of(each) for each in targets] * REPEATS})
    turn = Turn("turn", [], "inProgress", root_turn_id="turn")
    stored = StoredThread(replace(meta(Clock()), id=id_of(number)), [turn])
    stored.running_turn = turn.id
    for index in range(REPEATS):
        call = {"type": "function_call", "name": "wait_agent", "arguments": arguments}
        stored.history.append({**call, "call_id": f"wait-{index}"})
    if has_request:
        call = {"type": "function_call", "name": "exec_command", "arguments": "{}"}
        stored.history.append({**call, "call_id": "ask"})
        opened = RequestOpened("turn/ask", "resumable", "approval", {}, "turn", "ask")
        stored.open_requests[opened.id] = opened
    return stored


class AgentStore(Store):
    """A store of threads in memory, which counts how often each is read."""

    def __init__(self, home: Path, threads: Sequence[StoredThread]) -> None:
        super().__init__(home)
        self._threads = {thread.meta.id: thread for thread in threads}
        self.reads: Counter[str] = Counter()

    def read(self, thread_id: str, *, turns: bool = True) -> StoredThread:
        assert turns, "metadata has no calls"
        self.reads[thread_id] += 1
        assert self.reads[thread_id] == 1, f"{thread_id} is read again"
        if thread_id not in self._threads:
            raise ThreadNotFound(thread_id)
        return self._threads[thread_id]

    async def run(self, work: Callable[[], T], on_abandoned: OnAbandoned[T] = ignore) -> T:
        assert on_abandoned is ignore, "nothing is opened"
        return work()


async def test_an_agent_that_many_calls_wait_for_is_read_once(home: Path) -> None:
    """Ours: each further call multiplied the reads, so that `thread/read` never answered."""
    agents = [waiting_thread(number, [number + 1, number + 2]) for number in range(LAYERS)]
    last = waiting_thread(LAYERS, [], has_request=True)
    store = AgentStore(home, [*agents, last])

    is_waiting = await StoredThreads(store, {}).find_waiting_agents(agents[0])

    assert all(is_waiting(id_of(number)) for number in range(1, LAYERS + 1))
    assert not is_waiting(id_of(LAYERS + 1))
    assert sorted(store.reads) == [id_of(number) for number in range(1, LAYERS + 2)]


async def test_a_long_chain_of_agents_is_followed_up_to_a_limit(home: Path) -> None:
    """Ours: the depth of the chain was the depth of a recursion."""
    long = [waiting_thread(number, [number + 1]) for number in range(3 * MAX_AGENTS)]
    store = AgentStore(home, long)
    is_waiting = await StoredThreads(store, {}).find_waiting_agents(long[0])
    assert not is_waiting(id_of(1))
    assert len(store.reads) == MAX_AGENTS

    short = long[: MAX_AGENTS - 1]
    store = AgentStore(home, [*short, waiting_thread(len(short), [], has_request=True)])
    is_waiting = await StoredThreads(store, {}).find_waiting_agents(short[0])
    assert is_waiting(id_of(1))


def loaded_threads(waits: Mapping[int, Sequence[int]], *, asks: int) -> dict[str, LoadedThread]:
    """Return threads in memory that wait for each other; one has an open server request."""

    def thread(number: int, targets: Sequence[int]) -> LoadedThread:
        names = [id_of(target) for target in targets]
        turn = SimpleNamespace(is_streaming=False, running_calls={"c"}, waits={"c": names})
        waiting = {"c"} if number == asks else set[str]()
        requests = SimpleNamespace(waiting_calls=lambda: waiting)
        state = SimpleNamespace(id=id_of(number), turn=turn, server_requests=requests)
        return cast(LoadedThread, SimpleNamespace(state=state))

    return {id_of(number): thread(number, targets) for number, targets in waits.items()}


def test_loaded_agents_are_examined_once_however_they_wait(home: Path) -> None:
    """Ours: a diamond of waits took twice the time with every layer, a long chain a recursion."""
    count = 5000
    waits = {number: [number + 1, number + 2] * REPEATS for number in range(count)}
    loaded = loaded_threads({**waits, count: [], count + 1: []}, asks=count)
    assert StoredThreads(Store(home), loaded).only_waiting() == loaded.keys() - {id_of(count + 1)}
    in_a_circle = loaded_threads({0: [1], 1: [0]}, asks=2)
    assert StoredThreads(Store(home), in_a_circle).only_waiting() == set()


async def test_repeated_targets_count_and_show_once(home: Path) -> None:
    team = Team()

    def wait_often(child_id: str) -> Response:
        targets = [child_id] * (MAX_TARGETS + 1)
        return calls("wait_agent", {"targets": targets}, call_id="wait")

    team.plays(spawn(), wait_often)
    async with (
        asyncio.timeout(20),
        playing(home, team.model) as server,
        client_of(server) as client,
    ):
        messages = await client.run(await client.start())
    (_, waited) = deeds(messages)
    assert waited["receiverThreadIds"] == [team.child_id]
    assert json.loads(team.last_output())["status"] == {team.child_id: {"completed": "child done"}}


async def test_threads_that_name_each_other_as_parents_are_not_descendants(home: Path) -> None:
    """Ours: a search for the first ancestor walked in a circle and stopped the server."""
    first, second = (meta(Clock(), model_provider="openai") for _ in range(2))
    store = Store(home)
    for each, parent in ((first, second), (second, first)):
        store.create(replace(each, parent_thread_id=parent.id)).close()
    store.close()
    script: list[Response] = [
        calls("wait_agent", {"targets": [second.id]}, call_id="w1"),
        "waited",
        calls("wait_agent", {"targets": [first.id]}, call_id="w2"),
        calls("spawn_agent", {"message": "look"}, call_id="spawn"),
        "done",
        "done",
    ]
    async with asyncio.timeout(20), playing(home, script) as server, client_of(server) as client:
        for thread_id in (first.id, second.id):
            await client.request("thread/resume", {"threadId": thread_id})
        messages = await client.run(first.id) + await client.run(second.id)
    found, circle, spawned = deeds(messages)
    assert found["agentsStates"][second.id]["status"] != "notFound"
    assert circle["agentsStates"] == {first.id: {"status": "notFound", "message": None}}
    assert spawned["status"] == "completed"
