"""The running commands of a thread: those of tool calls, and those that outlive their call.

A command belongs to the turn that started it. It continues after its turn, unless the turn is
interrupted before the call of the command has returned. It is killed with all its processes then,
and when the thread is unloaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from treadle.engine.errors import InvalidInput
from treadle.engine.terminals.run import CommandRun
from treadle.engine.turn import ActiveTurn
from treadle.protocol.command import ThreadBackgroundTerminal
from treadle.protocol.item import ItemStartedNotification, with_times
from treadle.sandbox.policy import Confinement
from treadle.support.concurrency.tasks import BackgroundTasks

if TYPE_CHECKING:
    from treadle.sandbox.limits import CommandLimits
    from treadle.sandbox.network.proxy import EgressProxy
    from treadle.sandbox.process import Process
    from treadle.sandbox.sandbox import Sandbox

MAX_SESSIONS: Final = 64
# The most recently used sessions are never removed to make room.
_RECENT: Final = 8
_FIRST_ID, _LAST_ID = 1_000, 100_000
# A killed process ends at once unless it hangs in the kernel.
_REAP_SECONDS: Final = 2.0


class Terminals:
    """Owns the commands of one thread."""

    def __init__(self, tasks: BackgroundTasks, sandbox: Sandbox) -> None:
        self._tasks = tasks
        self._sandbox = sandbox
        self._running: dict[CommandRun, None] = {}
        # Commands that the model can refer to: running, or ended without the model's knowledge.
        self._sessions: dict[int, CommandRun] = {}
        self._users: dict[asyncio.Task[None], ActiveTurn] = {}
        # Commands outside the sandbox; each can kill the processes that it left running.
        self._free: list[tuple[ActiveTurn, Process]] = []
        # Questions to the user that clients have open outside the protocol.
        self._questions = 0
        self._pauses = ExitStack()

    # -- timeouts

    def open_question(self) -> int:
        """Pause all timeouts while a client asks the user something; return how many do."""
        self._questions += 1
        if self._questions == 1:
            for run in self._running:
                self._pauses.enter_context(run.timeout.paused())
        return self._questions

    def close_question(self) -> int:
        """Undo one `open_question`, and return how many are left.

        Raises:
            InvalidInput: no question is open.
        """
        if not self._questions:
            raise InvalidInput("threadId", "out-of-band elicitation count is already zero")
        self._questions -= 1
        if not self._questions:
            self._pauses.close()
        return self._questions

    # -- start and end

    async def launch(
        self,
        run: CommandRun,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        size: tuple[int, int] | None = None,
        proxy: EgressProxy | None = None,
        limits: CommandLimits | None = None,
    ) -> None:
        """Start the process of a run, and watch it until it ends.

        Raises:
            SandboxUnavailable: it cannot be confined.
            OSError: it cannot be started.
            CancelledError: its turn can no longer be stored.
        """
        run.turn.check_storable()
        if self._questions:
            self._pauses.enter_context(run.timeout.paused())
        process = await run.start(
            self._sandbox,
            argv,
            cwd=cwd,
            env=env,
            confinement=confinement,
            size=size,
            proxy=proxy,
            limits=limits,
        )
        self._running[run] = None
        run.turn.at_end(lambda: self._on_turn_end(run))
        if confinement.is_unrestricted:
            # Dropped only when nothing of them runs: each entry costs less than its guard.
            self._free = [entry for entry in self._free if not entry[1].is_gone]
            self._free.append((run.turn, process))
        try:
            self._tasks.spawn(self._watch(run), f"command {process.pid}")
        except RuntimeError:
            # The server is closing, so no task can watch the process.
            self._running.pop(run, None)
            run.abort()
            raise

    async def _watch(self, run: CommandRun) -> None:
        process = run.process
        if process is None:
            return
        try:
            code = await process.wait()
            # A reader of the result may open the file next.
            await run.stored()
        except asyncio.CancelledError:
            run.abort()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _REAP_SECONDS)
            raise
        finally:
            if run.process is process:
                self._running.pop(run, None)
        run.on_exit(code)

    def _on_turn_end(self, run: CommandRun) -> None:
        turn = run.turn
        if not _is_interrupted(turn):
            return
        # The model knows a background terminal by its session, and clients end it on their own.
        if not run.is_background or turn.failure is not None:
            run.abort()
        self._end_leftovers(turn)

    def _end_leftovers(self, of: ActiveTurn | None = None) -> None:
        """Kill processes that commands outside the sandbox left running: of a turn, or all."""
        kept = {run.process for run in self._running if not run.is_over}
        for turn, process in self._free:
            if of is None or (turn is of and process not in kept):
                process.kill()

    def abort(self, turn: ActiveTurn) -> None:
        """Stop the commands of a turn."""
        for run in [run for run in self._running if run.turn is turn]:
            run.abort()

    def keep_turns(self, turn_ids: Collection[str]) -> None:
        """Stop the commands of all other turns, which are no longer part of the thread."""
        for run in [run for run in self._running if run.turn.id not in turn_ids]:
            run.forget()

    def close(self) -> None:
        """Stop all commands."""
        for run in list(self._running):
            run.abort()
        self._end_leftovers()
        self._sessions.clear()

    # -- sessions of the model

    def reserve(self, run: CommandRun) -> int:
        """Give a run a session id by which the model can refer to it."""
        while (number := _random_id()) in self._sessions:
            pass
        self._make_room()
        self._sessions[number] = run
        self.touch(run)
        return number

    def session(self, number: int) -> CommandRun | None:
        """The run with this session id."""
        return self._sessions.get(number)

    def release(self, number: int) -> None:
        """Forget a session id: the model knows the result."""
        self._sessions.pop(number, None)

    def touch(self, run: CommandRun) -> None:
        """Record that the model has just used a run."""
        run.last_used = asyncio.get_running_loop().time()

    def _make_room(self) -> None:
        if len(self._sessions) < MAX_SESSIONS:
            return
        by_age = sorted(self._sessions, key=lambda number: self._sessions[number].last_used)
        older = by_age[:-_RECENT]
        ended = [number for number in older if self._sessions[number].is_over]
        number = (ended or older)[0]
        run = self._sessions.pop(number)
        if run.process is not None:
            run.process.kill()

    # -- API for clients

    def background(self) -> list[ThreadBackgroundTerminal]:
        """The running sessions, oldest first."""
        return [
            ThreadBackgroundTerminal(
                command=run.script,
                cwd=run.item.cwd,
                item_id=run.item.id,
                process_id=run.item.process_id,
                os_pid=run.process.pid,
            )
            for run in self._running
            if run.item.process_id is not None and run.process is not None and not run.is_over
        ]

    def terminate(self, process_id: str) -> bool:
        """Kill a session; false if there is none with this id."""
        for run in self._running:
            if run.item.process_id == process_id and run.process is not None:
                run.stop()
                return True
        return False

    def clean(self) -> None:
        """Kill all sessions."""
        for terminal in self.background():
            self.terminate(terminal.process_id)

    def open_items(self, turn: ActiveTurn | None) -> list[ItemStartedNotification]:
        """The items in progress of turns that have ended, in their current state."""
        return [
            ItemStartedNotification(
                item=with_times(run.current(), run.started_at_ms, None),
                started_at_ms=run.started_at_ms,
                thread_id=run.turn.thread_id,
                turn_id=run.turn.id,
            )
            for run in self._running
            if run.turn is not turn and run.is_published and not run.is_over
        ]

    # -- commands of the user

    def spawn(self, work: Coroutine[None, None, None], turn: ActiveTurn) -> asyncio.Task[None]:
        """Run a command of the user; a turn without other work lasts until the command ends.

        Raises:
            RuntimeError: the server is closing.
        """
        task = self._tasks.spawn(work, f"user's command in {turn.id}")
        self._users[task] = turn
        task.add_done_callback(self._users.pop)
        turn.at_end(lambda: self._cancel_interrupted(task, turn))
        return task

    def _cancel_interrupted(self, task: asyncio.Task[None], turn: ActiveTurn) -> None:
        if _is_interrupted(turn):
            task.cancel()

    async def settled(self, turn: ActiveTurn) -> None:
        """Wait until the turn has no running command of the user."""
        while tasks := [task for task, of in self._users.items() if of is turn]:
            await asyncio.wait(tasks)


async def wait(run: CommandRun, seconds: float | None) -> bool:
    """Wait up to `seconds` for a process to end; return whether it has ended."""
    with suppress(TimeoutError):
        async with run.timeout.limit(seconds):
            await run.exited.wait()
    return run.exited.is_set()


def _random_id() -> int:
    # Random, because after a restart a counter would reuse the ids in the model's history.
    return _FIRST_ID + int.from_bytes(os.urandom(4), "big") % (_LAST_ID - _FIRST_ID)


def _is_interrupted(turn: ActiveTurn) -> bool:
    return turn.task is not None and turn.task.cancelling() > 0
