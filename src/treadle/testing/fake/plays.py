"""What a fake may do with a request: ready-made plays, good and bad."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from treadle.protocol.base import JsonValue
from treadle.testing.fake.connection import FakeConnection

Play: TypeAlias = Callable[[FakeConnection, JsonValue], Awaitable[None]]
"""Does something about a message that came: a whole document with `id`, `method` and `params`."""

OVERLOADED: Final = -32001
HUGE_BYTES: Final = 32 * 1024 * 1024


def answers(result: JsonValue) -> Play:
    """Answer with this."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        await connection.answer(request, result)

    return play


def refuses(code: int, message: str, data: JsonValue = None) -> Play:
    """Answer with an error."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        await connection.refuse(request, code, message, data)

    return play


def overloaded() -> Play:
    """Refuse as an app-server does that has too much to do; the client should come again."""
    data = {"kind": "overloaded", "codexErrorInfo": "server_overloaded"}
    return refuses(OVERLOADED, "Server overloaded; retry later.", data)


def never() -> Play:
    """Say nothing."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        """Let the client wait."""

    return play


def twice(result: JsonValue) -> Play:
    """Answer two times."""
    return steps(answers(result), answers(result))


def wrong_id(result: JsonValue, id_: JsonValue = "nobody-asked") -> Play:
    """Answer a request that nobody made, and not the one that was made."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.send({"id": id_, "result": result})

    return play


def tells(method: str, params: JsonValue) -> Play:
    """Send a notification."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.tell(method, params)

    return play


def asks(method: str, params: JsonValue, *, id_: str | int | None = None) -> Play:
    """Ask the client something and wait for the answer, which is in `server.answers`."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.ask(method, params, id_=id_)

    return play


def raw(*frames: bytes) -> Play:
    """Send frames as they are: what is no JSON, half of it, or a lone surrogate in an escape."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.send_raw(*frames)

    return play


def huge(result: JsonValue, size: int = HUGE_BYTES) -> Play:
    """Answer with this in a message of `size` bytes: blanks, which JSON allows, fill it up."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        message = json.dumps({"id": request["id"], "result": result}).encode()
        await connection.send_raw(message[:-1] + b" " * (size - len(message)) + message[-1:])

    return play


def hangs_up() -> Play:
    """End the line without an answer."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.hang_up()

    return play


def tears(part: bytes = b'{"method": "item/') -> Play:
    """End the line in the middle of a message."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.tear(part)

    return play


def exits(code: int = 1, stderr: str = "") -> Play:
    """End the process with a code and last words; where there is none, break the line."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        await connection.exit(code, stderr)

    return play


def freezes() -> Play:
    """Keep the line open and never read or say anything again."""

    async def play(connection: FakeConnection, _request: JsonValue) -> None:
        connection.freeze()

    return play


def steps(*plays: Play) -> Play:
    """Do one after another for the same request."""

    async def play(connection: FakeConnection, request: JsonValue) -> None:
        for each in plays:
            await each(connection, request)

    return play
