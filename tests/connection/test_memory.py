"""What a peer makes this end keep is bounded: answers that it does not read, params that wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.connection.methods import ECHO, LARGE, WAIT, Methods, TextParams, TextResponse, router
from treadle.connection.connection import Connection
from treadle.connection.context import Context
from treadle.connection.dispatch import MAX_IN_FLIGHT_BYTES, MAX_LARGE_ANSWERS
from treadle.connection.outbound import MAX_OUTBOUND_BYTES
from treadle.jsonrpc.framing import Frame

MIB = 1024 * 1024
TEXT = "x" * MIB
COUNT = 300


class Pipeline:
    """A peer that sends all its requests at once and reads only on demand."""

    peer = "pipeline"

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = frames
        self.reading = asyncio.Event()
        self.leaving = asyncio.Event()
        self.answers: list[dict[str, Any]] = []
        self._arrived = asyncio.Condition()

    async def receive(self) -> Sequence[Frame]:
        frames, self._frames = self._frames, ()
        if not frames:
            await self.leaving.wait()
        return frames

    async def send(self, frames: Sequence[bytes]) -> None:
        await self.reading.wait()
        async with self._arrived:
            self.answers += map(json.loads, frames)
            self._arrived.notify_all()

    async def close(self) -> None:
        self.reading.set()
        self.leaving.set()

    async def has(self, count: int) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.answers) == count)


def frame(number: int, method: str, text: str = "") -> bytes:
    document = {"id": number, "method": method, "params": {"text": text}}
    return json.dumps(document).encode()


@asynccontextmanager
async def served(far: Methods, frames: Sequence[bytes]) -> AsyncIterator[Pipeline]:
    pipeline = Pipeline(frames)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(pipeline, far, "far").run())
        yield pipeline
        await pipeline.close()


async def settle() -> None:
    for _ in range(2000):
        await asyncio.sleep(0)


async def test_admitted_requests_do_not_start_while_the_peer_reads_no_answers() -> None:
    far, started = router(), list[str]()

    @far.request(ECHO)
    def echo(_ctx: Context[str], params: TextParams) -> TextResponse:
        started.append(params.text)
        return TextResponse(TEXT)

    frames = [frame(number, ECHO.method, str(number)) for number in range(COUNT)]
    async with served(far, frames) as peer:
        await settle()
        assert len(started) <= MAX_OUTBOUND_BYTES // MIB + 1
        peer.reading.set()
        await peer.has(COUNT)
    assert [answer["id"] for answer in peer.answers] == list(range(COUNT))


async def test_few_requests_with_large_answers_run_at_once() -> None:
    """The memory for 80 answers of 27 MB to a client that read none was 2.1 GB."""
    far, going = router(), asyncio.Semaphore(0)
    running = most = ended = 0

    @far.request(LARGE)
    async def large(_ctx: Context[str], _params: TextParams) -> TextResponse:
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        await going.acquire()
        running -= 1
        ended += 1
        return TextResponse(TEXT)

    frames = [frame(number, LARGE.method) for number in range(COUNT)]
    async with served(far, frames) as peer:
        await settle()
        for _ in range(COUNT):
            going.release()
        await settle()
        assert (most, running) == (MAX_LARGE_ANSWERS, 0)
        assert ended <= MAX_OUTBOUND_BYTES // MIB + MAX_LARGE_ANSWERS
        peer.reading.set()
        await peer.has(COUNT)
    assert {answer["id"] for answer in peer.answers} == set(range(COUNT))


async def test_other_requests_overtake_those_with_large_answers() -> None:
    far, going = router(), asyncio.Event()

    @far.request(LARGE)
    async def large(_ctx: Context[str], _params: TextParams) -> TextResponse:
        await going.wait()
        return TextResponse(text=TEXT)

    @far.request(WAIT)
    async def small(_ctx: Context[str], _params: TextParams) -> TextResponse:
        return TextResponse("")

    frames = [*(frame(number, LARGE.method) for number in range(9)), frame(9, WAIT.method)]
    async with served(far, frames) as peer:
        peer.reading.set()
        await peer.has(1)
        assert [answer["id"] for answer in peer.answers] == [9]
        going.set()
        await peer.has(10)


async def test_params_that_wait_are_limited_and_every_refusal_is_sent() -> None:
    """Our own limit; 80 writes of 20 MB to a command that reads nothing took 1.6 GB."""
    far, going = router(), asyncio.Event()

    @far.request(WAIT)
    async def wait(_ctx: Context[str], _params: TextParams) -> TextResponse:
        await going.wait()
        return TextResponse("")

    fitting = MAX_IN_FLIGHT_BYTES // MIB - 1
    async with served(far, [frame(number, WAIT.method, TEXT) for number in range(COUNT)]) as peer:
        peer.reading.set()
        await peer.has(COUNT - fitting)
        assert [answer["id"] for answer in peer.answers] == list(range(fitting, COUNT))
        assert {answer["error"]["code"] for answer in peer.answers} == {-32001}
        going.set()
        await peer.has(COUNT)


async def test_ids_of_requests_that_wait_are_limited_too() -> None:
    """The ids of 512 requests of one peer could have 64 MB each."""
    far, going = router(), asyncio.Event()

    @far.request(WAIT)
    async def wait(_ctx: Context[str], _params: TextParams) -> TextResponse:
        await going.wait()
        return TextResponse("")

    params = b'"method":"%b","params":{"text":""}' % WAIT.method.encode()
    frames = [b'{"id":"%03d%b",%b}' % (number, TEXT.encode(), params) for number in range(COUNT)]
    fitting = MAX_IN_FLIGHT_BYTES // MIB - 1
    async with served(far, frames) as peer:
        peer.reading.set()
        await peer.has(COUNT - fitting)
        assert {answer["error"]["code"] for answer in peer.answers} == {-32001}
        assert [int(answer["id"][:3]) for answer in peer.answers] == list(range(fitting, COUNT))
        going.set()
        await peer.has(COUNT)


async def test_answered_requests_make_room_for_more_params() -> None:
    far = router()

    @far.request(WAIT)
    async def wait(_ctx: Context[str], _params: TextParams) -> TextResponse:
        return TextResponse("")

    async with served(far, [frame(number, WAIT.method, TEXT) for number in range(COUNT)]) as peer:
        peer.reading.set()
        await peer.has(COUNT)
        assert not [answer for answer in peer.answers if "error" in answer]
