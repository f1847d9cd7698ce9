"""Commands that a client runs outside any thread; they end with its connection at the latest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.terminals.shell import allowed
from treadle.jsonrpc.errors import InvalidOptions, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    COMMAND_EXEC,
    COMMAND_EXEC_RESIZE,
    COMMAND_EXEC_TERMINATE,
    COMMAND_EXEC_WRITE,
)
from treadle.protocol.command import (
    CommandExecOutputDeltaNotification,
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
from treadle.sandbox.policy import Confinement
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
from treadle.server.query_limits import MAX_WORDS, check_count
from treadle.server.session import ClientSession
from treadle.server.thread_settings import check_turn, working_folder

if TYPE_CHECKING:
    from treadle.config.effective import EffectiveConfig
    from treadle.sandbox.network.policy import NetworkPolicy
    from treadle.sandbox.network.proxy import EgressProxy
    from treadle.sandbox.process import Process

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

_DEFAULT_SIZE: Final = CommandExecTerminalSize(cols=80, rows=24)
_PROFILES: Final[dict[str, SandboxMode]] = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}


@router.request(COMMAND_EXEC)
async def command_exec(
    ctx: Context[ClientSession], params: CommandExecParams
) -> CommandExecResponse:
    """Run a command, and answer when it has ended."""
    _check(params)
    session, id_ = ctx.session, params.process_id
    if id_ is not None and id_ in session.commands:
        raise InvalidRequest(f"duplicate active command/exec process id: {quote(id_)}")

    async def send(delta: OutputChunk) -> None:
        await session.notify(
            COMMAND_EXEC_OUTPUT_DELTA,
            CommandExecOutputDeltaNotification(
                delta.is_capped, delta.base64, id_ or "", delta.stream
            ),
        )

    command = ClientCommand(_streams(params), send)
    if id_ is not None:
        session.commands[id_] = command
    try:
        process = await _start(session, command, params)
        # Requests that write to it or terminate it must not wait for its end.
        ctx.release_scope()
        try:
            async with command.sending():
                code = await wait(process, _time_limit(params))
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
    await command.write(process, params.delta_base64, closes=params.close_stdin)
    return CommandExecWriteResponse()


@router.request(COMMAND_EXEC_RESIZE)
def command_exec_resize(
    ctx: Context[ClientSession], params: CommandExecResizeParams
) -> CommandExecResizeResponse:
    """Resize a command's terminal."""
    _check_size(params.size)
    command, process = _find(ctx, params.process_id)
    command.resize(process, params.size.rows, params.size.cols)
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


def _streams(params: CommandExecParams) -> Streams:
    cap = params.output_bytes_cap
    limit = None if params.disable_output_cap else DEFAULT_OUTPUT_CAP if cap is None else cap
    return Streams(
        has_terminal=params.tty,
        takes_input=params.stream_stdin or params.tty,
        is_streaming=params.stream_stdout_stderr or params.tty,
        cap=limit,
    )


def _time_limit(params: CommandExecParams) -> int | None:
    if params.disable_timeout:
        return None
    return DEFAULT_TIMEOUT_MS if params.timeout_ms is None else params.timeout_ms


async def _start(
    session: ClientSession, command: ClientCommand, params: CommandExecParams
) -> Process:
    from treadle.sandbox.limits import default_limits
    from treadle.sandbox.process import Process

    cwd = working_folder(params.cwd)
    size = params.size or _DEFAULT_SIZE
    session.server.threads.services.prepare_sandbox()
    with starting("command"):
        check_size(params.command, params.env)
        read = session.server.configuration.effective
        effective = await session.file_workers.run(read, cwd)
        confinement, environ, proxy = _execution_context(session, params, cwd, effective)
        process = await Process.start(
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
    command.begin(process)
    return process


def _execution_context(
    session: ClientSession, params: CommandExecParams, cwd: str, effective: EffectiveConfig
) -> tuple[Confinement, dict[str, str], EgressProxy | None]:
    """Return the command's confinement, its environment and its egress proxy, if any."""
    environ = changed_environment(
        allowed(effective.shell_environment_policy, os.environ), params.env
    )
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


def _find(ctx: Context[ClientSession], id_: str) -> tuple[ClientCommand, Process]:
    command = ctx.session.commands.get(id_)
    if command is None or command.process is None:
        raise InvalidRequest(f"no active command/exec for process id {quote(id_)}")
    return command, command.process
