"""A model server on the loopback with the Responses API: plays replies and keeps requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import TypeAlias

from treadle.protocol.base import JsonValue

Step: TypeAlias = JsonValue | asyncio.Event
"""An event of the stream, or something to wait for before the next one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one request: the events of a stream, or a status and a body."""

    steps: Sequence[Step] = ()
    status: int = 200
    body: JsonValue = None
    headers: dict[str, str] = field(default_factory=dict)
    # The connection is cut after the last event, as if the provider had died.
    is_cut: bool = False
    # Whether a body is sent with status 200 too, instead of a stream.
    is_document: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: JsonValue

    def messages(self, *roles: str) -> list[tuple[str, str]]:
        """The messages of these roles as pairs of role and text, all roles if none is named."""
        return [
            (item["role"], "".join(part.get("text", "") for part in item["content"]))
            for item in self.body["input"]
            if item["type"] == "message" and (not roles or item["role"] in roles)
        ]

    def conversation(self) -> list[tuple[str, str]]:
        """The messages of the user and the assistant, without the environment context."""
        messages = self.messages("user", "assistant")
        return [pair for pair in messages if "<environment_context>" not in pair[1]]

    def outputs(self) -> dict[str, JsonValue]:
        """The outputs of tool calls, by the id of the call."""
        return {
            item["call_id"]: item["output"]
            for item in self.body["input"]
            if item["type"].endswith("_call_output")
        }


class ModelServer:
    """Plays its replies in order, then replies "done"."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.requests: list[ReceivedRequest] = []
        self.port = 0
        self._numbers = count(1)
        self._connections: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()

    @property
    def base_url(self) -> str:
        """The base URL of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def plays(self, *replies: Reply) -> None:
        """Add replies."""
        self.replies.extend(replies)

    async def wait_for_request(self, number: int) -> ReceivedRequest:
        """Wait for the request of this number, counted from one."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which carries one request."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._exchange(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has given up
        finally:
            self._connections.discard(task)
            writer.close()

    async def stop(self) -> None:
        """Drop the remaining connections."""
        for task in list(self._connections):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.partition(": ") for line in head[1:-2])
        headers = {name.lower(): value for name, _, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if method != "POST":
            writer.write(_head(404, {"content-length": "0", "connection": "close"}))
            return
        async with self._arrived:
            self.requests.append(ReceivedRequest(path, headers, json.loads(raw)))
            self._arrived.notify_all()
        reply = self.replies.popleft() if self.replies else says("done", number=next(self._numbers))
        await write_reply(writer, reply)


async def write_reply(writer: asyncio.StreamWriter, reply: Reply) -> None:
    """Write a reply to the request of a connection."""
    if reply.status != 200 or reply.is_document:
        body = json.dumps(reply.body).encode()
        sent = {"content-type": "application/json", "content-length": str(len(body))}
        writer.write(_head(reply.status, {**sent, "connection": "close", **reply.headers}) + body)
        return
    sent = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    writer.write(_head(200, {**sent, "connection": "close", **reply.headers}))
    for step in reply.steps:
        if isinstance(step, asyncio.Event):
            await step.wait()
            continue
        event = f"event: {step['type']}\ndata: {json.dumps(step)}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
    if not reply.is_cut:
        writer.write(b"0\r\n\r\n")


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


@contextlib.asynccontextmanager
async def model_server() -> AsyncIterator[ModelServer]:
    """Listen on a free port until the block ends."""
    model = ModelServer()
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, limit=2**24)
    model.port = server.sockets[0].getsockname()[1]
    async with server:
        try:
            yield model
        finally:
            await model.stop()


# -- parts of a reply


def created(response_id: str = "resp-1") -> JsonValue:
    """The first event of a stream."""
    return {"type": "response.created", "response": {"id": response_id}}


def completed(response_id: str = "resp-1", tokens: tuple[int, int] = (10, 5)) -> JsonValue:
    """The last event of a stream, with the usage."""
    spent, made = tokens
    usage = {
        "input_tokens": spent,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": spent + made,
    }
    return {"type": "response.completed", "response": {"id": response_id, "usage": usage}}


def done(item: JsonValue) -> JsonValue:
    """The event that completes an item."""
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def added(item: JsonValue) -> JsonValue:
    """The event that starts an item."""
    return {"type": "response.output_item.added", "output_index": 0, "item": item}


def message(text: str, id_: str, deltas: Sequence[str] = (), *gates: asyncio.Event) -> list[Step]:
    """The events of an assistant message; it waits for the gates after the deltas."""
    item: JsonValue = {"type": "message", "id": id_, "role": "assistant"}
    steps: list[Step] = []
    if deltas:
        steps.append(added({**item, "content": []}))
        steps += [
            {
                "type": "response.output_text.delta",
                "item_id": id_,
                "output_index": 0,
                "content_index": 0,
                "delta": delta,
            }
            for delta in deltas
        ]
    content = [{"type": "output_text", "text": text}]
    return [*steps, *gates, done({**item, "content": content})]


def says(
    text: str,
    id_: str | None = None,
    deltas: Sequence[str] = (),
    *gates: asyncio.Event,
    number: int = 1,
    tokens: tuple[int, int] = (10, 5),
) -> Reply:
    """A reply with one message."""
    response_id = f"resp-{id_ or number}"
    steps = message(text, id_ or f"msg-{number}", deltas, *gates)
    return Reply([created(response_id), *steps, completed(response_id, tokens)])


def calls(name: str, arguments: JsonValue, call_id: str = "call-1") -> Reply:
    """A reply with one function call; a string is sent unchanged."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}
    response_id = f"resp-{call_id}"
    return Reply([created(response_id), done(item), completed(response_id)])


def fails(code: str, words: str) -> Reply:
    """A stream that the provider ends with an error."""
    response = {"id": "resp-f", "error": {"code": code, "message": words}}
    return Reply([created("resp-f"), {"type": "response.failed", "response": response}])


def refuses(status: int, body: JsonValue) -> Reply:
    """An HTTP error instead of a stream."""
    return Reply(status=status, body=body)


def patches(patch: str, call_id: str = "call-1") -> Reply:
    """A reply with one call of the free-text patch tool."""
    kind = {"type": "custom_tool_call", "status": "completed", "name": "apply_patch"}
    response_id = f"resp-{call_id}"
    item = {**kind, "call_id": call_id, "input": patch}
    return Reply([created(response_id), done(item), completed(response_id)])
