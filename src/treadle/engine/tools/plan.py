"""The `update_plan` tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from treadle.engine.tools.registry import Output, ToolCall, ToolRefused, read_arguments
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ModelTool
from treadle.protocol import notifications as n
from treadle.protocol.turn import TurnPlanStep, TurnPlanStepStatus, TurnPlanUpdatedNotification

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

_STATUS: Final[dict[str, TurnPlanStepStatus]] = {
    "pending": "pending",
    "in_progress": "inProgress",
    "completed": "completed",
}


IN_PLAN_MODE: Final = "update_plan is a TODO/checklist tool and is not allowed in Plan mode"
MAX_STEPS: Final = 1_000
"""The most steps of a plan: each update sends and stores all of them."""


class _Step(msgspec.Struct):
    step: str
    status: Literal["pending", "in_progress", "completed"]


class _Arguments(msgspec.Struct):
    plan: list[_Step]
    explanation: str | None = None


class UpdatePlan:
    """Replaces the plan of the turn."""

    name = "update_plan"

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        step = {
            "type": "object",
            "properties": {
                "step": {"type": "string"},
                "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
            },
            "required": ["step", "status"],
            "additionalProperties": False,
        }
        return {
            "type": "function",
            "name": self.name,
            "description": "Show the user a plan for a longer task. Send the complete list of "
            "steps each time; at most one step may be in_progress.",
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": {
                    "explanation": {"type": "string"},
                    "plan": {"type": "array", "items": step},
                },
                "required": ["plan"],
                "additionalProperties": False,
            },
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Publish the plan."""
        if self._thread.settings_of(turn).is_planning:
            raise ToolRefused(IN_PLAN_MODE)
        arguments = read_arguments(call, _Arguments)
        if len(arguments.plan) > MAX_STEPS:
            raise ToolRefused(
                f"the plan has {len(arguments.plan)} steps, expected at most {MAX_STEPS}"
            )
        plan = [TurnPlanStep(_STATUS[step.status], step.step) for step in arguments.plan]
        turn.log.publish(
            n.TURN_PLAN_UPDATED,
            TurnPlanUpdatedNotification(
                plan=plan,
                thread_id=turn.thread_id,
                turn_id=turn.id,
                explanation=arguments.explanation,
            ),
        )
        return "Plan updated"
