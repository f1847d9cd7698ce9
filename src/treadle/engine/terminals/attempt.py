"""Runs a command of the model: approval, confinement, start, and a retry without the sandbox."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.approvals.permission import (
    ApprovalUnavailable,
    CommandRequest,
    Denied,
    Permission,
)
from treadle.engine.commands.actions import actions_of
from treadle.engine.errors import TurnCancelled
from treadle.engine.terminals.output_file import folder_of
from treadle.engine.terminals.run import CommandRun
from treadle.engine.terminals.shell import environment, without_startup_files
from treadle.engine.terminals.terminals import wait
from treadle.protocol import notifications as n
from treadle.protocol.error import ErrorNotification, TurnError
from treadle.protocol.item import CommandExecutionThreadItem
from treadle.sandbox.backends.selection import SandboxUnavailable
from treadle.sandbox.policy import Confinement
from treadle.shell.scripts import display

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn
    from treadle.sandbox.network.proxy import EgressProxy

RAN_BEFORE: Final = (
    "the sandbox stopped the command before the server restarted, and its output is lost"
)
_ROWS_AND_COLUMNS: Final = (24, 80)
_BAD_SYSTEM_CALL: Final = 128 + 31
# Exit codes of success, wrong usage, and a program that cannot be run or found: not a denial.
_NOT_DENIED: Final = frozenset({0, 2, 126, 127})
_SIGNS: Final = (
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
)


class NotRun(Exception):
    """The command did not run, or not to its end; `reason` is for the model."""

    def __init__(self, reason: str, *, was_started: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.was_started = was_started


class CommandAttempt:
    """One command of the model, from its request to its result."""

    def __init__(
        self,
        thread: LoadedThread,
        turn: ActiveTurn,
        request: CommandRequest,
        *,
        is_terminal: bool = False,
    ) -> None:
        self._thread = thread
        self._request = request
        self._size = _ROWS_AND_COLUMNS if is_terminal else None
        # The id by which the model can refer to a running command, if it has one.
        self.session: int | None = None
        # Prefix of the error message if the command cannot be started.
        self.error_prefix = "execution error"
        actions = actions_of(request.argv, request.cwd)
        item = CommandExecutionThreadItem(
            command=display(request.argv),
            command_actions=actions,
            cwd=request.cwd,
            id=request.call_id,
            status="inProgress",
        )
        folder = folder_of(thread.services.home, thread.id)
        self.run = CommandRun(turn, item, request.argv[-1], folder)

    async def start(self) -> None:
        """Request approval if needed, and start the process.

        Raises:
            NotRun: it may not run, or cannot.
            TurnCancelled: the user cancelled the turn.
        """
        run = self.run
        try:
            permission = await self._permission()
        except Denied as refusal:
            run.decline()
            raise NotRun(refusal.reason) from refusal
        except ApprovalUnavailable as refusal:
            run.decline("failed")
            raise NotRun(refusal.reason) from refusal
        except TurnCancelled:
            run.decline()
            self._thread.terminals.abort(run.turn)
            raise
        except asyncio.CancelledError:
            run.abort()
            raise
        await self._launch(permission)

    async def _permission(self) -> Permission:
        approvals, run, request = self._thread.approvals, self.run, self._request
        if not approvals.has_pending_retry(run.turn, request):
            return await approvals.command(run.turn, request, before=run.publish_started)
        # It ran in the sandbox under an earlier server process, and may have done part of its work.
        try:
            return await approvals.retry(run.turn, request, before=run.publish_started)
        except (Denied, ApprovalUnavailable) as refusal:
            raise type(refusal)(f"{refusal.reason}; {RAN_BEFORE}") from refusal

    async def wait(self, seconds: float, *, exit_code: int | None = None) -> bool:
        """Wait up to `seconds` for the command to end; return whether it has ended.

        A command that the sandbox seems to have stopped runs again without it if the user approves.
        With `exit_code`, a command that has not ended in time is killed and gets that exit code.

        Raises:
            NotRun: it could not be started again, or was killed for a denied action.
            TurnCancelled: the user cancelled the turn.
        """
        run = self.run
        run.is_held = True
        try:
            has_ended = await wait(run, seconds)
            if run.refusal is not None:
                raise NotRun(run.refusal.reason, was_started=True)
            if has_ended and self._seems_denied() and await self._retry():
                has_ended = await wait(run, seconds)
            if not has_ended and exit_code is not None:
                run.stop(exit_code)
        except asyncio.CancelledError:
            run.abort()
            raise
        finally:
            run.release()
        return has_ended

    async def _launch(self, permission: Permission) -> None:
        run, request, confinement = self.run, self._request, permission.confinement
        if self.session is not None:
            run.item = msgspec.structs.replace(run.item, source="unifiedExecStartup")
        try:
            env, proxy = self._environment(confinement)
            argv = request.argv
            if permission.search_paths is not None:
                argv, env = without_startup_files(argv, env)
                env |= permission.search_paths
            env |= permission.variables
            await self._thread.terminals.launch(
                run,
                argv,
                cwd=request.cwd,
                env=env,
                confinement=confinement,
                size=self._size,
                proxy=proxy,
                limits=self._thread.settings.shell.command_limits(),
            )
        except SandboxUnavailable as error:
            self._publish_error(str(error))
            raise self._fail(str(error)) from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise self._fail(f"{reason} (os error {error.errno})") from error
        except ValueError as error:  # a null byte, which no argument can contain
            raise self._fail(str(error)) from error
        except asyncio.CancelledError:
            run.abort()
            raise
        if self.session is not None:
            run.item = msgspec.structs.replace(run.item, process_id=str(self.session))
        run.publish_started()

    def _environment(self, confinement: Confinement) -> tuple[dict[str, str], EgressProxy | None]:
        """The environment of the command, and its egress proxy if its hosts are limited."""
        run = self.run
        env = environment(
            self._thread.settings.shell.environment,
            run.turn.thread_id,
            call_id=self._request.call_id,
            has_network=confinement.network or confinement.has_proxy,
        )
        if not confinement.has_proxy:
            return env, None

        proxy, proxy_env = self._thread.approvals.hosts.create_proxy(run)
        return env | proxy_env, proxy

    def _publish_error(self, reason: str) -> None:
        """Publish, once per turn, that the sandbox does not work; the turn goes on without it."""
        turn = self.run.turn
        if turn.has_sandbox_error:
            return
        turn.has_sandbox_error = True
        error = TurnError(reason, codex_error_info="sandboxError")
        # The flag means that the error does not end the turn.
        notification = ErrorNotification(error, self._thread.id, turn.id, will_retry=True)
        turn.log.publish(n.ERROR, notification)

    def _fail(self, reason: str) -> NotRun:
        message = f"{self.error_prefix}: {reason}"
        self.run.fail(message)
        return NotRun(message)

    def _seems_denied(self) -> bool:
        run = self.run
        if run.confinement.is_unrestricted or run.exit_code is None or run.is_over:
            return False
        if run.limit_hit is not None:
            return False
        return seems_denied(run.exit_code, run.output.text())

    async def _retry(self) -> bool:
        """Run the command without the sandbox; false if that is not allowed."""
        run = self.run
        try:
            permission = await self._thread.approvals.retry(run.turn, self._request)
        except (Denied, ApprovalUnavailable):
            return False
        # The model reads the output of the second attempt only; clients have received both.
        run.take_unread()
        await self._launch(permission)
        return True


def seems_denied(exit_code: int, output: str) -> bool:
    """Whether a command looks as if the sandbox stopped it."""
    if exit_code == _BAD_SYSTEM_CALL:
        return True
    if exit_code in _NOT_DENIED:
        return False
    text = output.lower()
    return any(sign in text for sign in _SIGNS)
