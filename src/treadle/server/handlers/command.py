"""Commands that a client runs outside any thread; they end with its connection at the latest."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.terminals.output_deltas import omission
from treadle.engine.terminals.shell import allowed
from treadle.engine.tools.output import decode
from treadle.jsonrpc.errors import InternalError, InvalidOptions, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    COMMAND_EXEC,
    COMMAND_EXEC_RESIZE,
    COMMAND_EXEC_TERMINATE,
    COMMAND_EXEC_WRITE,
)
from treadle.protocol.command import (
    CommandExecOutputDeltaNotification,
    CommandExecOutputStream,
    CommandExecParams,
    CommandExecResizeParams,
    CommandExecResizeResponse,
    CommandExecResponse,
    CommandExecTerminalSize,
    CommandExecTerminateParams,
    CommandExecTerminateResponse,
    CommandExecWriteParams,
    CommandExecWriteResponse,
)
from treadle.protocol.notifications import COMMAND_EXEC_OUTPUT_DELTA
from treadle.protocol.policy import SandboxMode, SandboxPolicy
from treadle.protocol.settings import ThreadSettingsUpdateParams
from treadle.sandbox.backends.selection import SandboxUnavailable
from treadle.sandbox.policy import Confinement
from treadle.server.query_limits import MAX_WORDS, check_count
from treadle.server.session import ClientSession
from treadle.server.thread_settings import check_turn, working_folder

if TYPE_CHECKING:
    from treadle.config.effective import EffectiveConfig
    from treadle.sandbox.network.policy import NetworkPolicy
    from treadle.sandbox.network.proxy import EgressProxy
    from treadle.sandbox.process import Process

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

DEFAULT_TIMEOUT_MS: Final = 10_000
DEFAULT_OUTPUT_CAP: Final = 1024 * 1024
TIMED_OUT: Final = 124
# Bounds the memory for output that a slow client has not read.
MAX_UNSENT: Final = 1024 * 1024
MAX_ANSWER: Final = 10 * 1024 * 1024
"""Output in an answer without a cap: a byte takes up to six bytes of the message."""
_DEFAULT_SIZE: Final = CommandExecTerminalSize(cols=80, rows=24)
_PROFILES: Final[dict[str, SandboxMode]] = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}


class ClientCommand:
    """A command of a client, from its request to its answer."""

    def __init__(self, session: ClientSession, params: CommandExecParams) -> None:
        self._session = session
        self._id = params.process_id or ""
        self.has_terminal = params.tty
        self.takes_input = params.stream_stdin or params.tty
        self._is_streaming = params.stream_stdout_stderr or params.tty
        cap = params.output_bytes_cap
        limit = None if params.disable_output_cap else DEFAULT_OUTPUT_CAP if cap is None else cap
        self._room: dict[CommandExecOutputStream, int | None] = {"stdout": limit, "stderr": limit}
        self._output: dict[CommandExecOutputStream, bytearray] = {
            "stdout": bytearray(),
            "stderr": bytearray(),
        }
        self._omitted: dict[CommandExecOutputStream, int] = {"stdout": 0, "stderr": 0}
        self._fits = MAX_ANSWER
        self._unsent: deque[CommandExecOutputDeltaNotification] = deque()
        self._unsent_size = 0
        self._has_output = asyncio.Event()
        self._is_over = False
        self.is_input_closed = False
        self.process: Process | None = None

    def on_output(self, stream: CommandExecOutputStream, data: bytes) -> None:
        """Accept output of the command, up to the cap."""
        room = self._room[stream]
        if room is not None:
            data = data[:room]
            self._room[stream] = room - len(data)
        if not data:
            return
        if not self._is_streaming:
            self._keep(stream, data)
            return
        text = base64.b64encode(data).decode("ascii")
        is_full = self._room[stream] == 0
        self._unsent.append(CommandExecOutputDeltaNotification(is_full, text, self._id, stream))
        self._unsent_size += len(text)
        self._has_output.set()
        if self._unsent_size > MAX_UNSENT and self.process is not None:
            self.process.pause()

    def _keep(self, stream: CommandExecOutputStream, data: bytes) -> None:
        """Keep output for the answer while it fits into a message."""
        room = max(0, self._fits - sum(map(len, self._output.values())))
        self._output[stream] += data[:room]
        self._omitted[stream] += len(data[room:])

    def add_note(self, text: str) -> None:
        """State on stderr why the command was killed, regardless of the output cap."""
        self._room["stderr"] = None
        self._fits += len(text) + 1
        self.on_output("stderr", f"{text}\n".encode())

    def output(self, stream: CommandExecOutputStream) -> str:
        """Return the output for the answer, with a note if some was omitted."""
        text, omitted = decode(bytes(self._output[stream])), self._omitted[stream]
        return f"{text}\n[... {omission(omitted, None)}]\n" if omitted else text

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send the output as it arrives; all of it has been sent when the block ends."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            try:
                yield
            finally:
                self._is_over = True
                self._has_output.set()

    async def _send(self) -> None:
        while self._unsent or not self._is_over:
            await self._has_output.wait()
            self._has_output.clear()
            while self._unsent:
                delta = self._unsent.popleft()
                await self._session.notify(COMMAND_EXEC_OUTPUT_DELTA, delta)
                self._unsent_size -= len(delta.delta_base64)
            if self.process is not None:
                self.process.resume()


@router.request(COMMAND_EXEC)
async def command_exec(
    ctx: Context[ClientSession], params: CommandExecParams
) -> CommandExecResponse:
    """Run a command, and answer when it has ended."""
    _check(params)
    session, id_ = ctx.session, params.process_id
    if id_ is not None and id_ in session.commands:
        raise InvalidRequest(f"duplicate active command/exec process id: {_quoted(id_)}")
    command = ClientCommand(session, params)
    if id_ is not None:
        session.commands[id_] = command
    try:
        process = await _start(session, command, params)
        # Requests that write to it or terminate it must not wait for its end.
        ctx.release_scope()
        try:
            async with command.sending():
                code = await _wait(process, params)
                if process.limit_hit is not None:
                    command.add_note(process.limit_hit)
        finally:
            process.kill()
    finally:
        if id_ is not None:
            del session.commands[id_]
    return CommandExecResponse(code, command.output("stderr"), command.output("stdout"))


@router.request(COMMAND_EXEC_WRITE)
async def command_exec_write(
    ctx: Context[ClientSession], params: CommandExecWriteParams
) -> CommandExecWriteResponse:
    """Write to a command's input, or close it."""
    command, process = _find(ctx, params.process_id)
    if params.delta_base64 is None and not params.close_stdin:
        raise InvalidOptions("command/exec/write requires deltaBase64 or closeStdin")
    if not command.takes_input:
        raise InvalidRequest("stdin streaming is not enabled for this command/exec")
    data = _decoded(params.delta_base64 or "")
    if command.is_input_closed:
        raise InvalidRequest("stdin is already closed")
    if data:
        with suppress(OSError):  # a command that closed its input misses it, as in a shell
            await process.write(data)
    if params.close_stdin:
        command.is_input_closed = True
        process.close_stdin()
    return CommandExecWriteResponse()


@router.request(COMMAND_EXEC_RESIZE)
def command_exec_resize(
    ctx: Context[ClientSession], params: CommandExecResizeParams
) -> CommandExecResizeResponse:
    """Resize a command's terminal."""
    _check_size(params.size)
    command, process = _find(ctx, params.process_id)
    if not command.has_terminal:
        raise InvalidRequest("failed to resize PTY: process is not attached to a PTY")
    with suppress(OSError):  # it has just ended
        process.resize(params.size.rows, params.size.cols)
    return CommandExecResizeResponse()


@router.request(COMMAND_EXEC_TERMINATE)
def command_exec_terminate(
    ctx: Context[ClientSession], params: CommandExecTerminateParams
) -> CommandExecTerminateResponse:
    """Kill a command; its own answer follows."""
    _find(ctx, params.process_id)[1].kill()
    return CommandExecTerminateResponse()


def _check(params: CommandExecParams) -> None:
    check_count(params.command, "command", MAX_WORDS)
    check_count([*(params.env or ())], "env", MAX_WORDS)
    if not params.command:
        raise InvalidRequest("command must not be empty", kind="invalidParams", path="command")
    if params.size is not None and not params.tty:
        raise InvalidOptions("command/exec size requires tty: true")
    if params.size is not None:
        _check_size(params.size)
    is_open = params.tty or params.stream_stdin or params.stream_stdout_stderr
    if is_open and params.process_id is None:
        message = "command/exec tty or streaming requires a client-supplied processId"
        raise InvalidRequest(message, kind="invalidParams", path="processId")
    if params.timeout_ms is not None and params.disable_timeout:
        raise InvalidOptions("command/exec cannot set both timeoutMs and disableTimeout")
    if params.timeout_ms is not None and params.timeout_ms < 0:
        timeout = params.timeout_ms
        raise InvalidOptions(f"command/exec timeoutMs must be non-negative, got {timeout}")
    if params.output_bytes_cap is not None and params.disable_output_cap:
        raise InvalidOptions("command/exec cannot set both outputBytesCap and disableOutputCap")
    if params.permission_profile is not None and params.sandbox_policy is not None:
        raise InvalidRequest("`permissionProfile` cannot be combined with `sandboxPolicy`")


def _check_size(size: CommandExecTerminalSize) -> None:
    if not size.rows or not size.cols:
        raise InvalidOptions("command/exec size rows and cols must be greater than 0")


async def _start(
    session: ClientSession, command: ClientCommand, params: CommandExecParams
) -> Process:
    from treadle.sandbox.limits import default_limits
    from treadle.sandbox.process import Process

    cwd = working_folder(params.cwd)
    size = params.size or _DEFAULT_SIZE
    session.server.threads.services.prepare_sandbox()
    try:
        read = session.server.configuration.effective
        effective = await session.file_workers.run(read, cwd)
        confinement, environ, proxy = _execution_context(session, params, cwd, effective)
        command.process = await Process.start(
            session.server.sandbox,
            params.command,
            cwd=cwd,
            env=environ,
            confinement=confinement,
            on_output=command.on_output,
            size=(size.rows, size.cols) if params.tty else None,
            has_stdin=params.stream_stdin,
            proxy=proxy,
            limits=effective.command_limits() or default_limits(),
        )
    except SandboxUnavailable as error:
        message = f"failed to spawn command: {error}"
        raise InternalError(message, kind="sandboxUnavailable", fix=error.fix) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        message = f"failed to spawn command: {reason} (os error {error.errno})"
        raise InternalError(message, kind="io") from error
    except ValueError as error:  # a null byte in an argument
        raise InternalError(f"failed to spawn command: {error}", kind="invalidParams") from error
    return command.process


def _execution_context(
    session: ClientSession, params: CommandExecParams, cwd: str, effective: EffectiveConfig
) -> tuple[Confinement, dict[str, str], EgressProxy | None]:
    """Return the command's confinement, its environment and its egress proxy, if any."""
    environ = allowed(effective.shell_environment_policy, os.environ)
    for name, value in (params.env or {}).items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    policy: SandboxPolicy
    if params.sandbox_policy is not None:
        policy = params.sandbox_policy
    elif params.permission_profile is None:
        policy = effective.sandbox_policy()
    elif params.permission_profile in _PROFILES:
        policy = effective.sandbox_policy(_PROFILES[params.permission_profile])
    else:
        name = params.permission_profile
        message = f"invalid permission profile: no built-in profile is named {name!r}"
        raise InvalidRequest(message, kind="invalidParams", path="permissionProfile")
    overrides = ThreadSettingsUpdateParams(thread_id="", sandbox_policy=policy)
    check_turn(session.server.configuration, overrides)
    boundary = session.server.threads.services.boundary
    confinement, proxy = boundary.confine(policy, cwd, environ=environ), None
    if network := effective.network():
        confinement = network.narrow(confinement)
    if network and confinement.has_proxy:
        proxy, variables = _open_proxy(session, network, cwd)
        environ |= variables
    elif not confinement.network:
        environ["CODEX_SANDBOX_NETWORK_DISABLED"] = "1"
    return confinement, environ, proxy


def _open_proxy(
    session: ClientSession, network: NetworkPolicy, cwd: str
) -> tuple[EgressProxy, dict[str, str]]:
    from treadle.engine.approvals.network import create_fixed_egress_proxy
    from treadle.sandbox.network.environment import environment

    services = session.server.threads.services
    proxy = create_fixed_egress_proxy(network, services.rules(cwd), services.tasks)
    return proxy, environment(network)


async def _wait(process: Process, params: CommandExecParams) -> int:
    """Wait for the end, or kill the command when its time is up."""
    timeout = params.timeout_ms
    limit = None if params.disable_timeout else DEFAULT_TIMEOUT_MS if timeout is None else timeout
    try:
        async with asyncio.timeout(None if limit is None else limit / 1000):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return TIMED_OUT


def _find(ctx: Context[ClientSession], id_: str) -> tuple[ClientCommand, Process]:
    command = ctx.session.commands.get(id_)
    if command is None or command.process is None:
        raise InvalidRequest(f"no active command/exec for process id {_quoted(id_)}")
    return command, command.process


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidOptions(f"invalid deltaBase64: {error}") from error


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
