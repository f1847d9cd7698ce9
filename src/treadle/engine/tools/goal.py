"""The tools by which the model sees and ends its standing goal."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolRefused,
    function_tool,
    read_arguments,
)
from treadle.model.base import ModelTool
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn


class _Nothing(msgspec.Struct):
    pass


class _Create(msgspec.Struct):
    objective: str
    token_budget: int | None = None


class _Update(msgspec.Struct):
    status: Literal["complete", "blocked", "paused"]


class _GoalTool:
    name: ClassVar[str]
    description: ClassVar[str]
    properties: ClassVar[dict[str, JsonValue]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        return function_tool(self.name, self.description, self.properties, self.required)

    def _show(self) -> str:
        goal = self._thread.goals.current
        return "null" if goal is None else msgspec.json.encode(goal).decode()


class GetGoal(_GoalTool):
    """Shows the goal."""

    name = "get_goal"
    description = "Read the thread's standing goal, its status and what it has cost so far."
    properties: ClassVar[dict[str, JsonValue]] = {}

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:  # noqa: ARG002 - a tool's signature
        """Give the goal as JSON."""
        read_arguments(call, _Nothing)
        return self._show()


class CreateGoal(_GoalTool):
    """Sets a goal that the user asked for."""

    name = "create_goal"
    description = "Set a standing goal, only when the user or your instructions ask for one."
    properties: ClassVar[dict[str, JsonValue]] = {
        "objective": {"type": "string", "description": "What is to be reached."},
        "token_budget": {"type": "integer", "description": "Only if the user gave one."},
    }
    required: ClassVar[tuple[str, ...]] = ("objective",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Set it, unless there is one."""
        arguments = read_arguments(call, _Create)
        goals = self._thread.goals
        if goals.current is not None and goals.current.status == "active":
            raise ToolRefused("there is an active goal already")
        goals.set(arguments.objective, "active", arguments.token_budget, turn_id=turn.id)
        return self._show()


class UpdateGoal(_GoalTool):
    """Ends or suspends the goal."""

    name = "update_goal"
    description = (
        "Say that the standing goal is complete, that you are blocked and cannot get on without "
        "the user, or, only when the user asks for it, that it is paused."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "status": {"type": "string", "enum": ["complete", "blocked", "paused"]}
    }
    required: ClassVar[tuple[str, ...]] = ("status",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Change its status."""
        arguments = read_arguments(call, _Update)
        if self._thread.goals.current is None:
            raise ToolRefused("there is no goal")
        self._thread.goals.set(status=arguments.status, turn_id=turn.id)
        return self._show()


def goal_tools(thread: LoadedThread) -> list[GetGoal | CreateGoal | UpdateGoal]:
    """All of them, for one thread."""
    return [GetGoal(thread), CreateGoal(thread), UpdateGoal(thread)]
