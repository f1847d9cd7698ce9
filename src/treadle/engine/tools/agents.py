"""The tools by which an agent lets others work for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec

from treadle.engine.agents.agents import AgentRefused, Agents, SubAgent
from treadle.engine.agents.roles import ROLES
from treadle.engine.agents.setup import depth_of
from treadle.engine.agents.states import NOT_FOUND, PENDING, word_for
from treadle.engine.conversation.input import FileUserInput, InputFiles, read_files
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

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread

R = TypeVar("R")

DEFAULT_WAIT_MS: Final = 30_000
MIN_WAIT_MS: Final = 10_000
MAX_WAIT_MS: Final = 3_600_000
MAX_TARGETS: Final = 1000
"""Each that is not known is looked for in the store."""

_TEXT: Final[JsonValue] = {"type": "string"}
_INPUT: Final[dict[str, JsonValue]] = {
    "message": {"type": "string", "description": "What to do, in words. Either this or items."},
    "items": {
        "type": "array",
        "description": "What to do, in parts: text, image, local_image, skill or mention.",
        "items": {
            "type": "object",
            "properties": dict.fromkeys(("type", "text", "image_url", "path", "name"), _TEXT),
            "additionalProperties": False,
        },
    },
}
_ROLES: Final = "\n".join(f"- {name}: {role.description}" for name, role in ROLES.items())
_TARGET: Final[JsonValue] = {"type": "string", "description": "The id that spawn_agent gave."}


def agent_tools(thread: LoadedThread) -> list[ToolHandler]:
    """The tools for agents, if the thread may have any."""
    is_on = thread.settings.features.get("multi_agent", True)
    if not is_on or depth_of(thread.meta) >= thread.settings.agents.max_depth:
        return []
    kinds = (SpawnAgent, SendInput, ResumeAgent, WaitAgent, CloseAgent)
    return [kind(thread) for kind in kinds]


class _AgentTool:
    name: str
    description: str
    properties: ClassVar[dict[str, JsonValue]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        return function_tool(self.name, self.description, self.properties, self.required)

    @property
    def _agents(self) -> Agents:
        return self._thread.services.agents

    async def _read_files(self, turn: ActiveTurn, given: Sequence[UserInput]) -> InputFiles:
        """Read the files that the input names, as far as commands of the turn may read them.

        Raises:
            ToolRefused: one cannot be read.
        """
        confinement = self._thread.approvals.confinement(turn)
        for part in given:
            if isinstance(part, FileUserInput) and not confinement.may_read(part.path):
                raise ToolRefused(f"the sandbox does not let you read `{part.path}`")
        try:
            return await read_files(given, self._thread.services.file_workers)
        except InvalidInput as error:
            raise ToolRefused(str(error)) from error

    async def _find(self, deed: AgentActivity, child_id: str) -> SubAgent:
        child = await self._agents.find(self._thread, child_id)
        if child is None:
            deed.end({child_id: NOT_FOUND}, "failed")
            raise ToolRefused(f"agent with id {child_id} not found")
        return child


class SpawnAgent(_AgentTool):
    """Begins an agent."""

    name = "spawn_agent"
    description = (
        "Let another agent work on a task beside you. Use it only if the user asked for agents, "
        "delegation or parallel work. It knows nothing of this conversation unless fork_context "
        "is true: give it all that it needs. Gives its id and its nickname."
    )

    properties: ClassVar[dict[str, JsonValue]] = {
        **_INPUT,
        "agent_type": {"type": "string", "description": f"What it is there for.\n{_ROLES}"},
        "fork_context": {
            "type": "boolean",
            "description": "Let it know what was said in this conversation so far.",
        },
        "model": {"type": "string", "description": "Another model than your own."},
        "reasoning_effort": {"type": "string", "description": "Another effort than yours."},
    }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Begin an agent and give it its task."""
        asked = read_arguments(call, SpawnArguments)
        given, settings = asked.inputs(), self._thread.settings_of(turn)
        effort = asked.reasoning_effort or settings.effort
        with AgentActivity(
            "spawnAgent",
            call,
            turn,
            prompt=words_of(given),
            model=asked.model or settings.model,
            effort=effort,
        ) as deed:
            files = await self._read_files(turn, given)
            child = _refusing(
                lambda: self._agents.spawn(
                    self._thread,
                    turn,
                    given,
                    files,
                    role=asked.agent_type,
                    model=asked.model,
                    effort=asked.reasoning_effort,
                    forks=asked.fork_context,
                )
            )
            deed.end({child.id: PENDING}, receivers=[child.id])
        return _json({"agent_id": child.id, "nickname": child.nickname})


class SendInput(_AgentTool):
    """Gives an agent more to do."""

    name = "send_input"
    description = (
        "Say something to an agent that you began: a question, a correction, the next task. It "
        "reads it when its current answer is done, or at once with interrupt."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "target": _TARGET,
        **_INPUT,
        "interrupt": {"type": "boolean", "description": "Stop what it is doing first."},
    }
    required: ClassVar[tuple[str, ...]] = ("target",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Pass the words on."""
        asked = read_arguments(call, SendArguments)
        given = asked.inputs()
        with AgentActivity("sendInput", call, turn, [asked.target], prompt=words_of(given)) as deed:
            child = await self._find(deed, asked.target)
            if asked.interrupt:
                await self._agents.interrupt(child)
            files = await self._read_files(turn, given)
            try:
                turn_id = await self._agents.send(self._thread, turn, child, given, files)
            except (AgentRefused, EngineError) as refusal:
                raise ToolRefused(str(refusal)) from refusal
            deed.end({child.id: child.state})
        return _json({"submission_id": turn_id})


class WaitAgent(_AgentTool):
    """Waits for agents."""

    name = WAIT
    description = (
        "Wait until one of these agents has finished, and learn what it said last. Waiting long "
        "is better than asking often: when the user says something meanwhile, the wait is over."
    )
    properties: ClassVar[dict[str, JsonValue]] = {
        "targets": {"type": "array", "items": _TEXT, "description": "Ids that spawn_agent gave."},
        "timeout_ms": {
            "type": "number",
            "description": f"How long at most: {MIN_WAIT_MS} to {MAX_WAIT_MS}, "
            f"{DEFAULT_WAIT_MS} if not given.",
        },
    }
    required: ClassVar[tuple[str, ...]] = ("targets",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Wait, and say who has finished."""
        asked = read_arguments(call, WaitArguments)
        if not asked.targets:
            raise ToolRefused("targets must not be empty")
        if len(asked.targets) > MAX_TARGETS:
            raise ToolRefused(f"targets must be at most {MAX_TARGETS}")
        limit = max(MIN_WAIT_MS, min(MAX_WAIT_MS, asked.timeout_ms or DEFAULT_WAIT_MS))
        with AgentActivity("wait", call, turn, asked.targets) as deed:
            found = {
                target: await self._agents.find(self._thread, target) for target in asked.targets
            }
            children = [child for child in found.values() if child is not None]
            if len(children) == len(found):
                turn.waits[call.id] = asked.targets
                await self._agents.wait(turn, children, limit / 1000)
            states = {id_: child.state if child else NOT_FOUND for id_, child in found.items()}
            is_bad = any(state.status in ("errored", "notFound") for state in states.values())
            deed.end(states, "failed" if is_bad else "completed")
        done = {
            id_: word_for(states[id_])
            for id_, child in found.items()
            if child is None or child.is_done
        }
        if not done and turn.pending_input:
            return _json({"status": {}, "timed_out": False, "interrupted_by": "the user"})
        return _json({"status": done, "timed_out": not done})


class ResumeAgent(_AgentTool):
    """Opens an agent again that was closed."""

    name = "resume_agent"
    description = "Open an agent again that was closed, so that it can be given more to do."
    properties: ClassVar[dict[str, JsonValue]] = {"id": _TARGET}
    required: ClassVar[tuple[str, ...]] = ("id",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Load it."""
        asked = read_arguments(call, ResumeArguments)
        with AgentActivity("resumeAgent", call, turn, [asked.id]) as deed:
            try:
                child = await self._agents.resume(self._thread, asked.id)
            except AgentRefused as refusal:
                deed.end({asked.id: NOT_FOUND}, "failed")
                raise ToolRefused(str(refusal)) from refusal
            deed.end({child.id: child.state})
        return _json({"status": word_for(child.state)})


class CloseAgent(_AgentTool):
    """Closes an agent."""

    name = "close_agent"
    description = (
        "Close an agent that is no longer needed, and the agents that it began. What it was doing "
        "is stopped. Gives how it was doing."
    )
    properties: ClassVar[dict[str, JsonValue]] = {"target": _TARGET}
    required: ClassVar[tuple[str, ...]] = ("target",)

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Stop it and let go of it."""
        asked = read_arguments(call, CloseArguments)
        with AgentActivity("closeAgent", call, turn, [asked.target]) as deed:
            child = await self._find(deed, asked.target)
            before = await self._agents.close(child)
            deed.end({child.id: before})
        return _json({"previous_status": word_for(before)})


def _refusing(act: Callable[[], R]) -> R:
    try:
        return act()
    except (AgentRefused, EngineError) as refusal:
        raise ToolRefused(str(refusal)) from refusal


def _json(answer: JsonValue) -> str:
    return msgspec.json.encode(answer).decode()
