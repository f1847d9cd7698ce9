"""Collaboration modes and how freely an agent may delegate."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, SnakeOneOf, SnakeValue, Value
from treadle.protocol.model import ReasoningEffort

ModeKind = Literal["plan", "default"]


class Settings(SnakeValue, frozen=True):
    """The model, effort and instructions that go with a mode; spelled in snake_case."""

    model: str
    developer_instructions: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class CollaborationMode(Value, frozen=True):
    """How the agent works with the user: planning first or simply doing, and on which model."""

    mode: ModeKind
    settings: Settings


class CollaborationModeListParams(Params, frozen=True):
    """Ask for the built-in modes; there are too few to page through."""


class CollaborationModeMask(SnakeValue, frozen=True):
    """A built-in mode and the settings it would change; null leaves a setting alone."""

    name: str
    mode: ModeKind | None = None
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class CollaborationModeListResponse(Value, frozen=True):
    """The built-in modes, without their developer instructions."""

    data: list[CollaborationModeMask]


class CustomMultiAgentMode(SnakeOneOf, frozen=True):
    """A delegation policy from the configuration in place of the built-in ones."""

    custom: str | None = None


MultiAgentMode = Literal["explicitRequestOnly", "proactive"] | CustomMultiAgentMode
"""How readily an agent hands work to other agents."""
