"""Commands that a client runs outside any thread, with streamed output."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from treadle.protocol.client_requests import (
    COMMAND_EXEC,
    COMMAND_EXEC_RESIZE,
    COMMAND_EXEC_TERMINATE,
    COMMAND_EXEC_WRITE,
)
from treadle.protocol.command import (
    CommandExecOutputDeltaNotification,
    CommandExecParams,
    CommandExecResizeParams,
    CommandExecResponse,
    CommandExecTerminalSize,
    CommandExecTerminateParams,
    CommandExecWriteParams,
)

if TYPE_CHECKING:
    from treadle.client._runtime.runtime import ClientRuntime

MARGIN_SECONDS: Final = 30.0


class CommandOutput(NamedTuple):
    """A piece of a command's output."""

    stream: Literal["stdout", "stderr"]
    data: bytes


def argv_of(command: Sequence[str]) -> list[str]:
    """Return the argument vector of a command.

    Raises:
        TypeError: the command is a string, whose letters would become arguments.
    """
    if isinstance(command, str | bytes):
        raise TypeError(f"a command is a list of arguments, such as ['sh', '-c', {command!r}]")
    return list(command)


def response_timeout(params: CommandExecParams) -> float:
    """Return the request timeout of a command: its own limit plus a margin."""
    if params.disable_timeout:
        return inf
    seconds = 10.0 if params.timeout_ms is None else params.timeout_ms / 1000
    return seconds + MARGIN_SECONDS


class AsyncCommand:
    """A running command: iterate over its output, write to it, wait until it ends."""

    def __init__(self, core: ClientRuntime, params: CommandExecParams) -> None:
        self._core = core
        self._params = params
        self.id: str = params.process_id or ""
        self._output: deque[CommandOutput] = deque()
        self._changed = asyncio.Event()
        self._answer: asyncio.Future[CommandExecResponse] | None = None

    async def start(self) -> None:
        """Start the command and collect its output."""
        self._answer = asyncio.get_running_loop().create_future()
        self._core.notifications.commands[self.id] = self._on_output
        self._core.tasks.spawn(self._run(self._answer), f"command {self.id}")
        # Sends the request before the caller can write to the command.
        await asyncio.sleep(0)

    async def wait(self) -> CommandExecResponse:
        """Wait until the command ends; the response does not repeat streamed output."""
        return await asyncio.shield(self._running())

    async def write(self, data: bytes | str, *, close: bool = False) -> None:
        """Write to the command's standard input; `close` ends the input."""
        raw = data.encode() if isinstance(data, str) else data
        text = base64.b64encode(raw).decode() if raw else None
        params = CommandExecWriteParams(self.id, close_stdin=close, delta_base64=text)
        await self._core.request(COMMAND_EXEC_WRITE, params)

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the command's terminal."""
        size = CommandExecTerminalSize(cols=cols, rows=rows)
        await self._core.request(COMMAND_EXEC_RESIZE, CommandExecResizeParams(self.id, size))

    async def terminate(self) -> None:
        """Kill the command."""
        await self._core.request(COMMAND_EXEC_TERMINATE, CommandExecTerminateParams(self.id))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CommandOutput:
        answer = self._running()
        while not self._output:
            if answer.done():
                answer.result()  # raises if the command could not be run
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._output.popleft()

    def _running(self) -> asyncio.Future[CommandExecResponse]:
        if self._answer is None:
            raise RuntimeError("the command has not started: await start() first")
        return self._answer

    async def _run(self, answer: asyncio.Future[CommandExecResponse]) -> None:
        try:
            seconds = response_timeout(self._params)
            answer.set_result(await self._core.request(COMMAND_EXEC, self._params, timeout=seconds))
        except BaseException as error:
            answer.set_exception(error if isinstance(error, Exception) else RuntimeError("closed"))
            answer.exception()  # marks it as retrieved: there may be no waiter
            if not isinstance(error, Exception):
                raise
        finally:
            self._core.notifications.commands.pop(self.id, None)
            self._changed.set()

    def _on_output(self, event: CommandExecOutputDeltaNotification) -> None:
        self._output.append(CommandOutput(event.stream, base64.b64decode(event.delta_base64)))
        self._changed.set()
