"""The tools that start, instruct and close sub-agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec

from treadle.engine.agents.agents import AgentRefused, Agents, SubAgent
from treadle.engine.agents.roles import ROLES
from treadle.engine.agents.setup import depth_of
from treadle.engine.agents.states import NOT_FOUND, PENDING, word_for
from treadle.engine.conversation.input import InputFiles, Readable, read_files
from treadle.engine.errors import EngineError, InvalidInput
from treadle.engine.tools.agent_calls import (
    WAIT,
    AgentActivity,
    CloseArguments,
    ResumeArguments,
    SendArguments,
    SpawnArguments,
    WaitArguments,
    words_of,
)
from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolHandler,
    ToolRefused,
    function_tool,
    read_arguments,
)
from treadle.engine.turn import ActiveTurn
from treadle.model.base import ModelTool
from treadle.protocol.base import JsonValue
from treadle.protocol.input import UserInput
from treadle.sandbox.reading import NotReadable

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

R = TypeVar("R")

DEFAULT_WAIT_MS: Final = 30_000
MIN_WAIT_MS: Final = 10_000
MAX_WAIT_MS: Final = 3_600_000

_TEXT: Final[JsonValue] = {"type": "string"}
_INPUT: Final[dict[str, JsonValue]] = {
    "message": {
        "type": "string",
        "description": "The task as text. Provide either message or items.",
    },
    "items": {
        "type": "array",
        "description": "The task as parts of type text, image, local_image, skill or mention.",
        "items": {
            "type": "object",
            "properties": dict.fromkeys(("type", "text", "image_url", "path", "name"), _TEXT),
            "additionalProperties": False,
        },
    },
}
_ROLES: Final = "\n".join(f"- {name}: {role.description}" for name, role in ROLES.items())
_TARGET: Final[JsonValue] = {"type": "string", "description": "Agent id returned by spawn_agent."}


def agent_tools(thread: LoadedThread, agents: Agents) -> list[ToolHandler]:
    """The tools for sub-agents, if the thread may have any."""
    is_on = thread.settings.is_enabled("multi_agent")
    if not is_on or depth_of(thread.meta) >= thread.settings.agents.max_depth:
        return []
    kinds = (SpawnAgent, SendInput, ResumeAgent, WaitAgent, CloseAgent)
    return [kind(thread, agents) for kind in kinds]


class _AgentTool:
    name: str
    description: str
    properties: ClassVar[dict[str, JsonValue]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, thread: LoadedThread, agents: Agents) -> None:
        self._thread = thread
        self._agents = agents

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        return function_tool(self.name, self.description, self.properties, self.required)

    async def _read_files(self, turn: ActiveTurn, inputs: Sequence[UserInput]) -> InputFiles:
        """Read the files in the input that commands of the turn may read.

        Raises:
            ToolRefused: a file cannot be read.
        """

        def readable() -> Readable:
            may_read = self._thread.approvals.confinement(turn).may_read
            return self._thread.context.readable()._replace(may_read=may_read, may_follow=None)

        try:
            return await read_files(inputs, self._thread.services.file_workers, readable)
        except NotReadable as error:
            raise ToolRefused(f"the sandbox does not allow reading `{error.filename}`") from error
        except InvalidInput as error:
            raise ToolRefused(str(error)) from error

    async def _find(self, activity: AgentActivity, child_id: str) -> SubAgent:
        child = await self._agents.find(self._thread, child_id)
        if child is None:
            activity.end({child_id: NOT_FOUND}, "failed")
            raise ToolRefused(f"agent with id {child_id} not found")
        return child


class SpawnAgent(_AgentTool):
    """Starts an agent."""

    name = "spawn_agent"
    description = (
        "Start another agent that works on a task in parallel. Use it only if the user asked for "
        "agents, delegation or parallel work. The agent does not see this conversation unless "
        "fork_context is true, so include everything it needs. Returns its id and nickname."
    )

    properties: ClassVar[dict[str, JsonValue]] = {
        **_INPUT,
        "agent_type": {"type": "string", "description": f"Role of the agent:\n{_ROLES}"},
        "fork_context": {
            "type": "boolean",
            "description": "Start the agent with a copy of this conversation. Defaults to false.",
        },
        "model": {"type": "string", "description": "Model for the agent. Defaults to your model."},
        "reasoning_effort": {
            "type": "string",
            "description": "Reasoning effort for the agent. Defaults to yours.",
        },
    }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Start an agent with a task."""
        arguments = read_arguments(call, SpawnArguments)
        inputs, settings = arguments.inputs(), self._thread.settings_of(turn)
        effort = arguments.reasoning_effort or settings.effort
        with AgentActivity(
            "spawnAgent",
            call,
            turn,
            prompt=words_of(inputs),
            model=arguments.model or settings.model,
            effort=effort,
        ) as activity:
            files = await self._read_files(turn, inputs)
            child = _refusing(
                lambda: self._agents.spawn(
                    self._thread,
                    turn,
                    inputs,
                    files,
                    role=arguments.agent_type,
                    model=arguments.model,
                    effort=arguments.reasoning_effort,
                    forks=arguments.fork_context,
                )
            )
            activity.end({child.id: PENDING}, receivers=[child.id])
        return _json({"agent_id": child.id, "nickname": child.nickname})


class SendInput(_AgentTool):
    """Sends input to an agent."""

    name = "send_input"
    description = (
        "Send a message to an agent that you started: a question, a correction or the next task. "
        "The agent reads it after its current answer, or at once if interrupt is true."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "target": _TARGET,
        **_INPUT,
        "interrupt": {
            "type": "boolean",
            "description": "Stop the agent's current work first. Defaults to false.",
        },
    }
    required: ClassVar[tuple[str, ...]] = ("target",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Send the input."""
        arguments = read_arguments(call, SendArguments)
        inputs = arguments.inputs()
        with AgentActivity(
            "sendInput", call, turn, [arguments.target], prompt=words_of(inputs)
        ) as activity:
            child = await self._find(activity, arguments.target)
            if arguments.interrupt:
                await self._agents.interrupt(child)
            files = await self._read_files(turn, inputs)
            try:
                turn_id = await self._agents.send(self._thread, turn, child, inputs, files)
            except (AgentRefused, EngineError) as refusal:
                raise ToolRefused(str(refusal)) from refusal
            activity.end({child.id: child.state})
        return _json({"submission_id": turn_id})


class WaitAgent(_AgentTool):
    """Waits for agents."""

    name = WAIT
    description = (
        "Wait until one of these agents has finished, and return its last message. Prefer long "
        "waits to frequent calls: new input from the user ends the wait."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "targets": {
            "type": "array",
            "items": _TEXT,
            "description": "Agent ids returned by spawn_agent.",
        },
        "timeout_ms": {
            "type": "number",
            "description": f"Maximum wait in milliseconds: {MIN_WAIT_MS} to {MAX_WAIT_MS} "
            f"(default {DEFAULT_WAIT_MS}).",
        },
    }
    required: ClassVar[tuple[str, ...]] = ("targets",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Wait, and return the agents that have finished."""
        arguments = read_arguments(call, WaitArguments)
        targets = arguments.distinct_targets()
        limit = max(MIN_WAIT_MS, min(MAX_WAIT_MS, arguments.timeout_ms or DEFAULT_WAIT_MS))
        with AgentActivity("wait", call, turn, targets) as activity:
            agents = {target: await self._agents.find(self._thread, target) for target in targets}
            children = [child for child in agents.values() if child is not None]
            if len(children) == len(agents):
                turn.waits[call.id] = targets
                await self._agents.wait(turn, children, limit / 1000)
            states = {id_: child.state if child else NOT_FOUND for id_, child in agents.items()}
            is_bad = any(state.status in ("errored", "notFound") for state in states.values())
            activity.end(states, "failed" if is_bad else "completed")
        done = {
            id_: word_for(states[id_])
            for id_, child in agents.items()
            if child is None or child.is_done
        }
        if not done and turn.pending_input:
            return _json({"status": {}, "timed_out": False, "interrupted_by": "the user"})
        return _json({"status": done, "timed_out": not done})


class ResumeAgent(_AgentTool):
    """Reopens a closed agent."""

    name = "resume_agent"
    description = "Reopen a closed agent, so that it can receive further input."
    properties: ClassVar[dict[str, JsonValue]] = {"id": _TARGET}
    required: ClassVar[tuple[str, ...]] = ("id",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Load the agent."""
        arguments = read_arguments(call, ResumeArguments)
        with AgentActivity("resumeAgent", call, turn, [arguments.id]) as activity:
            try:
                child = await self._agents.resume(self._thread, arguments.id)
            except AgentRefused as refusal:
                activity.end({arguments.id: NOT_FOUND}, "failed")
                raise ToolRefused(str(refusal)) from refusal
            activity.end({child.id: child.state})
        return _json({"status": word_for(child.state)})


class CloseAgent(_AgentTool):
    """Closes an agent."""

    name = "close_agent"
    description = (
        "Close an agent that is no longer needed, and the agents that it started. Running work is "
        "stopped. Returns the agent's last status."
    )
    properties: ClassVar[dict[str, JsonValue]] = {"target": _TARGET}
    required: ClassVar[tuple[str, ...]] = ("target",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Stop and unload the agent."""
        arguments = read_arguments(call, CloseArguments)
        with AgentActivity("closeAgent", call, turn, [arguments.target]) as activity:
            child = await self._find(activity, arguments.target)
            before = await self._agents.close(child)
            activity.end({child.id: before})
        return _json({"previous_status": word_for(before)})


def _refusing(act: Callable[[], R]) -> R:
    try:
        return act()
    except (AgentRefused, EngineError) as refusal:
        raise ToolRefused(str(refusal)) from refusal


def _json(answer: JsonValue) -> str:
    return msgspec.json.encode(answer).decode()
