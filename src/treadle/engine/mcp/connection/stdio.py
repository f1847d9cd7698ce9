"""An MCP server as a process of ours: one message a line, on its stdin and stdout.

Not the SDK's own transport: what a server has started must end with it, also when we are killed,
and a line of any length or nonsense on it must not be the end of everything.

This module imports the MCP SDK, and so is imported only when a server is configured.
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
    GARBLED,
    LONG_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_WORKERS,
    fault_of,
    refusal,
)
from treadle.engine.mcp.connection.notes import Notes
from treadle.sandbox.policy import UNRESTRICTED
from treadle.sandbox.process import Process
from treadle.support.concurrency.workers import Workers
from treadle.support.files.programs import find_on_path

Incoming = SessionMessage | Exception
Reading = MemoryObjectReceiveStream[Incoming]
Writing = MemoryObjectSendStream[SessionMessage]

# The rest of a line that is too long for a message is skipped, but not without end.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
MAX_WAITING_LINES: Final = 64
# A server that talks but never makes sense is given up.
MAX_UNREADABLE: Final = 1_000
# A server that does not go when its stdin is closed is told to, and then made to.
LEAVE_SECONDS: Final = 0.5


@asynccontextmanager
async def over_stdio(
    config: ServerConfig, cwd: str, environ: Mapping[str, str], notes: Notes
) -> AsyncIterator[tuple[Reading, Writing]]:
    """Run a server for as long as the block lasts.

    Raises:
        OSError: the command or its folder is not there.
    """
    env = config.environment(environ)
    lines = _Lines(notes)
    process = lines.process = await Process.start(
        [_program(config, env, cwd), *config.args],
        cwd=_folder(config, cwd),
        env=env,
        confinement=UNRESTRICTED,
        on_output=lines.take,
        has_stdin=True,
    )
    heard, reading = anyio.create_memory_object_stream[Incoming](0)
    writing, said = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with asyncio.TaskGroup() as tasks:
            ours = [
                tasks.create_task(lines.pass_on(heard)),
                tasks.create_task(_write(process, said)),
                tasks.create_task(_watch(process, lines)),
            ]
            try:
                yield reading, writing
                await _leave(process)
            finally:
                process.kill()
                for task in ours:
                    task.cancel()
    finally:
        for stream in (heard, reading, writing, said):
            stream.close()


class _Lines:
    """Cuts lines out of what a server writes, and pauses it while many wait to be read."""

    def __init__(self, notes: Notes) -> None:
        self.process: Process | None = None
        self._notes = notes
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._parts: list[bytes] = []
        self._length = 0
        # The line is longer than a message may be: its beginning was passed on.
        self._is_skipping = False
        self._is_over = False
        self._news = asyncio.Event()
        self._workers = Workers("mcp message", MAX_WORKERS)

    def take(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Take a piece of output."""
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
        self._news.set()

    def _extend(self, part: bytes) -> None:
        self._length += len(part)
        if self._is_skipping:
            if self._length > MAX_LINE_BYTES:
                self._notes.is_garbled = True
                self.end()
            return
        self._parts.append(part)
        if self._length > MAX_MESSAGE_BYTES:
            # Passed on at once: a line without an end must not delay the error of its request.
            self._pass_line()
            self._is_skipping = True

    def _end_line(self) -> None:
        if not self._is_skipping:
            self._pass_line()
        self._is_skipping, self._length = False, 0

    def _pass_line(self) -> None:
        self._waiting.append(b"".join(self._parts))
        self._waiting_bytes += self._length
        self._parts = []

    def end(self) -> None:
        """There will be no more."""
        self._is_over = True
        self._news.set()

    async def pass_on(self, heard: MemoryObjectSendStream[Incoming]) -> None:
        """Pass messages on as they come, until there are no more."""
        unreadable = 0
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with heard:
                while unreadable < MAX_UNREADABLE:
                    if not self._waiting:
                        if self._is_over:
                            return
                        if self.process is not None:
                            self.process.resume()
                        self._news.clear()
                        await self._news.wait()
                        continue
                    message = await self._next()
                    if message is None:
                        continue
                    unreadable = unreadable + 1 if isinstance(message, Exception) else 0
                    await heard.send(message)

    async def _next(self) -> Incoming | None:
        line = self._waiting.popleft()
        self._waiting_bytes -= len(line)
        if len(line) > LONG_MESSAGE_BYTES:
            return await self._workers.run(_parse, line)
        return _parse(line)


def _parse(line: bytes) -> Incoming | None:
    """Decode one line; an answer that cannot be read is an error of its request."""
    if not line.strip():
        return None
    fault = fault_of(line)
    if fault is not None:
        error = refusal(fault, line)
        return ValueError(fault) if error is None else _decode(error)
    try:
        return _decode(line)
    except ValueError as fault_in_json:
        error = refusal(GARBLED, line)
        return fault_in_json if error is None else _decode(error)


def _decode(line: bytes) -> SessionMessage:
    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))


async def _write(process: Process, said: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write messages; a server that does not read them any more has to go."""
    try:
        async with said:
            async for message in said:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")
    except OSError:
        # Most likely it has ended; then what it wrote until then is still heard.
        await _leave(process)
        process.kill()


async def _watch(process: Process, lines: _Lines) -> None:
    """Note the end of the process: of all that it started, one may still hold its stdout."""
    await process.wait()
    lines.end()


async def _leave(process: Process) -> None:
    """Let the server go by itself, as the protocol has it: no more input, then a word."""
    process.close_stdin()
    for word in (signal.SIGTERM, None):
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await process.wait()
                return
        if word is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, word)


def _program(config: ServerConfig, env: Mapping[str, str], workspace: str) -> str:
    command = config.command or ""
    if os.sep in command:
        found = shutil.which(command)
    else:
        found = find_on_path(command, env.get("PATH"), workspace=workspace)
    if found is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command)
    return found


def _folder(config: ServerConfig, cwd: str) -> str:
    folder = config.cwd or cwd
    if not Path(folder).is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), folder)
    return folder
