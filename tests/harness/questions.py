"""Answers to server requests."""

from __future__ import annotations

from tests.harness.threads import Client
from treadle.protocol.base import JsonValue


async def question(client: Client, method: str) -> JsonValue:
    """Wait for a server request of this method and return it."""
    return (await client.until(method, lambda _params: True))[-1]


async def answer(client: Client, asked: JsonValue, result: JsonValue) -> None:
    """Answer a server request."""
    await client.peer.send({"id": asked["id"], "result": result})


async def refuse(client: Client, asked: JsonValue, message: str = "boom") -> None:
    """Answer a server request with an error."""
    await client.peer.send({"id": asked["id"], "error": {"code": -32000, "message": message}})
