"""Commands run for a client outside any turn, and the terminals a thread leaves running."""

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
    """Bytes that a streaming command wrote; only the connection that began it gets them."""

    # True on the last chunk before the cap; what follows on this stream is dropped.
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
    """Run a program in the sandbox, outside any thread; the reply waits for its exit."""

    command: list[str]
    cwd: str | None = None
    # Excludes output_bytes_cap.
    disable_output_cap: bool = False
    # Excludes timeout_ms.
    disable_timeout: bool = False
    # Laid over the server's environment; null unsets a variable.
    env: dict[str, str | None] | None = None
    # For each stream by itself; 1 MiB by default.
    output_bytes_cap: UInt64 | None = None
    permission_profile: str | None = None
    # Chosen by the client; streaming, a terminal and later writes need it.
    process_id: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    size: CommandExecTerminalSize | None = None
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    # 10 seconds by default.
    timeout_ms: Int64 | None = None
    # Implies both kinds of streaming; all output then comes as stdout.
    tty: bool = False


class CommandExecResizeParams(Params, frozen=True):
    """Tell a command with a terminal that its window changed."""

    process_id: str
    size: CommandExecTerminalSize


class CommandExecResizeResponse(Value, frozen=True):
    """The terminal has its new size."""


class CommandExecResponse(Value, frozen=True):
    """How a command ended, with whatever output was not streamed already."""

    exit_code: Int32
    stderr: str
    stdout: str


class CommandExecTerminateParams(Params, frozen=True):
    """Kill a running command; its own reply follows."""

    process_id: str


class CommandExecTerminateResponse(Value, frozen=True):
    """The command was told to end."""


class CommandExecWriteParams(Params, frozen=True):
    """Give a running command more input, end its input, or the one and then the other."""

    process_id: str
    close_stdin: bool = False
    delta_base64: str | None = None


class CommandExecWriteResponse(Value, frozen=True):
    """The bytes are on their way and stdin is closed if that was asked."""


class ThreadBackgroundTerminal(Value, frozen=True):
    """A process that a turn left running, with its load where the platform tells."""

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
    """The processes were told to stop."""


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
    """Whether there was such a process to stop."""

    terminated: bool


class ThreadShellCommandParams(Params, frozen=True):
    """Run the user's own shell line in a thread: no sandbox, and the model sees its output."""

    command: str
    thread_id: str
    # One hour by default; 0 gives no time at all.
    timeout_ms: Int64 | None = None


class ThreadShellCommandResponse(Value, frozen=True):
    """The line was taken on; item notifications show how it goes."""
