"""A fake app-server whose behaviour a test defines, valid or faulty.

server = FakeAppServer()
server.on("model/list", fake.overloaded(), fake.answers({"data": []}))
async with server.websocket() as url, AsyncClient(url) as client: ...
"""

from __future__ import annotations

from treadle.testing.fake.connection import FakeConnection
from treadle.testing.fake.plays import (
    Play,
    answers,
    asks,
    exits,
    freezes,
    hangs_up,
    huge,
    never,
    notifies,
    overloaded,
    raw,
    refuses,
    steps,
    tears,
    twice,
    wrong_id,
)
from treadle.testing.fake.server import FakeAppServer
from treadle.testing.fake.usual import THREAD, message, thread, turn

__all__ = [
    "THREAD",
    "FakeAppServer",
    "FakeConnection",
    "Play",
    "answers",
    "asks",
    "exits",
    "freezes",
    "hangs_up",
    "huge",
    "message",
    "never",
    "notifies",
    "overloaded",
    "raw",
    "refuses",
    "steps",
    "tears",
    "thread",
    "turn",
    "twice",
    "wrong_id",
]
