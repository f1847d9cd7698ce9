"""Runs the hooks of one event: all at once, each shown and recorded from its start to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.engine.hooks.hook import Hook
from treadle.engine.hooks.outputs import HookAnswer, HookVerdict, verdict_of
from treadle.engine.hooks.programs.process import hook_environment, run_command
from treadle.engine.hooks.programs.scripts import writable_script
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.hook import (
    CommandConfiguredHookHandler,
    HookCompletedNotification,
    HookOutputEntry,
    HookRunSummary,
    HookStartedNotification,
)
from treadle.support.clock import Stopwatch
from treadle.support.text.json_text import encode_json

if TYPE_CHECKING:
    from treadle.engine.mcp.servers import McpServers
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

logger = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 8
"""How many hooks of a thread run at the same time, besides those in the background."""
MAX_ENTRY: Final = 16 * 1024
"""The longest message of a hook in a notification, in characters."""

INTERRUPTED: Final = "interrupted"


class HookResult(Struct, frozen=True):
    """One run and its verdict; the last one to end has the highest `order`."""

    hook: Hook
    run_id: str
    verdict: HookVerdict
    order: int


class HookRunner:
    """Runs hooks of one thread."""

    def __init__(self, thread: ThreadState, servers: McpServers) -> None:
        self._thread = thread
        self._servers = servers
        # A model can call many tools at once.
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        # Whether the thread can still record the runs.
        self._is_recorded = True

    def stop_recording(self) -> None:
        """Run later hooks without a trace in the thread, whose journal is closed."""
        self._is_recorded = False

    async def run_all(
        self,
        hooks: Sequence[Hook],
        event: dict[str, JsonValue],
        turn: ActiveTurn | None,
        suffix: str | None,
    ) -> list[HookResult]:
        """Run hooks with an event, and return the results in the order of the hooks."""
        finished: list[HookResult] = []

        async def one(hook: Hook) -> None:
            run_id = hook.run_id if suffix is None else f"{hook.run_id}:{suffix}"
            async with self._room:
                verdict = await self.run(hook, event, turn, run_id)
            finished.append(HookResult(hook, run_id, verdict, len(finished)))

        async with asyncio.TaskGroup() as tasks:
            for hook in hooks:
                tasks.create_task(one(hook), name=f"hook {hook.key}")
        return sorted(finished, key=lambda result: result.hook.display_order)

    async def run(
        self, hook: Hook, event: dict[str, JsonValue], turn: ActiveTurn | None, run_id: str
    ) -> HookVerdict:
        """Run one hook, and publish its start and its end."""
        stopwatch, started = Stopwatch(), self._thread.services.clock() // 1000
        running = _summary(hook, run_id, started)
        self._publish_started(running, turn)
        verdict = HookVerdict(status="failed")
        try:
            verdict = verdict_of(hook, await self._answer(hook, event))
        except asyncio.CancelledError:
            verdict.add("error", INTERRUPTED)
            raise
        except Exception:  # boundary: a deciding hook that cannot run denies
            logger.exception("hook failed", extra={"hook": hook.key})
            verdict = verdict_of(hook, HookAnswer(error="internal error"))
        finally:
            completed = replace(
                running,
                status=verdict.status,
                entries=[_shortened(entry) for entry in verdict.entries],
                completed_at=max(started, self._thread.services.clock() // 1000),
                duration_ms=stopwatch.milliseconds,
            )
            self._publish_completed(completed, turn)
        return verdict

    async def _answer(self, hook: Hook, event: dict[str, JsonValue]) -> HookAnswer:
        if hook.fault is not None:
            return HookAnswer(error=hook.fault)
        handler, thread = hook.handler, self._thread
        if not isinstance(handler, CommandConfiguredHookHandler):
            from treadle.engine.hooks.mcp_tool import run_tool

            return await run_tool(self._servers, handler, event, hook.timeout_s)
        workers, command = thread.services.file_workers, handler.command
        env = {**hook_environment(thread), **hook.variables}
        script = await workers.run(writable_script, thread, command, env)
        if script is not None:
            return HookAnswer(
                error=f"{script} can be changed by sandboxed commands, so it does not run outside "
                "the sandbox: move it to the .codex folder of the project or outside of it"
            )
        return await run_command(thread, hook, command, encode_json(event))

    def _publish_started(self, run: HookRunSummary, turn: ActiveTurn | None) -> None:
        if not self._is_recorded:
            return
        turn_id = None if turn is None else turn.id
        started = HookStartedNotification(run, self._thread.id, turn_id)
        self._thread.log.publish(n.HOOK_STARTED, started)

    def _publish_completed(self, run: HookRunSummary, turn: ActiveTurn | None) -> None:
        if not self._is_recorded:
            return
        turn_id = None if turn is None else turn.id
        completed = HookCompletedNotification(run, self._thread.id, turn_id)
        self._thread.log.publish(n.HOOK_COMPLETED, completed)


def _summary(hook: Hook, run_id: str, started: int) -> HookRunSummary:
    is_command = isinstance(hook.handler, CommandConfiguredHookHandler)
    return HookRunSummary(
        display_order=hook.display_order,
        entries=[],
        event_name=hook.event_name,
        execution_mode="async" if hook.is_async else "sync",
        handler_type="command" if is_command else "mcpTool",
        id=run_id,
        scope=hook.event.scope,
        source_path=hook.source_path,
        started_at=started,
        status="running",
        source=hook.source,
        status_message=hook.handler.status_message,
    )


def _shortened(entry: HookOutputEntry) -> HookOutputEntry:
    if len(entry.text) <= MAX_ENTRY:
        return entry
    return replace(entry, text=f"{entry.text[:MAX_ENTRY]}… ({len(entry.text)} characters)")
