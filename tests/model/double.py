"""A fake provider on the loopback interface that sends prepared answers, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from treadle.model.base import Model, ModelEvent, ModelRequest
from treadle.model.provider import (
    Bearer,
    CredentialSource,
    ProviderConfig,
    build_model,
    no_credentials,
)
from treadle.protocol.base import JsonValue


@dataclass
class Answer:
    """An answer of the double: a head, pieces of a body, and how the connection ends."""

    status: str = "200 OK"
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    # HTTP/1.0 where closing the connection ends the body, or HTTP/1.1 in chunks.
    is_chunked: bool = False
    is_cut: bool = False
    # Everything in one write, so that the end arrives together with the last event.
    is_at_once: bool = False
    is_silent_before_head: bool = False
    is_silent_after: bool = False


@dataclass
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: JsonValue
    connection: int


class ProviderDouble:
    """Sends its answers in order and records the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Received] = []
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._connections = 0

    @property
    def base_url(self) -> str:
        """Return the base URL of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        self._connections += 1
        number = self._connections
        try:
            while await self._exchange(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def stop(self) -> None:
        """Drop every open connection."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for writer in self._writers:
            # One that is closed may wait until its client reads, which it no longer does.
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
        }
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        body = msgspec.json.decode(raw) if raw else None
        self.requests.append(Received(method, target, headers, body, number))
        self.asked.set()
        answer = self.answers.pop(0)
        if answer.is_silent_before_head:
            await self._wait_for_the_end(reader)
        version = "HTTP/1.1" if answer.is_chunked else "HTTP/1.0"
        lines = [f"{version} {answer.status}"]
        sent = {"content-type": "text/event-stream", **answer.headers}
        if answer.is_chunked:
            sent["transfer-encoding"] = "chunked"
        lines += [f"{name}: {value}" for name, value in sent.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        pieces = [
            b"%x\r\n%b\r\n" % (len(piece), piece) if answer.is_chunked else piece
            for piece in answer.pieces
        ]
        if answer.is_at_once:
            writer.write(b"".join(pieces) + b"0\r\n\r\n")
            return True
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            # Lets the pieces arrive one by one.
            await asyncio.sleep(0)
        if answer.is_silent_after:
            await self._wait_for_the_end(reader)
        if answer.is_cut:
            writer.transport.abort()
            return False
        if answer.is_chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return answer.is_chunked

    async def _wait_for_the_end(self, reader: asyncio.StreamReader) -> None:
        await reader.read(1)
        self.hung_up.set()


@contextlib.asynccontextmanager
async def provider_double(*answers: Answer) -> AsyncIterator[ProviderDouble]:
    """Run a double."""
    double = ProviderDouble()
    double.answers += answers
    server = await asyncio.start_server(double.serve, "127.0.0.1", 0)
    double.port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(30):
        try:
            yield double
        finally:
            server.close()
            await double.stop()


@contextlib.asynccontextmanager
async def model_of(
    double: ProviderDouble,
    *,
    environ: Mapping[str, str] | None = None,
    token: str | None = None,
    **settings: JsonValue,
) -> AsyncIterator[Model]:
    """Return a model that is connected to the double."""
    config = msgspec.convert({"base_url": double.base_url, **settings}, ProviderConfig)

    async def login(rejected: Bearer | None = None) -> Bearer | None:
        return Bearer(token or "") if rejected is None else None

    credentials: CredentialSource = login if token else no_credentials
    model = build_model("double", config, environ=environ or {}, credentials=credentials)
    try:
        yield model
    finally:
        await model.close()


def event(data: JsonValue) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def events(*data: JsonValue, **options: JsonValue) -> Answer:
    """Return a stream of events, each in a separate piece."""
    return Answer(pieces=[event(one) for one in data], **options)


def refusal(status: str, error: JsonValue, **headers: str) -> Answer:
    """Return an answer with a status other than 200."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(
        status=status,
        headers={"content-type": "application/json", **named},
        pieces=[msgspec.json.encode(error)],
    )


def request(*history: JsonValue, **settings: JsonValue) -> ModelRequest:
    """Return a request with defaults for everything that a test does not set."""
    fields: dict[str, JsonValue] = {
        "model": "mock-model",
        "instructions": "be brief",
        "input": list(history) or [user("hi")],
        "thread_id": "thr",
        "turn_id": "trn",
        "originator": "probe",
        "user_agent": "probe/1",
    }
    return ModelRequest(**{**fields, **settings})


def user(text: str) -> JsonValue:
    """Return a message of the user."""
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }


async def collect(
    model: Model, model_request: ModelRequest | None = None, *, into: list[ModelEvent] | None = None
) -> list[ModelEvent]:
    """Return all events of one attempt; `into` also receives those before an error."""
    model_events = [] if into is None else into
    async for event in model.stream(model_request or request()):
        model_events.append(event)
    return model_events
