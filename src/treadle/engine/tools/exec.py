"""`exec_command` and `write_stdin`: commands that may outlive their call and accept input."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from treadle.engine.approvals.permission import CommandRequest, Denied
from treadle.engine.terminals.attempt import CommandAttempt, NotRun
from treadle.engine.terminals.input import InputRequest, approve_input
from treadle.engine.terminals.run import CommandRun
from treadle.engine.terminals.shell import shell_argv
from treadle.engine.terminals.terminals import wait
from treadle.engine.tools.options import EscalationOptions, escalation_schema
from treadle.engine.tools.output import DEFAULT_TOKENS, tokens
from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolRefused,
    function_tool,
    read_arguments,
)
from treadle.model.base import ModelTool
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.delta import TerminalInteractionNotification
from treadle.shell.syntax import MAX_SCRIPT

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn
    from treadle.support.concurrency.workers import Workers

_MIN_WAIT_MS: Final = 250
_MAX_WAIT_MS: Final = 30_000
_DEFAULT_WAIT_MS: Final = 10_000
# A poll without input waits at least this long.
_MIN_POLL_MS: Final = 5_000
# A busy command reads later; a command that never reads must not block the turn.
_MIN_WRITE_MS: Final = 2_000
_NOT_READ: Final = (
    "write_stdin failed: the command does not read its input; only part of it was written"
)
_INTERRUPT: Final = "\x03"


class _Execute(EscalationOptions, kw_only=True):
    cmd: str
    shell: str | None = None
    login: bool = True
    tty: bool = False
    yield_time_ms: float | None = None
    max_output_tokens: float | None = None


class _Write(msgspec.Struct):
    session_id: int
    chars: str = ""
    yield_time_ms: float | None = None
    max_output_tokens: float | None = None


_BUDGET: Final = {
    "type": "number",
    "description": f"Maximum output tokens to return (default {DEFAULT_TOKENS}).",
}


async def _requested(
    call: ToolCall, arguments: _Execute, settings: RunSettings, workers: Workers
) -> CommandRequest:
    if arguments.tty and not settings.is_enabled("unified_exec_tty"):
        raise ToolRefused("terminals are disabled: run the command without `tty`")
    is_login = arguments.login and settings.shell.allows_login
    argv = shell_argv(arguments.cmd, shell=arguments.shell, is_login=is_login)
    return await arguments.request(call, argv, settings, workers, is_terminal=arguments.tty)


class ExecCommand:
    """Runs a script in a shell; it continues in the background if it does not end in time."""

    name = "exec_command"
    properties: ClassVar[dict[str, JsonValue]] = {
        "cmd": {"type": "string", "description": "Shell command or script to run."},
        "shell": {"type": "string", "description": "Shell to use. Defaults to the user's shell."},
        "login": {"type": "boolean", "description": "Run as a login shell. Defaults to true."},
        "tty": {
            "type": "boolean",
            "description": "Run in a terminal, for input with write_stdin. Defaults to false.",
        },
        "yield_time_ms": {
            "type": "number",
            "description": "Milliseconds to wait for the end: 250 to 30000 (default 10000).",
        },
        "max_output_tokens": _BUDGET,
    }

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        return function_tool(
            self.name,
            "Run a command. Returns its output, and a session ID if it is still running.",
            {**self._properties(), **escalation_schema(self._thread)},
            ["cmd"],
        )

    async def requested(self, call: ToolCall, settings: RunSettings) -> CommandRequest:
        """Return the command of a call as a request for approval.

        Raises:
            ToolRefused: the arguments are invalid.
        """
        workers = self._thread.services.file_workers
        return await _requested(call, read_arguments(call, _Execute), settings, workers)

    def _properties(self) -> dict[str, JsonValue]:
        if self._thread.settings.is_enabled("unified_exec_tty"):
            return self.properties
        return {name: about for name, about in self.properties.items() if name != "tty"}

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run the command, and wait as long as the model asked for."""
        arguments = read_arguments(call, _Execute)
        thread = self._thread
        settings = thread.settings_of(turn)
        request = await _requested(call, arguments, settings, thread.services.file_workers)
        argv = request.argv
        began = time.monotonic()
        patched = await apply_patch_command(thread, turn, request)
        if patched is not None:
            return f"Wall time: {time.monotonic() - began:.4f} seconds\nOutput:\n{patched}"
        require_short(self.name, argv)
        attempt = CommandAttempt(thread, turn, request, is_terminal=arguments.tty)
        attempt.error_prefix = "Failed to create unified exec process"
        attempt.session = thread.terminals.reserve(attempt.run)
        run = attempt.run
        try:
            await attempt.start()
            began = time.monotonic()
            await attempt.wait(
                _clamp(arguments.yield_time_ms, _DEFAULT_WAIT_MS, _MIN_WAIT_MS) / 1000
            )
        except NotRun as refusal:
            describe = _ended if refusal.was_started else _rejected
            raise ToolRefused(describe(refusal.reason)) from refusal
        finally:
            if run.process is None or run.is_over:
                thread.terminals.release(attempt.session)
        run.is_background = not run.exited.is_set()
        budget = settings.shell.budget(arguments.max_output_tokens)
        return _report(run, attempt.session, time.monotonic() - began, budget)


class WriteStdin:
    """Sends input to a command in the background, or polls it."""

    name = "write_stdin"
    properties: ClassVar[dict[str, JsonValue]] = {
        "session_id": {"type": "number", "description": "Session ID returned by exec_command."},
        "chars": {"type": "string", "description": "Input to send. Leave empty to only poll."},
        "yield_time_ms": {
            "type": "number",
            "description": "Milliseconds to wait for output: 250 to 30000 after input (default "
            "250); at least 5000 without input.",
        },
        "max_output_tokens": _BUDGET,
    }

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        return function_tool(
            self.name,
            "Send input to a running exec_command session. Returns its new output.",
            self.properties,
            ["session_id"],
        )

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Send the input, wait, and return the new output."""
        arguments = read_arguments(call, _Write)
        terminals, number = self._thread.terminals, arguments.session_id
        run = terminals.session(number)
        if run is None or run.process is None:
            raise ToolRefused(f"write_stdin failed: Unknown process id {number}")
        await self._approve(call, turn, run, arguments)
        began = time.monotonic()
        await self._write(run, arguments)
        terminals.touch(run)
        await wait(run, self._wait_ms(arguments) / 1000)
        if not turn.is_over:
            self._publish(run, turn, arguments)
        if run.exited.is_set():
            terminals.release(number)
        budget = self._thread.settings.shell.budget(arguments.max_output_tokens)
        return _report(run, number, time.monotonic() - began, budget)

    async def _approve(
        self, call: ToolCall, turn: ActiveTurn, run: CommandRun, arguments: _Write
    ) -> None:
        if not arguments.chars or not run.is_terminal or run.exited.is_set():
            return
        request = InputRequest(run, call.id, arguments.session_id, arguments.chars)
        try:
            await approve_input(self._thread, turn, request)
        except Denied as refusal:
            raise ToolRefused(f"write_stdin rejected: {refusal.reason}") from refusal

    async def _write(self, run: CommandRun, arguments: _Write) -> None:
        chars = arguments.chars
        if not chars or run.process is None or run.exited.is_set():
            return
        if run.is_terminal:
            limit = asyncio.timeout(max(self._wait_ms(arguments), _MIN_WRITE_MS) / 1000)
            # Any other error means that the command has just ended; the report says so too.
            with suppress(OSError):
                async with limit:
                    await run.process.write(chars.encode("utf-8", "replace"))
            if limit.expired():
                raise ToolRefused(_NOT_READ)
        elif chars == _INTERRUPT:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(run.process.pid, signal.SIGINT)
        else:
            raise ToolRefused(
                "write_stdin failed: stdin is closed for this session; rerun exec_command with "
                "tty=true to keep stdin open"
            )

    def _wait_ms(self, arguments: _Write) -> float:
        if arguments.chars:
            return _clamp(arguments.yield_time_ms, _MIN_WAIT_MS, _MIN_WAIT_MS)
        longest = max(_MIN_POLL_MS, self._thread.settings.shell.max_poll_ms)
        return _clamp(arguments.yield_time_ms, _MIN_POLL_MS, _MIN_POLL_MS, longest)

    def _publish(self, run: CommandRun, turn: ActiveTurn, arguments: _Write) -> None:
        turn.log.publish(
            n.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
            TerminalInteractionNotification(
                item_id=run.item.id,
                process_id=str(arguments.session_id),
                stdin=arguments.chars,
                thread_id=turn.thread_id,
                turn_id=turn.id,
            ),
        )


async def apply_patch_command(
    thread: LoadedThread, turn: ActiveTurn, request: CommandRequest
) -> Output | None:
    """Apply the patch if a command is an `apply_patch` call; `None` if it is another command."""
    # Avoid the parser for most commands.
    if not any("patch" in word or "Patch" in word for word in request.argv):
        return None
    from treadle.engine.patch.heredoc import find_patch
    from treadle.engine.tools.patch import apply_patch

    patch = find_patch(request.argv)
    if patch is None:
        return None
    cwd = str(Path(request.cwd) / (patch.folder or ""))
    return await apply_patch(thread, turn, request.call_id, patch.text, cwd)


def require_short(name: str, argv: Sequence[str]) -> None:
    """Check that a program can be started with these arguments.

    Raises:
        ToolRefused: an argument is too long.
    """
    longest = max(map(len, argv))
    if longest >= MAX_SCRIPT:
        raise ToolRefused(
            f"{name} failed: the command has {longest} characters, expected less than "
            f"{MAX_SCRIPT}; write a longer script to a file and run that"
        )


def _clamp(value: float | None, default: int, least: int, most: int = _MAX_WAIT_MS) -> float:
    return default if value is None else min(max(value, least), most)


def _rejected(reason: str) -> str:
    # The reference's text, which models have learnt.
    inner = f"Rejected({json.dumps(reason, ensure_ascii=False)})"
    message = json.dumps(inner, ensure_ascii=False)
    return f"exec_command failed: CreateProcess {{ message: {message} }}"


def _ended(reason: str) -> str:
    return f"exec_command failed: ProcessFailed {{ message: {json.dumps(reason)} }}"


def _report(run: CommandRun, number: int, seconds: float, max_tokens: int) -> str:
    """The output since the last report, and the state of the process."""
    unread = run.take_unread()
    if run.exited.is_set():
        state = f"Process exited with code {run.exit_code}"
    else:
        state = f"Process running with session ID {number}"
    return "\n".join(
        [
            f"Chunk ID: {os.urandom(3).hex()}",
            f"Wall time: {seconds:.4f} seconds",
            state,
            f"Original token count: {tokens(unread.total)}",
            "Output:",
            unread.for_model(max_tokens),
        ]
    )
