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
from treadle.engine.mcp.notes import Notes
from treadle.sandbox.policy import UNRESTRICTED
from treadle.sandbox.process import Process
from treadle.support.programs import find_on_path

Incoming = SessionMessage | Exception
Reading = MemoryObjectReceiveStream[Incoming]
Writing = MemoryObjectSendStream[SessionMessage]

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
    """Cuts lines out of what a server writes, and lets it wait when nobody reads them."""

    def __init__(self, notes: Notes) -> None:
        self.process: Process | None = None
        self._notes = notes
        self._waiting: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._length = 0
        self._is_over = False
        self._news = asyncio.Event()

    def take(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Take a piece of output."""
        if stream == "stderr":
            self._notes.add_stderr(data)
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._waiting.append(b"".join([*self._parts, line]))
            self._parts, self._length = [], 0
        self._parts.append(rest)
        self._length += len(rest)
        if self._length > MAX_LINE_BYTES:
            self._notes.is_garbled = True
            self.end()
        if len(self._waiting) > MAX_WAITING_LINES and self.process is not None:
            self.process.pause()
        self._news.set()

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
                    message = _parse(self._waiting.popleft())
                    if message is None:
                        continue
                    unreadable = unreadable + 1 if isinstance(message, Exception) else 0
                    await heard.send(message)


def _parse(line: bytes) -> Incoming | None:
    if not line.strip():
        return None
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


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
