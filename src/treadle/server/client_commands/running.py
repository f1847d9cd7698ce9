"""A command of a client while it runs: its output, its input, its time limit."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from treadle.engine.terminals.output_deltas import omission
from treadle.engine.tools.output import decode
from treadle.jsonrpc.errors import InvalidOptions, InvalidRequest

if TYPE_CHECKING:
    from treadle.sandbox.process import Process

DEFAULT_TIMEOUT_MS: Final = 10_000
DEFAULT_OUTPUT_CAP: Final = 1024 * 1024
TIMED_OUT: Final = 124
# Bounds the memory for output that a slow client has not read.
MAX_UNSENT: Final = 1024 * 1024
MAX_ANSWER: Final = 10 * 1024 * 1024
"""Output in an answer without a cap: a byte takes up to six bytes of the message."""

Stream: TypeAlias = Literal["stdout", "stderr"]


class OutputChunk(Struct, frozen=True):
    """Output that is sent while the command runs."""

    stream: Stream
    base64: str
    is_capped: bool


class Streams(Struct, frozen=True, kw_only=True):
    """How the output and the input of a command are connected; `cap` counts bytes per stream."""

    has_terminal: bool
    takes_input: bool
    is_streaming: bool
    cap: int | None


class ClientCommand:
    """A command of a client, from its start to the end of its output."""

    def __init__(self, streams: Streams, send: Callable[[OutputChunk], Awaitable[None]]) -> None:
        self._streams = streams
        self._send = send
        self._room: dict[Stream, int | None] = {"stdout": streams.cap, "stderr": streams.cap}
        self._output: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._omitted: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._capped: set[Stream] = set()
        self._fits = MAX_ANSWER
        self._unsent: deque[OutputChunk] = deque()
        self._unsent_size = 0
        self._has_output = asyncio.Event()
        self._is_over = False
        self._is_input_closed = False
        self._process: Process | None = None

    def begin(self, process: Process) -> None:
        """Accept requests for the process, which has started."""
        self._process = process

    @property
    def process(self) -> Process | None:
        """The running process; `None` until it has started."""
        return self._process

    # -- output

    def on_output(self, stream: Stream, data: bytes) -> None:
        """Accept output of the command, up to the cap."""
        room = self._room[stream]
        if room is not None:
            if data and len(data) >= room:
                self._capped.add(stream)
            data = data[:room]
            self._room[stream] = room - len(data)
        if not data:
            return
        if not self._streams.is_streaming:
            self._keep(stream, data)
            return
        text = base64.b64encode(data).decode("ascii")
        self._unsent.append(OutputChunk(stream, text, self._room[stream] == 0))
        self._unsent_size += len(text)
        self._has_output.set()
        if self._unsent_size > MAX_UNSENT and self._process is not None:
            self._process.pause()

    def _keep(self, stream: Stream, data: bytes) -> None:
        """Keep output for the answer while it fits into a message."""
        room = max(0, self._fits - sum(map(len, self._output.values())))
        self._output[stream] += data[:room]
        self._omitted[stream] += len(data[room:])

    def add_note(self, text: str) -> None:
        """State on stderr why the command was killed, regardless of the output cap."""
        self._room["stderr"] = None
        self._fits += len(text) + 1
        self.on_output("stderr", f"{text}\n".encode())

    def output(self, stream: Stream) -> str:
        """Return the output for the answer, with a note if some was omitted."""
        text, omitted = decode(bytes(self._output[stream])), self._omitted[stream]
        return f"{text}\n[... {omission(omitted, None)}]\n" if omitted else text

    def has_reached_cap(self, stream: Stream) -> bool:
        """Whether output beyond the cap was dropped, or would have been."""
        return stream in self._capped

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send the output as it arrives; all of it has been sent when the block ends."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_output())
            try:
                yield
            finally:
                self._is_over = True
                self._has_output.set()

    async def _send_output(self) -> None:
        while self._unsent or not self._is_over:
            await self._has_output.wait()
            self._has_output.clear()
            while self._unsent:
                delta = self._unsent.popleft()
                await self._send(delta)
                self._unsent_size -= len(delta.base64)
            if self._process is not None:
                self._process.resume()

    # -- requests of the client

    async def write(self, process: Process, delta_base64: str | None, *, closes: bool) -> None:
        """Write to the command's input, then close it if requested.

        Raises:
            InvalidOptions: the text is not base64.
            InvalidRequest: the input is closed.
        """
        data = _decoded(delta_base64 or "")
        if self._is_input_closed:
            raise InvalidRequest("stdin is already closed")
        if data:
            with suppress(OSError):  # a command that closed its input misses it, as in a shell
                await process.write(data)
        if closes:
            self._is_input_closed = True
            process.close_stdin()

    @property
    def takes_input(self) -> bool:
        """Whether the client may write to it."""
        return self._streams.takes_input

    def resize(self, process: Process, rows: int, cols: int) -> None:
        """Resize the command's terminal.

        Raises:
            InvalidRequest: it has no terminal.
        """
        if not self._streams.has_terminal:
            raise InvalidRequest("failed to resize PTY: process is not attached to a PTY")
        with suppress(OSError):  # it has just ended
            process.resize(rows, cols)


async def wait(process: Process, limit_ms: int | None) -> int:
    """Wait for the end of a command, or kill it when its time is up."""
    try:
        async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return TIMED_OUT


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidOptions(f"invalid deltaBase64: {error}") from error
