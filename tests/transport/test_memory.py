"""The transport inside one process."""

from __future__ import annotations

import asyncio

import pytest

from treadle.jsonrpc.framing import HEAD_BYTES, Oversized
from treadle.transport.base import MAX_INBOX_FRAMES, TransportError
from treadle.transport.memory import memory_pair


async def test_frames_arrive_in_order_both_ways() -> None:
    one, two = memory_pair()
    async with asyncio.timeout(5):
        await one.send([b"a", b"b"])
        await one.send([b"c"])
        await two.send([b"back"])
        assert await two.receive() == [b"a", b"b", b"c"]
        assert await one.receive() == [b"back"]


async def test_closing_one_end_ends_both_after_pending_frames() -> None:
    one, two = memory_pair()
    async with asyncio.timeout(5):
        await one.send([b"last"])
        await one.close()
        await one.close()
        assert [list(await two.receive()) for _ in range(2)] == [[b"last"], []]
        assert not await one.receive()
        for end in (one, two):
            with pytest.raises(TransportError):
                await end.send([b"x"])


async def test_a_frame_beyond_the_limit_arrives_as_its_head() -> None:
    one, two = memory_pair(limit=10)
    async with asyncio.timeout(5):
        await one.send([b"x" * 10, b"y" * 11, b"z" * 5000])
        assert await two.receive() == [
            b"x" * 10,
            Oversized(11, b"y" * 11),
            Oversized(5000, b"z" * HEAD_BYTES),
        ]


async def test_sending_waits_while_the_other_end_is_behind() -> None:
    one, two = memory_pair()
    frames = [b"x"] * (MAX_INBOX_FRAMES + 1)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(one.send(frames))
        await asyncio.sleep(0)
        assert not sending.done()
        assert await two.receive() == frames
        await sending


async def test_a_pending_receive_ends_when_the_transport_closes() -> None:
    one, two = memory_pair()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(two.receive())
        await asyncio.sleep(0)
        await one.close()
        assert not await receiving


async def test_a_cancelled_receive_loses_nothing() -> None:
    one, two = memory_pair()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(two.receive())
        await asyncio.sleep(0)
        receiving.cancel()
        await one.send([b"a"])
        assert await two.receive() == [b"a"]
