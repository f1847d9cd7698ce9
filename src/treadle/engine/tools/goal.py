"""The tools that read, set and update the goal of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from treadle.engine.errors import InvalidInput
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
        """The definition that the model sees."""
        return function_tool(self.name, self.description, self.properties, self.required)

    def _show(self) -> str:
        goal = self._thread.goals.current
        return "null" if goal is None else msgspec.json.encode(goal).decode()


class GetGoal(_GoalTool):
    """Shows the goal."""

    name = "get_goal"
    description = "Read the thread's goal, its status and its cost so far."
    properties: ClassVar[dict[str, JsonValue]] = {}

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:  # noqa: ARG002 - a tool's signature
        """Return the goal as JSON."""
        read_arguments(call, _Nothing)
        return self._show()


class CreateGoal(_GoalTool):
    """Sets a goal that the user asked for."""

    name = "create_goal"
    description = (
        "Set a goal for the thread. Use it only if the user or your instructions ask for one."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "objective": {"type": "string", "description": "The objective to reach."},
        "token_budget": {
            "type": "integer",
            "description": "Token budget. Set it only if the user gave one.",
        },
    }
    required: ClassVar[tuple[str, ...]] = ("objective",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Set the goal, unless one is active."""
        arguments = read_arguments(call, _Create)
        goals = self._thread.goals
        if goals.current is not None and goals.current.status == "active":
            raise ToolRefused("a goal is already active")
        try:
            goals.set(arguments.objective, "active", arguments.token_budget, turn_id=turn.id)
        except InvalidInput as error:
            raise ToolRefused(str(error)) from error
        return self._show()


class UpdateGoal(_GoalTool):
    """Ends or suspends the goal."""

    name = "update_goal"
    description = (
        "Update the status of the goal: complete when it is reached, blocked when you cannot "
        "continue without the user, paused only when the user asks for it."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "status": {"type": "string", "enum": ["complete", "blocked", "paused"]}
    }
    required: ClassVar[tuple[str, ...]] = ("status",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Change the status."""
        arguments = read_arguments(call, _Update)
        if self._thread.goals.current is None:
            raise ToolRefused("there is no goal")
        self._thread.goals.set(status=arguments.status, turn_id=turn.id)
        return self._show()


def goal_tools(thread: LoadedThread) -> list[GetGoal | CreateGoal | UpdateGoal]:
    """The goal tools of a thread."""
    return [GetGoal(thread), CreateGoal(thread), UpdateGoal(thread)]
