"""A client that sends arbitrary frames, valid or not, and reads messages as documents."""

from __future__ import annotations

import json
from collections import deque
from itertools import count

from treadle.protocol.base import JsonValue
from treadle.transport.base import Transport

CLIENT = {"name": "probe", "title": "Probe", "version": "9.9"}


class HungUp(Exception):
    """The server closed the connection."""


class Peer:
    """One end of a connection to a server; reads messages in order."""

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
            HungUp: the server closed the connection.
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
        """Send a request and return the next message, which must be its answer."""
        id_ = f"request-{next(self._ids)}"
        await self.send({"id": id_, "method": method, "params": params})
        answer = await self.receive()
        assert answer.pop("id", None) == id_, answer
        return answer

    async def initialize(self, **capabilities: JsonValue) -> JsonValue:
        """Complete the handshake and return the result of `initialize`."""
        params = {"clientInfo": CLIENT, "capabilities": capabilities}
        answer = await self.request("initialize", params)
        await self.send({"method": "initialized"})
        return answer["result"]

    async def replies(self, *frames: bytes) -> list[JsonValue]:
        """Send frames and one more request; return the messages before its answer.

        This shows that a frame is *not* answered, without a wait.
        """
        last = f"last-{next(self._ids)}"
        document = {"id": last, "method": "mock/experimentalMethod", "params": {"value": last}}
        await self.send_raw(*frames, json.dumps(document).encode())
        messages: list[JsonValue] = []
        while (message := await self.receive()).get("id") != last:
            messages.append(message)
        return messages

    async def echo(self, text: str) -> str:
        """Make a valid request, to show that the server still answers."""
        answer = await self.request("mock/experimentalMethod", {"value": text})
        echoed: str = answer["result"]["echoed"]
        return echoed
