"""The commands that run in a thread: those of calls, and those that outlive their call.

A command belongs to the turn that began it. It lives on when the turn ends well; it is killed,
with all that it started, when the turn is interrupted and when the thread is let go of.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from treadle.engine.terminals.run import CommandRun
from treadle.engine.turn import ActiveTurn
from treadle.protocol.command import ThreadBackgroundTerminal
from treadle.protocol.item import ItemStartedNotification
from treadle.sandbox.policy import Confinement
from treadle.support.concurrency.tasks import BackgroundTasks

if TYPE_CHECKING:
    from treadle.sandbox.limits import CommandLimits
    from treadle.sandbox.network.proxy import EgressProxy
    from treadle.sandbox.process import Process

MAX_SESSIONS: Final = 64
# Those that the model has just used are never the ones that have to go.
_RECENT: Final = 8
_FIRST_ID, _LAST_ID = 1_000, 100_000
# What was killed is gone at once; but a process can hang in the kernel.
_REAP_SECONDS: Final = 2.0
_MAX_FREE: Final = 64


class Terminals:
    """Looks after the commands of one thread."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._running: dict[CommandRun, None] = {}
        # What the model can come back to: it runs, or it ended unseen.
        self._sessions: dict[int, CommandRun] = {}
        self._users: dict[asyncio.Task[None], ActiveTurn] = {}
        # What ran outside the sandbox may have left something running that only it can end.
        self._free: deque[tuple[ActiveTurn, Process]] = deque(maxlen=_MAX_FREE)

    # -- life

    async def launch(
        self,
        run: CommandRun,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        size: tuple[int, int] | None = None,
        gate: EgressProxy | None = None,
        limits: CommandLimits | None = None,
    ) -> None:
        """Start the process of a run, and look after it until its end.

        Raises:
            SandboxUnavailable: it cannot be confined.
            OSError: it cannot be started.
            CancelledError: its turn can no longer be stored.
        """
        run.turn.check_storable()
        process = await run.start(
            argv,
            cwd=cwd,
            env=env,
            confinement=confinement,
            size=size,
            gate=gate,
            limits=limits,
        )
        self._running[run] = None
        run.turn.at_end(lambda: self._on_turn_end(run))
        if confinement.is_unrestricted:
            self._free.append((run.turn, process))
        try:
            self._tasks.spawn(self._watch(run), f"command {process.pid}")
        except RuntimeError:
            # The server is closing: nobody is left to look after it.
            self._running.pop(run, None)
            run.abort()
            raise

    async def _watch(self, run: CommandRun) -> None:
        process = run.process
        if process is None:
            return
        try:
            code = await process.wait()
            # Who reads that it has ended may read the file next.
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
        if _is_interrupted(run.turn):
            run.abort()
            self._end_leftovers(run.turn)

    def _end_leftovers(self, of: ActiveTurn | None = None) -> None:
        """End what commands outside the sandbox left running: those of a turn, or all."""
        for turn, process in self._free:
            if of is None or turn is of:
                process.kill()

    def abort(self, turn: ActiveTurn) -> None:
        """Stop what runs for a turn."""
        for run in [run for run in self._running if run.turn is turn]:
            run.abort()

    def keep_turns(self, turn_ids: Collection[str]) -> None:
        """Stop what turns left running that are no longer part of the thread."""
        for run in [run for run in self._running if run.turn.id not in turn_ids]:
            run.forget()

    def close(self) -> None:
        """Stop everything."""
        for run in list(self._running):
            run.abort()
        self._end_leftovers()
        self._sessions.clear()

    # -- sessions of the model

    def reserve(self, run: CommandRun) -> int:
        """Give a run a number by which the model can come back to it."""
        while (number := _random_id()) in self._sessions:
            pass
        self._make_room()
        self._sessions[number] = run
        self.touch(run)
        return number

    def session(self, number: int) -> CommandRun | None:
        """The run that has this number."""
        return self._sessions.get(number)

    def release(self, number: int) -> None:
        """Forget a number: the model knows how it ended."""
        self._sessions.pop(number, None)

    def touch(self, run: CommandRun) -> None:
        """Note that the model has just used a run."""
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

    # -- what clients see and do

    def background(self) -> list[ThreadBackgroundTerminal]:
        """The sessions that run, oldest first."""
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
        """Kill a session; false if there is none of this number."""
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
        """The items under way of turns that are over, as they stand."""
        return [
            ItemStartedNotification(
                item=run.current(),
                started_at_ms=run.started_at_ms,
                thread_id=run.turn.thread_id,
                turn_id=run.turn.id,
            )
            for run in self._running
            if run.turn is not turn and run.is_told and not run.is_over
        ]

    # -- commands of the user

    def spawn(self, work: Coroutine[None, None, None], turn: ActiveTurn) -> None:
        """Carry out a command of the user; its turn lasts as long as that, if it has nothing else.

        Raises:
            RuntimeError: the server is closing.
        """
        task = self._tasks.spawn(work, f"user's command in {turn.id}")
        self._users[task] = turn
        task.add_done_callback(self._users.pop)
        turn.at_end(lambda: self._cancel_interrupted(task, turn))

    def _cancel_interrupted(self, task: asyncio.Task[None], turn: ActiveTurn) -> None:
        if _is_interrupted(turn):
            task.cancel()

    async def settled(self, turn: ActiveTurn) -> None:
        """Wait until no command of the user runs in a turn."""
        while tasks := [task for task, of in self._users.items() if of is turn]:
            await asyncio.wait(tasks)


async def wait(run: CommandRun, seconds: float | None) -> bool:
    """Wait for a process to end, for so long; true if it has."""
    with suppress(TimeoutError):
        async with run.patience.limit(seconds):
            await run.exited.wait()
    return run.exited.is_set()


def _random_id() -> int:
    # Counted from one, it would name another command after a restart than the model remembers.
    return _FIRST_ID + int.from_bytes(os.urandom(4), "big") % (_LAST_ID - _FIRST_ID)


def _is_interrupted(turn: ActiveTurn) -> bool:
    return turn.task is not None and turn.task.cancelling() > 0
