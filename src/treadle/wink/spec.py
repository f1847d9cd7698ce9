"""The specification and the outcome of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weakincentives import BudgetTracker
from weakincentives.runtime import TokenUsage

from treadle.client.events import Event
from treadle.protocol.base import JsonValue
from treadle.wink.config import CodexAppServerClientConfig, CodexAppServerModelConfig
from treadle.wink.skills import SkillSet
from treadle.wink.turn import RunningTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """The parameters of an evaluation besides its prompt."""

    config: CodexAppServerClientConfig
    model: CodexAppServerModelConfig
    cwd: str
    workspace_fingerprint: str | None
    output_schema: JsonValue
    skills: SkillSet
    tracker: BudgetTracker | None
    on_event: Callable[[Event], object] | None
    on_turn: Callable[[RunningTurn], object] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The agent's last message, and the usage of all turns."""

    text: str
    usage: TokenUsage | None
