"""Processes that a client owns."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import AbsolutePathBuf, Int32, Int64, Params, UInt16, UInt64, Value


class ProcessExitedNotification(Value, frozen=True):
    """A process ended; contains the output only if it was not streamed."""

    exit_code: Int32
    process_handle: str
    stderr: str
    stderr_cap_reached: bool
    stdout: str
    stdout_cap_reached: bool
    # Whether a child of the process still held its output open when it was reported.
    output_drain_timed_out: bool | UnsetType | None = UNSET


class ProcessKillParams(Params, frozen=True):
    """Kill a process."""

    process_handle: str


class ProcessKillResponse(Value, frozen=True):
    """The kill was sent; `process/exited` reports the exit of the process."""


ProcessOutputStream = Literal["stdout", "stderr"]


class ProcessOutputDeltaNotification(Value, frozen=True):
    """Output of a process, in base64; with a terminal, all of it is `stdout`."""

    cap_reached: bool
    delta_base64: str
    process_handle: str
    stream: ProcessOutputStream


class ProcessTerminalSize(Value, frozen=True):
    """The size of a terminal, in character cells."""

    cols: UInt16
    rows: UInt16


class ProcessResizePtyParams(Params, frozen=True):
    """Report the new size of its terminal to a process."""

    process_handle: str
    size: ProcessTerminalSize


class ProcessResizePtyResponse(Value, frozen=True):
    """The terminal has its new size."""


class ProcessSpawnParams(Params, frozen=True):
    """Run a program outside the sandbox, under a handle unique per connection."""

    command: list[str]
    cwd: AbsolutePathBuf
    process_handle: str
    # Added to the server's own environment; null unsets a variable.
    env: dict[str, str | None] | None = None
    # Per stream.
    output_bytes_cap: UInt64 | UnsetType | None = UNSET
    # Only with `tty`.
    size: ProcessTerminalSize | None = None
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    timeout_ms: Int64 | UnsetType | None = UNSET
    # Implies both kinds of streaming.
    tty: bool = False


class ProcessSpawnResponse(Value, frozen=True):
    """The process is running; its output and exit are sent as notifications."""


class ProcessWriteStdinParams(Params, frozen=True):
    """Send bytes to a process, close its input, or both in that order."""

    process_handle: str
    close_stdin: bool = False
    delta_base64: str | None = None


class ProcessWriteStdinResponse(Value, frozen=True):
    """The input was delivered."""
