"""The queue for a slow peer is bounded, in order, and never dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from tests.connection.methods import ECHO, TextParams, TextResponse, router
from treadle.connection.connection import Connection
from treadle.connection.context import Context
from treadle.connection.outbound import MAX_OUTBOUND_BYTES, Outbound
from treadle.jsonrpc.framing import Frame


class SlowReader:
    """A peer that sends requests without end and reads only on demand."""

    peer = "slow"

    def __init__(self, text: str) -> None:
        self.reading = asyncio.Event()
        self.ending = asyncio.Event()
        self.asked = 0
        self.answered: list[int] = []
        self._frame = b'{"id":%%d,"method":"test/echo","params":{"text":"%s"}}' % text.encode()

    async def receive(self) -> Sequence[Frame]:
        if self.ending.is_set():
            return ()
        self.asked += 1
        return [self._frame % self.asked]

    async def send(self, frames: Sequence[bytes]) -> None:
        await self.reading.wait()
        self.answered += (json.loads(frame)["id"] for frame in frames)

    async def close(self) -> None:
        self.reading.set()


async def test_a_peer_that_does_not_read_is_not_read_from_either() -> None:
    far = router()

    @far.request(ECHO)
    def echo(_ctx: Context[str], params: TextParams) -> TextResponse:
        return TextResponse(params.text)

    size = 1024 * 1024
    slow = SlowReader("x" * size)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(slow, far, "slow").run())
        before = -1
        while before != slow.asked:
            before = slow.asked
            for _ in range(10):
                await asyncio.sleep(0)
        # The same amount is read ahead, to notice a disconnect.
        assert slow.asked * size <= 2 * (MAX_OUTBOUND_BYTES + size)
        slow.ending.set()
        slow.reading.set()
    assert slow.answered == list(range(1, slow.asked + 1))


async def test_sending_continues_once_the_peer_has_read() -> None:
    class Sink:
        peer = "sink"

        def __init__(self) -> None:
            self.frames: list[bytes] = []
            self.may_write = asyncio.Event()

        async def receive(self) -> Sequence[Frame]:
            return ()

        async def send(self, frames: Sequence[bytes]) -> None:
            await self.may_write.wait()
            self.frames += frames

        async def close(self) -> None: ...

    outbound, sink = Outbound(limit=10), Sink()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(outbound.write_to(sink))
        outbound.put(b"12345")
        await outbound.room()
        outbound.put(b"67890")
        outbound.put(b"never refused")
        waiting = tasks.create_task(outbound.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        sink.may_write.set()
        await waiting
        outbound.close()
        await writing
    assert sink.frames == [b"12345", b"67890", b"never refused"]
