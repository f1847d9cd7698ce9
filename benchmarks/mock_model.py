"""A Responses API in a separate process that answers without delay.

It encodes an answer of each length once, at the first request for it.

Run as a module, it prints its port and serves until its standard input closes.
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

_PROMPT: Final = b"deltas:"
_CALLS: Final = b"calls:"
_OUTPUT: Final = b"call_output"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
# As long as the number that replaces it, so that chunk sizes stay valid.
_NUMBER: Final = b"00000000"
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


def prompt_for_pieces(deltas: int) -> str:
    """Return a prompt that the model answers in this many pieces."""
    return f"{_PROMPT.decode()}{deltas}"


def prompt_for_commands(commands: Sequence[Mapping[str, object]]) -> str:
    """Return a prompt for which the model runs these commands in parallel, then answers."""
    calls = base64.b64encode(json.dumps(commands).encode()).decode()
    return f"{_CALLS.decode()}{calls} {prompt_for_pieces(1)}"


def delta_text(number: int) -> str:
    """Return one piece of an answer; all pieces differ, so that their order is visible."""
    return f"{number} "


def answer_text(deltas: int) -> str:
    """Return the full answer of this many pieces."""
    return "".join(map(delta_text, range(deltas)))


@contextmanager
def mock_model() -> Iterator[str]:
    """Run the model, and yield the `base_url` of its provider."""
    command = [sys.executable, "-m", "benchmarks.mock_model"]
    folder = Path(__file__).parent.parent
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        # Leaving the context closes its standard input, which ends it.


class _ModelConnection(asyncio.Protocol):
    """One connection; handles requests one after the other."""

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
            match = _LENGTH.search(self._pending, 0, end + 2)
            size = end + 4 + (int(match[1]) if match else 0)
            if len(self._pending) < size:
                return
            request = bytes(self._pending[:size])
            del self._pending[:size]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        assert self._transport is not None
        at = request.rfind(_PROMPT)
        if at < 0 or not request.startswith(b"POST "):
            self._transport.write(_NOT_FOUND)
            return
        called = request.rfind(_CALLS, 0, at)
        # The output of the commands follows the prompt for them in the history.
        if called >= 0 and request.find(b" ", called) + 1 == at and _OUTPUT not in request[at:]:
            commands = json.loads(base64.b64decode(request[called + len(_CALLS) : at - 1]))
            self._transport.write(_encode_calls(commands, next(self._numbers)))
            return
        digits = re.match(rb"\d+", request[at + len(_PROMPT) :][:10])
        stream = _encode_answer(int(digits[0]) if digits else 1)
        self._transport.write(stream.replace(_NUMBER, b"%08d" % next(self._numbers)))


@cache
def _encode_answer(deltas: int) -> bytes:
    """Encode a full answer, with one chunk per event as providers send them."""
    number = _NUMBER.decode()
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
    content = [{"type": "output_text", "text": answer_text(deltas), "annotations": []}]
    response = {"id": f"resp_{number}"}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    started = {"output_index": 0, "item": {**item, "content": []}}
    done = {"output_index": 0, "item": {**item, "content": content}}
    return _STREAM + b"".join(
        [
            _event("response.created", {"response": response}),
            _event("response.output_item.added", started),
            *(
                _event("response.output_text.delta", {**place, "delta": delta_text(each)})
                for each in range(deltas)
            ),
            _event("response.output_item.done", done),
            _event("response.completed", {"response": {**response, "usage": _usage(deltas)}}),
            b"0\r\n\r\n",
        ]
    )


def _encode_calls(commands: Sequence[Mapping[str, object]], number: int) -> bytes:
    """Encode an answer that runs commands."""
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
    server = await loop.create_server(lambda: _ModelConnection(numbers), "127.0.0.1", 0)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
