"""`exec_command` and `write_stdin`: commands that may go on after their call, and be typed into."""

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
from treadle.engine.tools.options import EscalationOptions, wishes_schema
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
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

_MIN_WAIT_MS: Final = 250
_MAX_WAIT_MS: Final = 30_000
_DEFAULT_WAIT_MS: Final = 10_000
# Whoever asks again without typing anything has time.
_MIN_POLL_MS: Final = 5_000
# A command that is busy reads later; one that never reads must not hold up the turn.
_MIN_TYPING_MS: Final = 2_000
_NOT_READ: Final = "write_stdin failed: the command does not read; a part of the input was written"
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
    "description": f"Most tokens of output to give back; {DEFAULT_TOKENS} by default.",
}


class ExecCommand:
    """Runs a script in a shell; what is not over in time goes on in the background."""

    name = "exec_command"
    properties: ClassVar[dict[str, JsonValue]] = {
        "cmd": {"type": "string", "description": "Script for the shell."},
        "shell": {"type": "string", "description": "Shell to use; the user's own by default."},
        "login": {"type": "boolean", "description": "Whether it is a login shell; true."},
        "tty": {
            "type": "boolean",
            "description": "Give it a terminal, so that write_stdin can type into it; false.",
        },
        "yield_time_ms": {
            "type": "number",
            "description": "How long to wait for it to end: 250 to 30000 ms, 10000 by default.",
        },
        "max_output_tokens": _BUDGET,
    }

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        return function_tool(
            self.name,
            "Run a command. Gives its output, or a session ID if it is still running.",
            {**self.properties, **wishes_schema(self._thread)},
            ["cmd"],
        )

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run it, for as long as the model waits."""
        wanted = read_arguments(call, _Execute)
        thread = self._thread
        settings = thread.settings_of(turn)
        is_login = wanted.login and settings.shell.allows_login
        argv = shell_argv(wanted.cmd, shell=wanted.shell, is_login=is_login)
        request = wanted.request(call, argv, settings)
        began = time.monotonic()
        patched = await hand_over_patch(thread, turn, request)
        if patched is not None:
            return f"Wall time: {time.monotonic() - began:.4f} seconds\nOutput:\n{patched}"
        require_short(self.name, argv)
        attempt = CommandAttempt(thread, turn, request, is_terminal=wanted.tty)
        attempt.fault = "Failed to create unified exec process"
        attempt.session = thread.terminals.reserve(attempt.run)
        run = attempt.run
        try:
            await attempt.start()
            began = time.monotonic()
            await attempt.wait(_clamp(wanted.yield_time_ms, _DEFAULT_WAIT_MS, _MIN_WAIT_MS) / 1000)
        except NotRun as refusal:
            words = _ended if refusal.was_started else _rejected
            raise ToolRefused(words(refusal.reason)) from refusal
        finally:
            if run.process is None or run.is_over:
                thread.terminals.release(attempt.session)
        budget = settings.shell.budget(wanted.max_output_tokens)
        return _report(run, attempt.session, time.monotonic() - began, budget)


class WriteStdin:
    """Types into a command that runs in the background, or looks how it is getting on."""

    name = "write_stdin"
    properties: ClassVar[dict[str, JsonValue]] = {
        "session_id": {"type": "number", "description": "The session that exec_command named."},
        "chars": {"type": "string", "description": "What to type; nothing to look only."},
        "yield_time_ms": {
            "type": "number",
            "description": "How long to wait for output: after typing 250 to 30000 ms, 250 by "
            "default; without typing at least 5000 ms.",
        },
        "max_output_tokens": _BUDGET,
    }

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        return function_tool(
            self.name,
            "Type into a running session of exec_command. Gives what it has printed since.",
            self.properties,
            ["session_id"],
        )

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Type, wait, and give what is new."""
        wanted = read_arguments(call, _Write)
        terminals, number = self._thread.terminals, wanted.session_id
        run = terminals.session(number)
        if run is None or run.process is None:
            raise ToolRefused(f"write_stdin failed: Unknown process id {number}")
        await self._approve(call, turn, run, wanted)
        began = time.monotonic()
        await self._type(run, wanted)
        terminals.touch(run)
        await wait(run, self._patience(wanted) / 1000)
        if not turn.is_over:
            self._tell(run, turn, wanted)
        if run.exited.is_set():
            terminals.release(number)
        budget = self._thread.settings.shell.budget(wanted.max_output_tokens)
        return _report(run, number, time.monotonic() - began, budget)

    async def _approve(
        self, call: ToolCall, turn: ActiveTurn, run: CommandRun, wanted: _Write
    ) -> None:
        if not wanted.chars or not run.is_terminal or run.exited.is_set():
            return
        request = InputRequest(run, call.id, wanted.session_id, wanted.chars)
        try:
            await approve_input(self._thread, turn, request)
        except Denied as refusal:
            raise ToolRefused(f"write_stdin rejected: {refusal.reason}") from refusal

    async def _type(self, run: CommandRun, wanted: _Write) -> None:
        chars = wanted.chars
        if not chars or run.process is None or run.exited.is_set():
            return
        if run.is_terminal:
            limit = asyncio.timeout(max(self._patience(wanted), _MIN_TYPING_MS) / 1000)
            # Any other error says that it has just ended, and so does the answer.
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

    def _patience(self, wanted: _Write) -> float:
        if wanted.chars:
            return _clamp(wanted.yield_time_ms, _MIN_WAIT_MS, _MIN_WAIT_MS)
        longest = max(_MIN_POLL_MS, self._thread.settings.shell.max_poll_ms)
        return _clamp(wanted.yield_time_ms, _MIN_POLL_MS, _MIN_POLL_MS, longest)

    def _tell(self, run: CommandRun, turn: ActiveTurn, wanted: _Write) -> None:
        turn.log.publish(
            n.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
            TerminalInteractionNotification(
                item_id=run.item.id,
                process_id=str(wanted.session_id),
                stdin=wanted.chars,
                thread_id=turn.thread_id,
                turn_id=turn.id,
            ),
        )


async def hand_over_patch(
    thread: LoadedThread, turn: ActiveTurn, request: CommandRequest
) -> Output | None:
    """Apply the patch that a command consists of; `None` if it is another command."""
    # Not the parser at once: nearly every command is another one.
    if not any("patch" in word or "Patch" in word for word in request.argv):
        return None
    from treadle.engine.patch.heredoc import find_patch
    from treadle.engine.tools.patch import apply_patch

    found = find_patch(request.argv)
    if found is None:
        return None
    cwd = str(Path(request.cwd) / (found.folder or ""))
    return await apply_patch(thread, turn, request.call_id, found.text, cwd)


def require_short(name: str, argv: Sequence[str]) -> None:
    """Check that a program can be started with these words.

    Raises:
        ToolRefused: one of them is too long.
    """
    longest = max(map(len, argv))
    if longest >= MAX_SCRIPT:
        raise ToolRefused(
            f"{name} failed: the command has {longest} characters: expected less than "
            f"{MAX_SCRIPT}; write a longer script to a file and run that"
        )


def _clamp(value: float | None, default: int, least: int, most: int = _MAX_WAIT_MS) -> float:
    return default if value is None else min(max(value, least), most)


def _rejected(reason: str) -> str:
    # Upstream's words; models have learnt them.
    inner = f"Rejected({json.dumps(reason, ensure_ascii=False)})"
    message = json.dumps(inner, ensure_ascii=False)
    return f"exec_command failed: CreateProcess {{ message: {message} }}"


def _ended(reason: str) -> str:
    return f"exec_command failed: ProcessFailed {{ message: {json.dumps(reason)} }}"


def _report(run: CommandRun, number: int, seconds: float, max_tokens: int) -> str:
    """What has come since the model last looked, and how things stand."""
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
