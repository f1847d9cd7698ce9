"""One client of the fake, from the fake's side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final

from treadle.protocol.base import JsonValue
from treadle.testing.fake.wires import Wire


class FakeConnection:
    """Sends messages to one client, valid or not."""

    def __init__(self, wire: Wire, number: int, new_id: Callable[[str], str]) -> None:
        self.number: Final = number
        """The number of the connection, counted from one: clients reconnect."""
        self._wire = wire
        self.new_id: Final = new_id
        """Returns ids of a kind, unique among all connections: `turn-1`, `turn-2`, `ask-1`."""
        self._pending: dict[str | int, asyncio.Future[JsonValue]] = {}
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

    async def notify(self, method: str, params: JsonValue) -> None:
        """Send a notification."""
        await self.send({"method": method, "params": params})

    async def ask(
        self,
        method: str,
        params: JsonValue,
        *,
        id_: str | int | None = None,
        after: Sequence[JsonValue] = (),
    ) -> JsonValue:
        """Send a server request and return the answer: a document with a `result` or an `error`.

        The documents `after` which it follows are sent with it, so that they arrive together.
        """
        id_ = self.new_id("ask") if id_ is None else id_
        future = self._pending[id_] = asyncio.get_running_loop().create_future()
        await self.send(*after, {"id": id_, "method": method, "params": params})
        return await future

    async def hang_up(self) -> None:
        """Close the connection cleanly."""
        await self._wire.transport.close()

    async def tear(self, part: bytes = b'{"method": "item/') -> None:
        """Close the connection in the middle of a message."""
        await self._wire.tear(part)

    async def exit(self, code: int = 1, stderr: str = "") -> None:
        """End the process that the client started; without one, reset the connection."""
        await self._wire.exit(code, stderr)

    def freeze(self) -> None:
        """Stop reading and sending, and keep the connection open."""
        self._is_frozen = True
        self._wire.freeze()

    @property
    def is_frozen(self) -> bool:
        """Whether the connection is frozen."""
        return self._is_frozen

    def take_answer(self, answer: JsonValue) -> None:
        """Deliver an answer of the client to its `ask`; others are only recorded."""
        future = self._pending.pop(answer.get("id"), None)
        if future is not None and not future.done():
            future.set_result(answer)
