"""Arguments of the sub-agent tools, and the items that clients receive for their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec
from msgspec import Struct

from treadle.engine.tools.registry import ToolCall, ToolRefused
from treadle.engine.turn import ActiveTurn
from treadle.protocol.input import (
    ImageUserInput,
    LocalImageUserInput,
    MentionUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)
from treadle.protocol.item import (
    CollabAgentState,
    CollabAgentTool,
    CollabAgentToolCallStatus,
    CollabAgentToolCallThreadItem,
)

WAIT: Final = "wait_agent"
MAX_TARGETS: Final = 1000
"""Each that is not known is looked for in the store."""


class TaskPart(Struct):
    """One part of a task for an agent."""

    type: str = "text"
    text: str | None = None
    image_url: str | None = None
    path: str | None = None
    name: str | None = None

    def to_input(self) -> UserInput:
        """The part as input of a turn."""
        match self.type:
            case "text" if self.text:
                return TextUserInput(self.text)
            case "image" if self.image_url:
                return ImageUserInput(url=self.image_url)
            case "local_image" if self.path:
                return LocalImageUserInput(self.path)
            case "skill" if self.name and self.path:
                return SkillUserInput(self.name, self.path)
            case "mention" if self.name and self.path:
                return MentionUserInput(self.name, self.path)
            case _:
                raise ToolRefused(f"an item of type {self.type!r} is unknown or lacks a field")


class TaskArguments(Struct):
    """A task for an agent: a message, or parts."""

    message: str | None = None
    items: list[TaskPart] | None = None

    def inputs(self) -> list[UserInput]:
        """The task as input of a turn."""
        if bool(self.message) == bool(self.items):
            raise ToolRefused("provide either message or items, not empty")
        if self.message:
            return [TextUserInput(self.message)]
        return [part.to_input() for part in self.items or ()]


class SpawnArguments(TaskArguments):
    """The arguments of spawn_agent."""

    agent_type: str | None = None
    fork_context: bool = False
    model: str | None = None
    reasoning_effort: str | None = None


class SendArguments(TaskArguments, kw_only=True):
    """The arguments of send_input."""

    target: str
    interrupt: bool = False


class WaitArguments(Struct):
    """The arguments of wait_agent."""

    targets: list[str]
    timeout_ms: float | None = None

    def distinct_targets(self) -> Sequence[str]:
        """The agents to wait for, each once.

        Raises:
            ToolRefused: there is none, or there are too many.
        """
        if not self.targets:
            raise ToolRefused("targets must not be empty")
        targets = list(dict.fromkeys(self.targets))
        if len(targets) > MAX_TARGETS:
            raise ToolRefused(f"targets must be at most {MAX_TARGETS}")
        return targets


class ResumeArguments(Struct):
    """The arguments of resume_agent."""

    id: str


class CloseArguments(Struct):
    """The arguments of close_agent."""

    target: str


class AgentActivity:
    """The item of one call: publishes its start, and its end once."""

    def __init__(
        self,
        tool: CollabAgentTool,
        call: ToolCall,
        turn: ActiveTurn,
        receivers: Sequence[str] = (),
        *,
        prompt: str | None = None,
        model: str | None = None,
        effort: str | None = None,
    ) -> None:
        self._turn = turn
        self._item = CollabAgentToolCallThreadItem(
            agents_states={},
            id=call.id,
            receiver_thread_ids=list(receivers),
            sender_thread_id=turn.thread_id,
            status="inProgress",
            tool=tool,
            model=model,
            prompt=prompt,
            reasoning_effort=effort,
        )

    def __enter__(self) -> Self:
        self._turn.start_item(self._item)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_about: object) -> None:
        if self._item.status != "inProgress":
            return
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        self.end({}, "interrupted" if is_cancelled else "failed")

    def end(
        self,
        states: Mapping[str, CollabAgentState],
        status: CollabAgentToolCallStatus = "completed",
        receivers: Sequence[str] | None = None,
    ) -> None:
        """Publish the end of the call, with the states of the agents."""
        self._item = msgspec.structs.replace(
            self._item,
            agents_states=dict(states),
            status=status,
            receiver_thread_ids=list(receivers or self._item.receiver_thread_ids),
        )
        self._turn.complete_item(self._item)


def words_of(inputs: Sequence[UserInput]) -> str:
    """The text of a task; other parts are represented by a name."""
    return "\n".join(_text(part) for part in inputs)


def _text(part: UserInput) -> str:
    if isinstance(part, TextUserInput):
        return part.text
    name = part.name if isinstance(part, SkillUserInput | MentionUserInput) else "image"
    return f"[{name}]"
