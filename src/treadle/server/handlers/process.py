"""A client's own processes, outside the sandbox; the end of its connection kills them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InvalidOptions, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    PROCESS_KILL,
    PROCESS_RESIZE_PTY,
    PROCESS_SPAWN,
    PROCESS_WRITE_STDIN,
)
from treadle.protocol.notifications import PROCESS_EXITED, PROCESS_OUTPUT_DELTA
from treadle.protocol.policy import DangerFullAccessSandboxPolicy
from treadle.protocol.process import (
    ProcessExitedNotification,
    ProcessKillParams,
    ProcessKillResponse,
    ProcessOutputDeltaNotification,
    ProcessResizePtyParams,
    ProcessResizePtyResponse,
    ProcessSpawnParams,
    ProcessSpawnResponse,
    ProcessTerminalSize,
    ProcessWriteStdinParams,
    ProcessWriteStdinResponse,
)
from treadle.protocol.settings import ThreadSettingsUpdateParams
from treadle.server.client_commands.running import (
    DEFAULT_OUTPUT_CAP,
    DEFAULT_TIMEOUT_MS,
    ClientCommand,
    OutputChunk,
    Streams,
    wait,
)
from treadle.server.client_commands.starting import (
    changed_environment,
    check_size,
    quote,
    starting,
)
from treadle.server.query_limits import MAX_WORDS, check_count, check_term
from treadle.server.session import ClientSession
from treadle.server.thread_settings import check_turn

if TYPE_CHECKING:
    from treadle.sandbox.process import Process

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_PROCESSES: Final = 256
"""The maximum number of processes of one client that run at the same time."""

_DEFAULT_SIZE: Final = ProcessTerminalSize(cols=80, rows=24)


@router.request(PROCESS_SPAWN)
async def process_spawn(
    ctx: Context[ClientSession], params: ProcessSpawnParams
) -> ProcessSpawnResponse:
    """Start a process, and notify the client of its output and its exit."""
    session, handle = ctx.session, params.process_handle
    _check(params)
    if handle in session.processes:
        raise InvalidRequest(f"duplicate active process handle: {quote(handle)}")
    if len(session.processes) >= MAX_PROCESSES:
        raise InvalidRequest(f"a client may have {MAX_PROCESSES} processes", kind="unsupported")

    async def send(delta: OutputChunk) -> None:
        await session.notify(
            PROCESS_OUTPUT_DELTA,
            ProcessOutputDeltaNotification(delta.is_capped, delta.base64, handle, delta.stream),
        )

    command = ClientCommand(_streams(params), send)
    answered = asyncio.Event()
    session.processes[handle] = command
    try:
        process = await _start(session, command, params)
    except BaseException:
        del session.processes[handle]
        raise
    timeout = params.timeout_ms
    limit = DEFAULT_TIMEOUT_MS if timeout is UNSET else timeout
    # Two values instead of the request: its environment may be large.
    work = _follow(session, handle, limit, command=command, process=process, answered=answered)
    if ctx.connection.spawn(work, f"process {handle}") is None:
        del session.processes[handle]
        process.kill()
    # The answer precedes the output.
    ctx.after_reply(answered.set)
    return ProcessSpawnResponse()


@router.request(PROCESS_WRITE_STDIN)
async def process_write_stdin(
    ctx: Context[ClientSession], params: ProcessWriteStdinParams
) -> ProcessWriteStdinResponse:
    """Write to a process's input, or close it."""
    command, process = _find(ctx, params.process_handle)
    if params.delta_base64 is None and not params.close_stdin:
        raise InvalidOptions("process/writeStdin requires deltaBase64 or closeStdin")
    if not command.takes_input:
        raise InvalidRequest("stdin streaming is not enabled for this process")
    await command.write(process, params.delta_base64, closes=params.close_stdin)
    return ProcessWriteStdinResponse()


@router.request(PROCESS_RESIZE_PTY)
def process_resize_pty(
    ctx: Context[ClientSession], params: ProcessResizePtyParams
) -> ProcessResizePtyResponse:
    """Resize a process's terminal."""
    _check_size(params.size)
    command, process = _find(ctx, params.process_handle)
    command.resize(process, params.size.rows, params.size.cols)
    return ProcessResizePtyResponse()


@router.request(PROCESS_KILL)
def process_kill(ctx: Context[ClientSession], params: ProcessKillParams) -> ProcessKillResponse:
    """Kill a process and everything that it started; `process/exited` follows."""
    _find(ctx, params.process_handle)[1].kill()
    return ProcessKillResponse()


def _check(params: ProcessSpawnParams) -> None:
    check_count(params.command, "command", MAX_WORDS)
    check_count([*(params.env or ())], "env", MAX_WORDS)
    if not params.command:
        raise InvalidRequest("command must not be empty", kind="invalidParams", path="command")
    if not params.process_handle:
        message = "processHandle must not be empty"
        raise InvalidRequest(message, kind="invalidParams", path="processHandle")
    check_term(params.process_handle, "processHandle")
    if not Path(params.cwd).is_absolute():
        raise InvalidInput("cwd", f"path must be absolute: {params.cwd!r}")
    if params.size is not None and not params.tty:
        raise InvalidOptions("process/spawn size requires tty: true")
    if params.size is not None:
        _check_size(params.size)
    if isinstance(params.timeout_ms, int) and params.timeout_ms < 0:
        timeout = params.timeout_ms
        raise InvalidOptions(f"process/spawn timeoutMs must be non-negative, got {timeout}")


def _check_size(size: ProcessTerminalSize) -> None:
    if not size.rows or not size.cols:
        raise InvalidOptions("process size rows and cols must be greater than 0")


def _streams(params: ProcessSpawnParams) -> Streams:
    cap = params.output_bytes_cap
    return Streams(
        has_terminal=params.tty,
        takes_input=params.stream_stdin or params.tty,
        is_streaming=params.stream_stdout_stderr or params.tty,
        cap=DEFAULT_OUTPUT_CAP if cap is UNSET else cap,
    )


async def _start(
    session: ClientSession, command: ClientCommand, params: ProcessSpawnParams
) -> Process:
    from treadle.sandbox.limits import default_limits
    from treadle.sandbox.process import Process

    configuration = session.server.configuration
    policy = DangerFullAccessSandboxPolicy()
    overrides = ThreadSettingsUpdateParams(thread_id="", cwd=params.cwd, sandbox_policy=policy)
    check_turn(configuration, overrides)
    size = params.size or _DEFAULT_SIZE
    with starting("process"):
        check_size(params.command, params.env)
        environ = changed_environment(os.environ, params.env)
        effective = await session.file_workers.run(configuration.effective, params.cwd)
        boundary = session.server.threads.services.boundary
        process = await Process.start(
            session.server.sandbox,
            params.command,
            cwd=params.cwd,
            env=environ,
            confinement=boundary.confine(policy, params.cwd, environ=environ),
            on_output=command.on_output,
            size=(size.rows, size.cols) if params.tty else None,
            has_stdin=params.stream_stdin,
            limits=effective.command_limits() or default_limits(),
        )
    command.begin(process)
    return process


async def _follow(
    session: ClientSession,
    handle: str,
    limit_ms: int | None,
    *,
    command: ClientCommand,
    process: Process,
    answered: asyncio.Event,
) -> None:
    """Send the output of a process and its exit; end it with the connection."""
    try:
        await answered.wait()
        async with command.sending():
            code = await wait(process, limit_ms)
            if process.limit_hit is not None:
                command.add_note(process.limit_hit)
    finally:
        process.kill()
        del session.processes[handle]
    await session.notify(
        PROCESS_EXITED,
        ProcessExitedNotification(
            exit_code=code,
            process_handle=handle,
            stderr=command.output("stderr"),
            stderr_cap_reached=command.has_reached_cap("stderr"),
            stdout=command.output("stdout"),
            stdout_cap_reached=command.has_reached_cap("stdout"),
        ),
    )


def _find(ctx: Context[ClientSession], handle: str) -> tuple[ClientCommand, Process]:
    command = ctx.session.processes.get(handle)
    if command is None or command.process is None:
        raise InvalidRequest(f"no active process for process handle {quote(handle)}")
    return command, command.process
