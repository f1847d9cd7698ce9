"""`shell` and `shell_command`: commands that end with their call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from treadle.engine.terminals.attempt import CommandAttempt, NotRun
from treadle.engine.terminals.run import CommandRun
from treadle.engine.terminals.shell import shell_argv
from treadle.engine.tools.exec import (
    ExecCommand,
    WriteStdin,
    apply_patch_command,
    require_short,
)
from treadle.engine.tools.options import EscalationOptions, escalation_schema
from treadle.engine.tools.output import truncate
from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolRefused,
    function_tool,
    read_arguments,
)
from treadle.model.base import ModelTool
from treadle.model.catalog import UNKNOWN, traits_of
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from treadle.engine.approvals.permission import CommandRequest
    from treadle.engine.settings import RunSettings
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

TIMED_OUT: Final = 124
_DEFAULT_TIMEOUT_MS: Final = 10_000
_BY_USER: Final = "rejected by user"

_TIMEOUT: Final = {
    "type": "number",
    "description": f"Timeout in milliseconds (default {_DEFAULT_TIMEOUT_MS}).",
}


class _Argv(EscalationOptions, kw_only=True):
    command: list[str]
    timeout_ms: float | None = None


class _Script(EscalationOptions, kw_only=True):
    command: str
    login: bool = True
    timeout_ms: float | None = None


class Shell:
    """Runs a program with its arguments."""

    name = "shell"
    properties: ClassVar[dict[str, JsonValue]] = {
        "command": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'Program and arguments, such as ["bash", "-lc", "ls"].',
        },
        "timeout_ms": _TIMEOUT,
    }

    def __init__(self, thread: LoadedThread, *, is_hidden: bool = False) -> None:
        self._thread = thread
        self.is_hidden = is_hidden

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        properties = {**self.properties, **escalation_schema(self._thread)}
        return function_tool(self.name, "Run a command.", properties, ["command"])

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run the command to its end."""
        arguments = self._read(call)
        result = await _run(self._thread, turn, call, arguments, arguments.command)
        return result if isinstance(result, list | str) else result.as_json()

    async def requested(self, call: ToolCall, settings: RunSettings) -> CommandRequest:
        """Return the command of a call as a request for approval.

        Raises:
            ToolRefused: the arguments are invalid.
        """
        arguments = self._read(call)
        workers = self._thread.services.file_workers
        return await arguments.request(call, arguments.command, settings, workers)

    def _read(self, call: ToolCall) -> _Argv:
        arguments = read_arguments(call, _Argv)
        if not arguments.command:
            raise ToolRefused("command args are empty")
        return arguments


class ShellCommand:
    """Runs a script in the user's shell."""

    name = "shell_command"
    properties: ClassVar[dict[str, JsonValue]] = {
        "command": {
            "type": "string",
            "description": "Shell command or script, run in the user's shell.",
        },
        "login": {"type": "boolean", "description": "Run as a login shell. Defaults to true."},
        "timeout_ms": _TIMEOUT,
    }

    def __init__(self, thread: LoadedThread, *, is_hidden: bool = False) -> None:
        self._thread = thread
        self.is_hidden = is_hidden

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        properties = {**self.properties, **escalation_schema(self._thread)}
        return function_tool(self.name, "Run a shell command.", properties, ["command"])

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Run the command to its end."""
        arguments = read_arguments(call, _Script)
        result = await _run(self._thread, turn, call, arguments, self._argv(arguments))
        return result if isinstance(result, list | str) else result.as_text()

    async def requested(self, call: ToolCall, settings: RunSettings) -> CommandRequest:
        """Return the command of a call as a request for approval.

        Raises:
            ToolRefused: the arguments are invalid.
        """
        arguments = read_arguments(call, _Script)
        workers = self._thread.services.file_workers
        return await arguments.request(call, self._argv(arguments), settings, workers)

    def _argv(self, arguments: _Script) -> tuple[str, ...]:
        is_login = arguments.login and self._thread.settings.shell.allows_login
        return shell_argv(arguments.command, is_login=is_login)


class _CommandResult:
    """The result of a command, in the two formats that models know."""

    def __init__(self, run: CommandRun, max_tokens: int, *, has_timed_out: bool) -> None:
        self._seconds = run.seconds
        self._exit_code = TIMED_OUT if has_timed_out else run.exit_code
        text = run.output.text()
        if has_timed_out:
            text = f"command timed out after {round(run.seconds * 1000)} milliseconds\n{text}"
        self._text = truncate(text, max_tokens)
        self._lines = len(text.splitlines()) if self._text != text else None
        self._where = run.output.where

    def as_json(self) -> str:
        total = "" if self._lines is None else f"{self._total()}\n\n"
        metadata = {"exit_code": self._exit_code, "duration_seconds": round(self._seconds, 1)}
        document = {"output": total + self._text, "metadata": metadata}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def _total(self) -> str:
        place = f"\nFull output in {self._where}" if self._where else ""
        return f"Total output lines: {self._lines}{place}"

    def as_text(self) -> str:
        lines = [f"Exit code: {self._exit_code}", f"Wall time: {round(self._seconds, 1):g} seconds"]
        if self._lines is not None:
            lines.append(self._total())
        return "\n".join([*lines, "Output:", self._text])


async def _run(
    thread: LoadedThread,
    turn: ActiveTurn,
    call: ToolCall,
    arguments: _Argv | _Script,
    argv: Sequence[str],
) -> _CommandResult | Output:
    workers = thread.services.file_workers
    request = await arguments.request(call, argv, thread.settings_of(turn), workers)
    patched = await apply_patch_command(thread, turn, request)
    if patched is not None:
        return patched
    require_short(call.name, argv)
    attempt = CommandAttempt(thread, turn, request)
    timeout_ms = arguments.timeout_ms
    limit = _DEFAULT_TIMEOUT_MS if timeout_ms is None else max(0.0, timeout_ms)
    try:
        await attempt.start()
        has_ended = await attempt.wait(limit / 1000, exit_code=TIMED_OUT)
    except NotRun as refusal:
        is_users = refusal.reason == _BY_USER
        reason = f"exec command {_BY_USER}" if is_users else refusal.reason
        raise ToolRefused(reason) from refusal
    return _CommandResult(attempt.run, thread.settings.shell.budget(), has_timed_out=not has_ended)


def command_tools(thread: LoadedThread) -> list[ExecCommand | WriteStdin | Shell | ShellCommand]:
    """The tools that run commands.

    The older ones always work: a model repeats the calls that its history contains.
    """
    if not thread.settings.is_enabled("shell_tool"):
        return []
    if thread.settings.is_enabled("unified_exec"):
        newer = (ExecCommand(thread), WriteStdin(thread))
        return [*newer, Shell(thread, is_hidden=True), ShellCommand(thread, is_hidden=True)]
    is_known = traits_of(thread.settings.model) is not UNKNOWN
    return [ShellCommand(thread, is_hidden=not is_known), Shell(thread, is_hidden=is_known)]
