"""What the agent loop asks of a model, and what a model tells it while it answers.

One vocabulary for all providers: the items of the Responses API, kept whole as plain JSON because
providers add fields of their own that must come back to them unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo

ModelItem: TypeAlias = dict[str, JsonValue]
"""A `ResponseItem` in the Responses API's spelling, with whatever else the provider put in."""

ModelTool: TypeAlias = dict[str, JsonValue]
"""A tool in the Responses API's spelling: function, custom, web_search, namespace, ..."""

FOREIGN_SEAL: Final = "treadle:"
"""Begins the `encrypted_content` of reasoning that only one of our own adapters can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model: the whole history, the tools, and how to answer."""

    model: str
    instructions: str
    # The whole history, oldest first.
    input: Sequence[ModelItem]
    tools: Sequence[ModelTool] = ()
    parallel_tool_calls: bool = True
    effort: str | None = None
    summary: str | None = None
    verbosity: str | None = None
    # A JSON Schema that the final message has to fit.
    output_schema: JsonValue = None
    service_tier: str | None = None
    max_output_tokens: int | None = None
    thread_id: str
    turn_id: str
    originator: str = "treadle"
    user_agent: str = ""
    # Who asks, when it is not the main agent: "review", "compact".
    subagent: str | None = None


class ResponseUsage(Struct, frozen=True):
    """The tokens of one response; cached and written ones are among the input tokens."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class Created(Struct, frozen=True):
    """The provider has taken the request and begins to answer."""

    response_id: str | None = None


class ItemStarted(Struct, frozen=True):
    """An item begins; it has an id, and often nothing else yet."""

    item: ModelItem


class ModelTextDelta(Struct, frozen=True):
    """More text of an assistant message."""

    item_id: str
    delta: str


class ReasoningPartAdded(Struct, frozen=True):
    """A further paragraph of a reasoning summary begins."""

    item_id: str
    index: int


class ReasoningSummaryDelta(Struct, frozen=True):
    """More text of one paragraph of a reasoning summary."""

    item_id: str
    index: int
    delta: str


class ReasoningTextDelta(Struct, frozen=True):
    """More of the model's raw thoughts."""

    item_id: str
    index: int
    delta: str


class ToolInputDelta(Struct, frozen=True):
    """More of the arguments of a tool call."""

    item_id: str
    call_id: str | None
    delta: str


class ItemDone(Struct, frozen=True):
    """An item is finished: all of it, under the id that its start and its deltas had."""

    item: ModelItem


class RateLimits(Struct, frozen=True):
    """What the provider said about its limits, as `RateLimitSnapshot` spells it on the wire."""

    snapshot: JsonValue


class Rerouted(Struct, frozen=True):
    """The provider answers with another model than the one asked for."""

    to_model: str
    reason: str = "highRiskCyberActivity"


class ServerModel(Struct, frozen=True):
    """The exact name of the model that answers, where the provider gives it."""

    model: str


class Restarted(Struct, frozen=True):
    """The answer starts over after a dropped stream: forget what was not an `ItemDone`."""


class Completed(Struct, frozen=True):
    """The answer is whole; always the last event."""

    response_id: str | None = None
    usage: ResponseUsage | None = None
    # False if the provider wants to be asked again, True if it is done; None if it did not say.
    end_turn: bool | None = None


ModelEvent: TypeAlias = (
    Created
    | ItemStarted
    | ModelTextDelta
    | ReasoningPartAdded
    | ReasoningSummaryDelta
    | ReasoningTextDelta
    | ToolInputDelta
    | ItemDone
    | RateLimits
    | Rerouted
    | ServerModel
    | Restarted
    | Completed
)

PREAMBLE: Final = (Created, RateLimits, Rerouted, ServerModel)
"""Events that are not part of the answer itself, and may be repeated."""

Phase: TypeAlias = Literal["request", "stream"]
"""Where an attempt failed: before the answer began, or in the middle of it."""


class ModelError(Exception):
    """A request to a model failed: words for people, a cause for programs.

    `is_retryable` says that the same request may succeed later, `emitted` that the caller has
    already seen some of the answer.
    """

    def __init__(
        self,
        message: str,
        *,
        info: CodexErrorInfo = "other",
        http_status: int | None = None,
        retry_after_s: float | None = None,
        is_retryable: bool = False,
        emitted: bool = False,
        phase: Phase = "request",
        details: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.info = info
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.is_retryable = is_retryable
        self.emitted = emitted
        self.phase = phase
        # The provider's own words, where `message` is a summary of them.
        self.details = details


class Model(Protocol):
    """A provider of models: one attempt at an answer at a time, as a stream of events."""

    provider_id: str

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once; closing the generator gives up the request at once.

        Raises:
            ModelError: the attempt failed, at whatever point.
        """

    async def list_models(self) -> Sequence[str] | None:
        """The names that the provider itself lists, or None if it has no list."""

    async def close(self) -> None:
        """Let go of connections; the model is not used afterwards."""
