"""A model in a process of its own: it plays streams that were encoded beforehand, at once.

Run as a module, it says its port and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

_WISH: Final = b"deltas:"
_CALLS: Final = b"calls:"
_OUTPUT: Final = b"call_output"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
# As long as what replaces it, so that the sizes of chunks stay true.
_NUMBER: Final = b"00000000"
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_NOTHING: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


def wish(deltas: int) -> str:
    """What to say to the model so that it answers in so many pieces."""
    return f"{_WISH.decode()}{deltas}"


def wish_for(commands: Sequence[Mapping[str, object]]) -> str:
    """What to say to the model so that it runs these commands, all at once, and then answers."""
    calls = base64.b64encode(json.dumps(commands).encode()).decode()
    return f"{_CALLS.decode()}{calls} {wish(1)}"


def piece(number: int) -> str:
    """One piece of an answer; no two are alike, so that their order shows."""
    return f"{number} "


def spoken(deltas: int) -> str:
    """The whole answer of so many pieces."""
    return "".join(map(piece, range(deltas)))


@contextmanager
def playing() -> Iterator[str]:
    """Run the model; gives the address that a provider's `base_url` has to name."""
    command = [sys.executable, "-m", "benchmarks.mock_model"]
    folder = Path(__file__).parent.parent
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        # Closes its standard input, which ends it.


class _Line(asyncio.Protocol):
    """One connection, request after request."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._pending = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while (end := self._pending.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._pending, 0, end + 2)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self._pending) < size:
                return
            request = bytes(self._pending[:size])
            del self._pending[:size]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        assert self._transport is not None
        at = request.rfind(_WISH)
        if at < 0 or not request.startswith(b"POST "):
            self._transport.write(_NOTHING)
            return
        called = request.rfind(_CALLS, 0, at)
        # What was carried out stands in the history after the wish for it.
        if called >= 0 and request.find(b" ", called) + 1 == at and _OUTPUT not in request[at:]:
            wanted = json.loads(base64.b64decode(request[called + len(_CALLS) : at - 1]))
            self._transport.write(_calling(wanted, next(self._numbers)))
            return
        digits = re.match(rb"\d+", request[at + len(_WISH) :][:10])
        stream = _encoded(int(digits[0]) if digits else 1)
        self._transport.write(stream.replace(_NUMBER, b"%08d" % next(self._numbers)))


@cache
def _encoded(deltas: int) -> bytes:
    """A whole answer, one chunk per event as providers send them."""
    number = _NUMBER.decode()
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
    content = [{"type": "output_text", "text": spoken(deltas), "annotations": []}]
    response = {"id": f"resp_{number}"}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    started = {"output_index": 0, "item": {**item, "content": []}}
    done = {"output_index": 0, "item": {**item, "content": content}}
    return _STREAM + b"".join(
        [
            _event("response.created", {"response": response}),
            _event("response.output_item.added", started),
            *(
                _event("response.output_text.delta", {**place, "delta": piece(each)})
                for each in range(deltas)
            ),
            _event("response.output_item.done", done),
            _event("response.completed", {"response": {**response, "usage": _usage(deltas)}}),
            b"0\r\n\r\n",
        ]
    )


def _calling(commands: Sequence[Mapping[str, object]], number: int) -> bytes:
    """An answer that runs commands."""
    response = {"id": f"resp_{number:08}"}
    items = [
        {
            "type": "function_call",
            "id": f"fc_{number:08}_{place}",
            "call_id": f"call_{number:08}_{place}",
            "name": "exec_command",
            "arguments": json.dumps(command),
        }
        for place, command in enumerate(commands)
    ]
    done = [
        _event("response.output_item.done", {"output_index": place, "item": item})
        for place, item in enumerate(items)
    ]
    completed = _event("response.completed", {"response": {**response, "usage": _usage(1)}})
    created = _event("response.created", {"response": response})
    return b"".join([_STREAM, created, *done, completed, b"0\r\n\r\n"])


def _usage(output_tokens: int) -> Mapping[str, object]:
    return {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 100 + output_tokens,
    }


def _event(kind: str, fields: Mapping[str, object]) -> bytes:
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _serve() -> None:
    numbers = count(1)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Line(numbers), "127.0.0.1", 0)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
