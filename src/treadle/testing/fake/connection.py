"""One client of the fake, from the fake's side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from treadle.protocol.base import JsonValue
from treadle.testing.fake.wires import Wire


class FakeConnection:
    """Says to one client whatever it is told to say, whether or not it makes sense."""

    def __init__(self, wire: Wire, number: int, new_id: Callable[[str], str]) -> None:
        self.number: Final = number
        """The how-manieth connection it is, from one: clients come back."""
        self._wire = wire
        self.new_id: Final = new_id
        """Gives ids of a kind that no other connection was given: `turn-1`, `turn-2`, `ask-1`."""
        self._asked: dict[str | int, asyncio.Future[JsonValue]] = {}
        self._is_frozen = False

    async def send(self, *documents: JsonValue) -> None:
        """Send each document as one message."""
        await self.send_raw(*(json.dumps(document).encode() for document in documents))

    async def send_raw(self, *frames: bytes) -> None:
        """Send each frame as it is, JSON or not."""
        if not self._is_frozen:
            await self._wire.transport.send(frames)

    async def answer(self, request: JsonValue, result: JsonValue) -> None:
        """Answer a request."""
        await self.send({"id": request["id"], "result": result})

    async def refuse(
        self, request: JsonValue, code: int, message: str, data: JsonValue = None
    ) -> None:
        """Answer a request with an error."""
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        await self.send({"id": request["id"], "error": error})

    async def tell(self, method: str, params: JsonValue) -> None:
        """Send a notification."""
        await self.send({"method": method, "params": params})

    async def ask(
        self, method: str, params: JsonValue, *, id_: str | int | None = None
    ) -> JsonValue:
        """Ask the client, and wait for its answer: a document with a `result` or an `error`."""
        id_ = self.new_id("ask") if id_ is None else id_
        answered = self._asked[id_] = asyncio.get_running_loop().create_future()
        await self.send({"id": id_, "method": method, "params": params})
        return await answered

    async def hang_up(self) -> None:
        """End the line, politely."""
        await self._wire.transport.close()

    async def tear(self, part: bytes = b'{"method": "item/') -> None:
        """End the line in the middle of a message."""
        await self._wire.tear(part)

    async def exit(self, code: int = 1, stderr: str = "") -> None:
        """End the process that the client started; without one, break the line."""
        await self._wire.exit(code, stderr)

    def freeze(self) -> None:
        """Neither read nor say anything from now on, and keep the line open."""
        self._is_frozen = True
        self._wire.freeze()

    @property
    def is_frozen(self) -> bool:
        """Whether the client is talking to nobody."""
        return self._is_frozen

    def take_answer(self, answer: JsonValue) -> None:
        """Hand over an answer of the client to whoever asked; others are only recorded."""
        asked = self._asked.pop(answer.get("id"), None)
        if asked is not None and not asked.done():
            asked.set_result(answer)
