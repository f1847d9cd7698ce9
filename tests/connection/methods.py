"""A small protocol for tests of the connection, and two connected ends that use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from treadle.connection.connection import Connection
from treadle.connection.router import Router
from treadle.protocol.base import Params, Value
from treadle.protocol.method import Notification, Request
from treadle.transport.memory import memory_pair


class TextParams(Params, frozen=True):
    """A text, and its scope."""

    text: str = ""
    lane: str | None = None


class TextResponse(Value, frozen=True):
    """A text back."""

    text: str


def _lane(params: object) -> str | None:
    return params.lane if isinstance(params, TextParams) else None


ECHO = Request("test/echo", TextParams, TextResponse)
WAIT = Request("test/wait", TextParams, TextResponse, scope=_lane)
BACK = Request("test/back", TextParams, TextResponse)
NOTICE = Notification("test/notice", TextParams)
LARGE = Request("test/large", TextParams, TextResponse, is_large=True)
METHODS = {method.method: method for method in (ECHO, WAIT, BACK, LARGE)}

Methods = Router[str]


def router() -> Methods:
    """Return a router that knows the methods and has no handlers yet."""
    return Router(METHODS)


@dataclass(frozen=True, slots=True)
class Line:
    """Two connections, the requesting and the answering one, and the tasks they run in."""

    near: Connection[str]
    far: Connection[str]
    near_run: asyncio.Task[None]
    far_run: asyncio.Task[None]


@asynccontextmanager
async def line(
    far: Methods, near: Methods | None = None, *, max_in_flight: int = 512
) -> AsyncIterator[Line]:
    """Connect two ends, and close them when the block ends."""
    one, two = memory_pair()
    asking = Connection(one, near or router(), "near")
    answering = Connection(two, far, "far", max_in_flight=max_in_flight)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        runs = tasks.create_task(asking.run()), tasks.create_task(answering.run())
        try:
            yield Line(asking, answering, *runs)
        finally:
            await asking.close()
