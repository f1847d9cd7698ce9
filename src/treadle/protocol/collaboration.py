"""Collaboration modes and delegation to other agents."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, SnakeOneOf, SnakeValue, Value
from treadle.protocol.model import ReasoningEffort

ModeKind = Literal["plan", "default"]


class Settings(SnakeValue, frozen=True):
    """The model, effort and instructions of a mode; spelled in snake_case."""

    model: str
    developer_instructions: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class CollaborationMode(Value, frozen=True):
    """How the agent works with the user, such as planning first, and with which model."""

    mode: ModeKind
    settings: Settings


class CollaborationModeListParams(Params, frozen=True):
    """List the built-in modes; there are too few for pages."""


class CollaborationModeMask(SnakeValue, frozen=True):
    """A built-in mode and the settings it changes; null leaves a setting unchanged."""

    name: str
    mode: ModeKind | None = None
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class CollaborationModeListResponse(Value, frozen=True):
    """The built-in modes, without their developer instructions."""

    data: list[CollaborationModeMask]


class CustomMultiAgentMode(SnakeOneOf, frozen=True):
    """A delegation policy from the configuration that replaces the built-in ones."""

    custom: str | None = None


MultiAgentMode = Literal["explicitRequestOnly", "proactive"] | CustomMultiAgentMode
"""How readily an agent delegates work to other agents."""
