"""The hooks of one turn, as the agent loop runs them; without hooks no code of theirs is loaded."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Literal

from treadle.engine.ending import take_input
from treadle.engine.errors import TurnCancelled
from treadle.model.base import ModelError, ModelItem

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.tools.registry import Output, ToolCall, ToolRegistry
    from treadle.engine.turn import ActiveTurn


class TurnHooks:
    """Runs the hooks of a thread at the points of one turn."""

    def __init__(self, thread: LoadedThread, turn: ActiveTurn) -> None:
        self._thread = thread
        self._hooks = thread.hooks
        self._context = thread.context
        self._turn = turn
        # How often hooks have prevented the end of the turn.
        self._continuations = 0

    async def refresh(self) -> None:
        """Read the configured hooks.

        Raises:
            ModelError: they cannot be read, so it is not known what they would decide.
        """
        if (reason := await self._hooks.refresh()) is not None:
            raise ModelError(reason)

    async def start_session(self) -> bool:
        """Run the hooks of a session that starts; false if the turn ends here."""
        hooks, turn = self._hooks, self._turn
        if hooks.pending_start is None:
            return True
        if not hooks.has("sessionStart", "subagentStart"):
            hooks.pending_start = None
            return True
        from treadle.engine.hooks.points import start_session

        if await start_session(hooks, self._context, turn) is None:
            return True
        pending, turn.pending_input = turn.pending_input, []
        for each in pending:
            self._context.discard(each)
        return False

    async def take_input(self) -> bool:
        """Add the pending input that hooks allow to the history; false if they block all of it."""
        if not (self._hooks.has("userPromptSubmit") or self._hooks.late_texts):
            take_input(self._thread, self._turn)
            return True
        from treadle.engine.hooks.points import check_input

        return await check_input(self._hooks, self._context, self._turn)

    async def run_tool(self, tools: ToolRegistry, call: ToolCall) -> Output:
        """Run a call, between its hooks."""
        turn = self._turn
        if not self._hooks.has("preToolUse", "postToolUse"):
            return await tools.run(call, turn)
        from treadle.engine.hooks.points import run_tool
        from treadle.engine.tools.registry import unsupported

        # One that arrives later than this must not run without its hooks.
        tool = await tools.resolve(call)
        if tool is None:
            return unsupported(call)

        def run(changed: ToolCall) -> Awaitable[Output]:
            return tools.attempt(changed, turn)

        names: tuple[str, ...] = getattr(tool, "plain_names", ())
        return await run_tool(self._hooks, self._context, turn, call, run, names=names)

    async def check_search(self, item: ModelItem) -> None:
        """Show hooks a search that the provider has run.

        Raises:
            ModelError: a hook denies it, so the turn must not use what it found.
        """
        if not self._hooks.has("preToolUse", "postToolUse"):
            return
        from treadle.engine.hooks.points import see_search

        reason = await see_search(self._hooks, self._context, self._turn, item)
        if reason is not None:
            raise ModelError(reason)

    async def compact(self, event: Literal["preCompact", "postCompact"]) -> None:
        """Run the hooks before or after a compaction.

        Raises:
            TurnCancelled: a hook stops the turn.
        """
        hooks = self._hooks
        if event == "postCompact" and hooks.has("sessionStart"):
            hooks.pending_start = "compact"
        if not hooks.has(event):
            return
        from treadle.engine.hooks.points import compaction

        if await compaction(hooks, self._turn, event) is not None:
            raise TurnCancelled

    async def goes_on(self) -> bool:
        """Run the hooks at the end of the turn; true if the model has more to do."""
        if not self._hooks.has("stop", "subagentStop"):
            return False
        from treadle.engine.hooks.points import goes_on

        result = await goes_on(self._hooks, self._context, self._turn, self._continuations)
        self._continuations += result
        return result
