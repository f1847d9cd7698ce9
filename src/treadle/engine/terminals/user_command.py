"""Runs commands of the user in a thread, outside the sandbox; the model sees the output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from treadle.engine.commands.actions import actions_of
from treadle.engine.conversation.input import message
from treadle.engine.errors import InvalidInput
from treadle.engine.terminals.output_file import folder_of
from treadle.engine.terminals.run import CommandRun
from treadle.engine.terminals.shell import environment, shell_argv
from treadle.engine.terminals.terminals import wait
from treadle.engine.turn import ActiveTurn, PendingInput
from treadle.protocol.item import CommandExecutionThreadItem
from treadle.sandbox.policy import UNRESTRICTED
from treadle.shell.scripts import display
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

DEFAULT_TIMEOUT_MS: Final = 60 * 60 * 1000
TIMED_OUT: Final = 124


class UserCommand:
    """A command for the active turn of a thread, or for a new one.

    Raises:
        InvalidInput: the command is empty.
    """

    def __init__(self, thread: LoadedThread, script: str, timeout_ms: int | None) -> None:
        self._script = script.strip()
        if not self._script:
            raise InvalidInput("command", "command must not be empty")
        self._thread = thread
        self._seconds = (DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
        self._is_new = thread.turn is None
        self._turn = thread.turn or thread.begin_other("shell")

    def start(self, on_end: Callable[[], None]) -> None:
        """Start the command, and its turn if that is new; `on_end` is called at its end."""
        try:
            task = self._start()
        except BaseException:
            on_end()
            raise
        if task is None:
            on_end()
        else:
            task.add_done_callback(lambda _task: on_end())

    def _start(self) -> asyncio.Task[None] | None:
        if self._is_new:
            self._thread.start_turn(self._turn)
        if self._turn.is_over:
            return None  # the turn failed to start, and clients know
        work = _run(self._thread, self._turn, self._script, self._seconds)
        return self._thread.terminals.spawn(work, self._turn)


async def _run(thread: LoadedThread, turn: ActiveTurn, script: str, seconds: float) -> None:
    argv = shell_argv(script, is_login=thread.settings.shell.allows_login)
    cwd = thread.settings_of(turn).cwd
    item = CommandExecutionThreadItem(
        command=display(argv),
        command_actions=actions_of(argv, cwd),
        cwd=cwd,
        id=uuid7(),
        status="inProgress",
        source="userShell",
    )
    run = CommandRun(turn, item, script, folder_of(thread.services.home, thread.id))
    run.on_end = lambda: _add_to_context(thread, run)
    run.publish_started()
    env = environment(thread.settings.shell.environment, thread.id)
    try:
        await thread.terminals.launch(
            run,
            argv,
            cwd=cwd,
            env=env,
            confinement=UNRESTRICTED,
            limits=thread.settings.shell.command_limits(),
        )
        if not await wait(run, seconds):
            run.stop(TIMED_OUT)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        run.fail(f"execution error: {reason} (os error {error.errno})")
    except ValueError as error:  # a null byte, which no argument can contain
        run.fail(f"execution error: {error}")
    except asyncio.CancelledError:
        run.abort()
        raise


def _add_to_context(thread: LoadedThread, run: CommandRun) -> None:
    """Add the command to the model context: at once, or after the model's current answer."""
    item = message("user", _message_text(run, thread.settings.shell.budget()))
    turn = thread.turn
    if turn is not None and turn.kind == "regular":
        # The model gets another request, so that it can react to the command.
        thread.context.queue_input(turn, PendingInput([], [item]))
    elif turn is not None and turn.kind != "shell":
        thread.context.add_note(item)
    else:
        thread.context.remember(run.turn, item)


def _message_text(run: CommandRun, max_tokens: int) -> str:
    output = run.output.for_model(max_tokens) if run.process is not None else ""
    seconds = (run.item.duration_ms or 0) / 1000
    return (
        f"<user_shell_command>\n<command>\n{run.script}\n</command>\n<result>\n"
        f"Exit code: {run.item.exit_code}\nDuration: {seconds:.4f} seconds\n"
        f"Output:\n{output or run.item.aggregated_output or ''}\n"
        "</result>\n</user_shell_command>"
    )
