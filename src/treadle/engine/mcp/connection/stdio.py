"""The stdio transport of MCP servers: one message per line.

It replaces the SDK's transport: the processes of a server must end with it, also when this server
is killed, and a long or malformed line must not end the session.

This module imports the MCP SDK, so it is imported only when a server is configured.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from errno import ENOENT, ENOTDIR
from pathlib import Path
from typing import Final, Literal

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from treadle.engine.mcp.config import ServerConfig
from treadle.engine.mcp.connection.limits import (
    LONG_MESSAGE_BYTES,
    MALFORMED,
    MAX_MESSAGE_BYTES,
    MAX_WORKERS,
    error_for,
    limit_error,
)
from treadle.engine.mcp.connection.notes import Notes
from treadle.sandbox.policy import UNRESTRICTED
from treadle.sandbox.process import Process
from treadle.sandbox.sandbox import Sandbox
from treadle.support.concurrency.workers import Workers
from treadle.support.files.programs import find_on_path

Incoming = SessionMessage | Exception
Reading = MemoryObjectReceiveStream[Incoming]
Writing = MemoryObjectSendStream[SessionMessage]

# The rest of a line that is too long for a message is skipped up to this length.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
MAX_WAITING_LINES: Final = 64
# The session ends after this many consecutive malformed messages.
MAX_UNREADABLE: Final = 1_000
# How long to wait for a server to end: after stdin is closed, and again after SIGTERM.
GRACE_SECONDS: Final = 0.5


@asynccontextmanager
async def over_stdio(
    sandbox: Sandbox, config: ServerConfig, cwd: str, environ: Mapping[str, str], notes: Notes
) -> AsyncIterator[tuple[Reading, Writing]]:
    """Run a server for the duration of the block.

    Raises:
        OSError: the command or its folder does not exist.
    """
    env = config.environment(environ)
    lines = _Lines(notes)
    process = lines.process = await Process.start(
        sandbox,
        [_program(config, env, cwd), *config.args],
        cwd=_folder(config, cwd),
        env=env,
        confinement=UNRESTRICTED,
        on_output=lines.add,
        has_stdin=True,
    )
    incoming, reading = anyio.create_memory_object_stream[Incoming](0)
    writing, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with asyncio.TaskGroup() as tasks:
            ours = [
                tasks.create_task(lines.forward(incoming)),
                tasks.create_task(_write(process, outgoing)),
                tasks.create_task(_watch(process, lines)),
            ]
            try:
                yield reading, writing
                await _end_gracefully(process)
            finally:
                process.kill()
                for task in ours:
                    task.cancel()
    finally:
        for stream in (incoming, reading, writing, outgoing):
            stream.close()


class _Lines:
    """Splits the output of a server into lines, and pauses it while too many wait."""

    def __init__(self, notes: Notes) -> None:
        self.process: Process | None = None
        self._notes = notes
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._parts: list[bytes] = []
        self._length = 0
        # The line is longer than a message may be: its start was forwarded.
        self._is_skipping = False
        self._is_over = False
        self._changed = asyncio.Event()
        self._workers = Workers("mcp message", MAX_WORKERS)

    def add(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Add output."""
        if stream == "stderr":
            self._notes.add_stderr(data)
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._extend(line)
            self._end_line()
        self._extend(rest)
        is_full = self._waiting_bytes > MAX_MESSAGE_BYTES or len(self._waiting) > MAX_WAITING_LINES
        if is_full and self.process is not None:
            self.process.pause()
        self._changed.set()

    def _extend(self, part: bytes) -> None:
        self._length += len(part)
        if self._is_skipping:
            if self._length > MAX_LINE_BYTES:
                self._notes.set_malformed()
                self.end()
            return
        self._parts.append(part)
        if self._length > MAX_MESSAGE_BYTES:
            # Forwarded at once: a line without an end must not delay the error of its request.
            self._queue_line()
            self._is_skipping = True

    def _end_line(self) -> None:
        if not self._is_skipping:
            self._queue_line()
        self._is_skipping, self._length = False, 0

    def _queue_line(self) -> None:
        self._waiting.append(b"".join(self._parts))
        self._waiting_bytes += self._length
        self._parts = []

    def end(self) -> None:
        """Handle the end of the output."""
        self._is_over = True
        self._changed.set()

    async def forward(self, incoming: MemoryObjectSendStream[Incoming]) -> None:
        """Forward messages as they arrive, until the output ends."""
        unreadable = 0
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with incoming:
                while unreadable < MAX_UNREADABLE:
                    if not self._waiting:
                        if self._is_over:
                            return
                        if self.process is not None:
                            self.process.resume()
                        self._changed.clear()
                        await self._changed.wait()
                        continue
                    message = await self._next()
                    if message is None:
                        continue
                    unreadable = unreadable + 1 if isinstance(message, Exception) else 0
                    await incoming.send(message)

    async def _next(self) -> Incoming | None:
        line = self._waiting.popleft()
        self._waiting_bytes -= len(line)
        if len(line) > LONG_MESSAGE_BYTES:
            return await self._workers.run(_parse, line)
        return _parse(line)


def _parse(line: bytes) -> Incoming | None:
    """Decode one line; a malformed answer becomes an error for its request."""
    if not line.strip():
        return None
    reason = limit_error(line)
    if reason is not None:
        error = error_for(reason, line)
        return ValueError(reason) if error is None else _decode(error)
    try:
        return _decode(line)
    except ValueError as json_error:
        error = error_for(MALFORMED, line)
        return json_error if error is None else _decode(error)


def _decode(line: bytes) -> SessionMessage:
    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))


async def _write(process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write messages; a server that does not read them any more is ended."""
    try:
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")
    except OSError:
        # Probably the process has ended; its remaining output is still read.
        await _end_gracefully(process)
        process.kill()


async def _watch(process: Process, lines: _Lines) -> None:
    """Wait for the end of the process, whose children may still have its stdout open."""
    await process.wait()
    lines.end()


async def _end_gracefully(process: Process) -> None:
    """Let the server end by itself, as the protocol requires: close stdin, then SIGTERM."""
    process.close_stdin()
    for next_signal in (signal.SIGTERM, None):
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()
                return
        if next_signal is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, next_signal)


def _program(config: ServerConfig, env: Mapping[str, str], workspace: str) -> str:
    command = config.command or ""
    if os.sep in command:
        program = shutil.which(command)
    else:
        program = find_on_path(command, env.get("PATH"), workspace=workspace)
    if program is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command)
    return program


def _folder(config: ServerConfig, cwd: str) -> str:
    folder = config.cwd or cwd
    if not Path(folder).is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), folder)
    return folder
