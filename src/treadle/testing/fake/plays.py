"""Ready-made plays of a fake, valid and faulty."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from treadle.protocol.base import JsonValue
from treadle.testing.fake.connection import FakeConnection

Play: TypeAlias = Callable[[FakeConnection, JsonValue], Awaitable[None]]
"""Handles one message: a complete document with `id`, `method` and `params`."""

OVERLOADED: Final = -32001
HUGE_BYTES: Final = 32 * 1024 * 1024


def answers(result: JsonValue) -> Play:
    """Answer with this result."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, result)

    return play


def refuses(code: int, message: str, data: JsonValue = None) -> Play:
    """Answer with an error."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        await connection.refuse(request, code, message, data)

    return play


def overloaded() -> Play:
    """Refuse as an overloaded app-server does; the client should retry."""
    data = {"kind": "overloaded", "codexErrorInfo": "server_overloaded"}
    return refuses(OVERLOADED, "Server overloaded; retry later.", data)


def never() -> Play:
    """Send no answer."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        """Do nothing."""

    return play


def twice(result: JsonValue) -> Play:
    """Answer twice."""
    return steps(answers(result), answers(result))


def wrong_id(result: JsonValue, id_: JsonValue = "unknown-id") -> Play:
    """Answer with the id of a request that was not made."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.send({"id": id_, "result": result})

    return play


def notifies(method: str, params: JsonValue) -> Play:
    """Send a notification."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.notify(method, params)

    return play


def asks(method: str, params: JsonValue, *, id_: str | int | None = None) -> Play:
    """Send a server request and wait for the answer, which is in `server.answers`."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.ask(method, params, id_=id_)

    return play


def raw(*frames: bytes) -> Play:
    """Send raw frames: invalid or incomplete JSON, or an escaped lone surrogate."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.send_raw(*frames)

    return play


def huge(result: JsonValue, size: int = HUGE_BYTES) -> Play:
    """Answer with a message of `size` bytes, padded with spaces, which JSON allows."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        message = json.dumps({"id": request["id"], "result": result}).encode()
        await connection.send_raw(message[:-1] + b" " * (size - len(message)) + message[-1:])

    return play


def hangs_up() -> Play:
    """Close the connection without an answer."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.hang_up()

    return play


def tears(part: bytes = b'{"method": "item/') -> Play:
    """Close the connection in the middle of a message."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.tear(part)

    return play


def exits(code: int = 1, stderr: str = "") -> Play:
    """End the process with an exit code and stderr; without one, reset the connection."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.exit(code, stderr)

    return play


def freezes() -> Play:
    """Keep the connection open and stop reading and sending."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        connection.freeze()

    return play


def steps(*plays: Play) -> Play:
    """Run several plays in order for the same request."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        for each in plays:
            await each(connection, request)

    return play
