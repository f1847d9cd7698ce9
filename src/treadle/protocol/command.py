"""Commands that run for a client outside any turn, and a thread's background terminals."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import (
    Int32,
    Int64,
    LegacyAppPathString,
    Params,
    UInt16,
    UInt32,
    UInt64,
    Value,
    experimental,
)
from treadle.protocol.policy import SandboxPolicy

CommandExecOutputStream = Literal["stdout", "stderr"]


class CommandExecOutputDeltaNotification(Value, frozen=True):
    """Output of a streaming command; sent only to the connection that started it."""

    # True on the last chunk before the cap; later output on this stream is dropped.
    cap_reached: bool
    delta_base64: str
    process_id: str
    stream: CommandExecOutputStream


class CommandExecTerminalSize(Value, frozen=True):
    """Width and height of a terminal, in character cells."""

    cols: UInt16
    rows: UInt16


@experimental("permission_profile")
class CommandExecParams(Params, frozen=True):
    """Run a program in the sandbox, outside any thread; the response waits for its exit."""

    command: list[str]
    cwd: str | None = None
    # Mutually exclusive with output_bytes_cap.
    disable_output_cap: bool = False
    # Mutually exclusive with timeout_ms.
    disable_timeout: bool = False
    # Merged into the server's environment; null unsets a variable.
    env: dict[str, str | None] | None = None
    # Per stream; 1 MiB by default.
    output_bytes_cap: UInt64 | None = None
    permission_profile: str | None = None
    # Chosen by the client; required for streaming, a terminal and later writes.
    process_id: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    size: CommandExecTerminalSize | None = None
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    # 10 seconds by default.
    timeout_ms: Int64 | None = None
    # Implies both kinds of streaming; all output is then sent as stdout.
    tty: bool = False


class CommandExecResizeParams(Params, frozen=True):
    """Report the new window size to a command with a terminal."""

    process_id: str
    size: CommandExecTerminalSize


class CommandExecResizeResponse(Value, frozen=True):
    """The terminal has its new size."""


class CommandExecResponse(Value, frozen=True):
    """The exit of a command, with the output that was not streamed."""

    exit_code: Int32
    stderr: str
    stdout: str


class CommandExecTerminateParams(Params, frozen=True):
    """Kill a running command; its own response follows."""

    process_id: str


class CommandExecTerminateResponse(Value, frozen=True):
    """The command was terminated."""


class CommandExecWriteParams(Params, frozen=True):
    """Write input to a running command, close its input, or both in that order."""

    process_id: str
    close_stdin: bool = False
    delta_base64: str | None = None


class CommandExecWriteResponse(Value, frozen=True):
    """The bytes were accepted, and stdin is closed if requested."""


class ThreadBackgroundTerminal(Value, frozen=True):
    """A process that a turn left running, with its load where the platform reports it."""

    command: str
    cwd: LegacyAppPathString
    item_id: str
    process_id: str
    cpu_percent: float | None = None
    os_pid: UInt32 | None = None
    rss_kb: UInt64 | None = None


class ThreadBackgroundTerminalsCleanParams(Params, frozen=True):
    """Stop every process that the turns of a thread left running."""

    thread_id: str


class ThreadBackgroundTerminalsCleanResponse(Value, frozen=True):
    """The processes were stopped."""


class ThreadBackgroundTerminalsListParams(Params, frozen=True):
    """Page through the processes that the turns of a thread left running."""

    thread_id: str
    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadBackgroundTerminalsListResponse(Value, frozen=True):
    """One page of running processes."""

    data: list[ThreadBackgroundTerminal]
    next_cursor: str | None = None


class ThreadBackgroundTerminalsTerminateParams(Params, frozen=True):
    """Stop one of the processes that the turns of a thread left running."""

    process_id: str
    thread_id: str


class ThreadBackgroundTerminalsTerminateResponse(Value, frozen=True):
    """Whether a process with that id was running."""

    terminated: bool


class ThreadShellCommandParams(Params, frozen=True):
    """Run the user's own shell command in a thread, unsandboxed; the model sees its output."""

    command: str
    thread_id: str
    # One hour by default; 0 expires at once.
    timeout_ms: Int64 | None = None


class ThreadShellCommandResponse(Value, frozen=True):
    """The command was accepted; item notifications report its progress."""
