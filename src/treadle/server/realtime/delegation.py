"""Tasks of a realtime conversation: each becomes input of the thread, and its result a report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Final

from treadle.engine.errors import EngineError
from treadle.engine.events.intake import input_stored
from treadle.engine.events.reader import EventsExpired
from treadle.engine.thread import LoadedThread
from treadle.protocol.input import TextUserInput
from treadle.protocol.item import AgentMessageThreadItem, ItemCompletedNotification
from treadle.protocol.turn import TurnCompletedNotification, TurnStartParams
from treadle.server.realtime import service_events as service
from treadle.store.journal import Event, StorageFailed

MAX_STEERING: Final = 32
"""The maximum number of tasks that steer one turn: the service decides how many it sends."""

_TOO_MANY: Final = "The agent is working on earlier tasks and takes no more until it has finished."
_FINISHED: Final = "The agent has finished. Its result is in the preceding [BACKEND] messages."
_STEERED: Final = "The agent is working on an earlier task and takes this as guidance."


class NotRunning(Exception):
    """The thread has no realtime conversation."""


class Delegation:
    """Hands tasks to a thread and reports what its agent says."""

    def __init__(
        self,
        thread: LoadedThread,
        version: service.Version,
        send: Callable[[Sequence[bytes]], Awaitable[None]],
    ) -> None:
        self._thread = thread
        self._version = version
        self._send = send
        # How many tasks have steered the active turn.
        self._steering = 0

    async def run(self, task: service.AgentTask, said: Sequence[tuple[service.Role, str]]) -> None:
        """Start a turn with a task, or steer the active one, and report to its end."""
        thread = self._thread
        is_steered = thread.turn is not None
        self._steering = self._steering + 1 if is_steered else 0
        if self._steering > MAX_STEERING:
            await self._end(task, _TOO_MANY)
            return
        reader, wake = thread.log.reader(thread.log.last_seq), asyncio.Event()
        unwatch = thread.log.watch(wake.set)
        try:
            params = TurnStartParams([TextUserInput(text=_input(task.input, said))], thread.id)
            # A task is what a model has made of what was said, so it authorizes nothing.
            accepted = thread.begin_turn(params, source="agent")
            await input_stored(thread, accepted)
            accepted.start()
            if is_steered:
                await self._end(task, _STEERED)
                return
            while True:
                wake.clear()
                for event in reader.read():
                    if await self._report(task, accepted.snapshot.id, event):
                        return
                await wake.wait()
        except (EngineError, StorageFailed, EventsExpired) as error:
            await self._end(task, f"The agent cannot take the task: {error}")
        finally:
            unwatch()

    async def _report(self, task: service.AgentTask, turn_id: str, event: Event) -> bool:
        """Report one event, and return whether it ends the turn."""
        params = event.params
        if isinstance(params, ItemCompletedNotification) and params.turn_id == turn_id:
            item = params.item
            if isinstance(item, AgentMessageThreadItem) and item.text:
                await self._send([service.report(self._version, task.id, item.text)])
        elif isinstance(params, TurnCompletedNotification) and params.turn.id == turn_id:
            error = params.turn.error
            is_done = params.turn.status == "completed"
            reason = error.message if error is not None else params.turn.status
            await self._end(task, _FINISHED if is_done else f"The agent has failed: {reason}")
            return True
        return False

    async def _end(self, task: service.AgentTask, text: str) -> None:
        if self._version == "v2":
            await self._send(service.outputs(task.id, text, continues=True))
        elif text != _FINISHED:
            await self._send([service.report(self._version, task.id, text)])


def _input(request: str, said: Sequence[tuple[service.Role, str]]) -> str:
    """Return the text of the user's message."""
    transcript = "\n".join(f"{role}: {escape(text, quote=False)}" for role, text in said)
    return (
        f"<realtime_delegation>\n  <input>{escape(request, quote=False)}</input>\n"
        f"  <transcript_delta>{transcript}</transcript_delta>\n</realtime_delegation>"
    )
