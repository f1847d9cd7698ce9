"""A client that can say anything: frames as bytes or as documents, answers as documents."""

from __future__ import annotations

import json
from collections import deque
from itertools import count

from treadle.protocol.base import JsonValue
from treadle.transport.base import Transport

CLIENT = {"name": "probe", "title": "Probe", "version": "9.9"}


class HungUp(Exception):
    """The server ended the conversation."""


class Peer:
    """One end of a line to a server; reads in order, waits for nothing it did not ask for."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._read: deque[JsonValue] = deque()
        self._ids = count()

    async def send(self, *documents: JsonValue) -> None:
        """Send each document as one message."""
        await self.send_raw(*(json.dumps(document).encode() for document in documents))

    async def send_raw(self, *frames: bytes) -> None:
        """Send each frame as it is."""
        await self.transport.send(frames)

    async def receive(self) -> JsonValue:
        """Wait for the next message of the server.

        Raises:
            HungUp: there will be none.
        """
        while not self._read:
            frames = await self.transport.receive()
            if not frames:
                raise HungUp
            assert all(isinstance(frame, bytes) for frame in frames)
            self._read += (json.loads(frame) for frame in frames if isinstance(frame, bytes))
        return self._read.popleft()

    async def receive_all(self) -> list[JsonValue]:
        """Read until the server closes the connection."""
        messages: list[JsonValue] = []
        try:
            while True:
                messages.append(await self.receive())
        except HungUp:
            return messages

    async def request(self, method: str, params: JsonValue = None) -> JsonValue:
        """Send a request and give the next message, which must be its answer."""
        id_ = f"request-{next(self._ids)}"
        await self.send({"id": id_, "method": method, "params": params})
        answer = await self.receive()
        assert answer.pop("id") == id_
        return answer

    async def initialize(self, **capabilities: JsonValue) -> JsonValue:
        """Shake hands, and give what the server says of itself."""
        params = {"clientInfo": CLIENT, "capabilities": capabilities}
        answer = await self.request("initialize", params)
        await self.send({"method": "initialized"})
        return answer["result"]

    async def replies(self, *frames: bytes) -> list[JsonValue]:
        """Send frames, then one request more, and give all that came before its answer.

        This shows that something is *not* answered without waiting for it not to come.
        """
        last = f"last-{next(self._ids)}"
        document = {"id": last, "method": "mock/experimentalMethod", "params": {"value": last}}
        await self.send_raw(*frames, json.dumps(document).encode())
        messages: list[JsonValue] = []
        while (message := await self.receive()).get("id") != last:
            messages.append(message)
        return messages

    async def echo(self, text: str) -> str:
        """Make a valid request: proof that the server is well."""
        answer = await self.request("mock/experimentalMethod", {"value": text})
        echoed: str = answer["result"]["echoed"]
        return echoed
