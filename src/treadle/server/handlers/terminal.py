"""Commands in a thread beside the conversation: the user's own, and background terminals."""

from __future__ import annotations

from functools import partial
from typing import Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InvalidOptions, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_BACKGROUND_TERMINALS_CLEAN,
    THREAD_BACKGROUND_TERMINALS_LIST,
    THREAD_BACKGROUND_TERMINALS_TERMINATE,
    THREAD_SHELL_COMMAND,
)
from treadle.protocol.command import (
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsCleanResponse,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
    ThreadShellCommandParams,
    ThreadShellCommandResponse,
)
from treadle.server.paging.offset import page
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_USER_COMMANDS: Final = 256
"""The maximum number of commands of one client that run in threads at the same time."""

MAX_SCRIPT_CHARACTERS: Final = 1024 * 1024
"""The length of a user's command; Linux cannot run one of 128 Ki."""


@router.request(THREAD_SHELL_COMMAND)
def thread_shell_command(
    ctx: Context[ClientSession], params: ThreadShellCommandParams
) -> ThreadShellCommandResponse:
    """Run a command of the user."""
    from treadle.engine.terminals.user_command import UserCommand

    session = ctx.session
    thread = session.server.threads.get(params.thread_id)
    if params.timeout_ms is not None and params.timeout_ms < 0:
        timeout = params.timeout_ms
        raise InvalidOptions(f"thread/shellCommand timeoutMs must be non-negative, got {timeout}")
    if (length := len(params.command)) > MAX_SCRIPT_CHARACTERS:
        limit = f"at most {MAX_SCRIPT_CHARACTERS} characters, not {length}"
        raise InvalidInput("command", f"command must have {limit}")
    if session.user_commands >= MAX_USER_COMMANDS:
        message = f"a client may run {MAX_USER_COMMANDS} commands in threads"
        raise InvalidRequest(message, kind="unsupported")
    command = UserCommand(thread, params.command, params.timeout_ms)
    session.user_commands += 1

    def on_end() -> None:
        session.user_commands -= 1

    ctx.after_reply(partial(command.start, on_end))
    return ThreadShellCommandResponse()


@router.request(THREAD_BACKGROUND_TERMINALS_LIST)
def thread_background_terminals_list(
    ctx: Context[ClientSession], params: ThreadBackgroundTerminalsListParams
) -> ThreadBackgroundTerminalsListResponse:
    """List the background terminals of a thread."""
    terminals = ctx.session.server.threads.get(params.thread_id).terminals
    data, next_cursor = page(
        terminals.background(), params.cursor, params.limit, of="background terminals"
    )
    return ThreadBackgroundTerminalsListResponse(data, next_cursor)


@router.request(THREAD_BACKGROUND_TERMINALS_TERMINATE)
def thread_background_terminals_terminate(
    ctx: Context[ClientSession], params: ThreadBackgroundTerminalsTerminateParams
) -> ThreadBackgroundTerminalsTerminateResponse:
    """Kill a background terminal; its item completes when the command has ended."""
    terminals = ctx.session.server.threads.get(params.thread_id).terminals
    return ThreadBackgroundTerminalsTerminateResponse(terminals.terminate(params.process_id))


@router.request(THREAD_BACKGROUND_TERMINALS_CLEAN)
def thread_background_terminals_clean(
    ctx: Context[ClientSession], params: ThreadBackgroundTerminalsCleanParams
) -> ThreadBackgroundTerminalsCleanResponse:
    """Kill all background terminals."""
    ctx.session.server.threads.get(params.thread_id).terminals.clean()
    return ThreadBackgroundTerminalsCleanResponse()
