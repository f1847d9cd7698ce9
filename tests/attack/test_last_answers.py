"""A client on pipes that closes its input still gets its last answer, however slowly it reads."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable

import pytest

from tests.harness.threads import Stage
from treadle.connection import connection
from treadle.transport.stdio import LineTransport

SIZE = 1_000_000
SECONDS = 20


def requests(path: str) -> bytes:
    client = {"clientInfo": {"name": "test", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "initialized"},
        {"id": 2, "method": "fs/readFile", "params": {"path": path}},
    ]
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


async def session(stage: Stage, read: Callable[[int], bytes]) -> bytes:
    """Send requests, close the input, and return what `read` takes from the output."""
    file = stage.home / "large"
    file.write_bytes(b"x" * SIZE)
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    transport = LineTransport(read_in, write_out, peer="test")
    os.close(read_in)
    os.close(write_out)
    os.write(write_in, requests(str(file)))
    os.close(write_in)
    try:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(stage.server.attach(transport))
            content = await asyncio.to_thread(read, read_out)
    finally:
        os.close(read_out)
    return content


def read_all(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, 10_000):
        pieces.append(piece)
    return b"".join(pieces)


async def test_the_last_answer_is_not_cut_while_it_is_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a line is not JSON, and a pipe has room for 64 KiB only."""
    monkeypatch.setattr(connection, "FLUSH_SECONDS", 0.0)
    output = await session(stage, read_all)
    answers = [json.loads(line) for line in output.splitlines()]
    (answer,) = [each for each in answers if each.get("id") == 2]

    assert len(answer["result"]["dataBase64"]) > SIZE


async def test_a_client_that_reads_nothing_more_does_not_keep_its_server(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for the end of the server, with the pipe open."""
    monkeypatch.setattr(connection, "UNREAD_SECONDS", 0.01)
    output = await session(stage, lambda descriptor: os.read(descriptor, 1))

    assert output == b"{"
