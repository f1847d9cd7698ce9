"""The interface between the agent loop and a model: requests and response events.

All providers share the items of the Responses API, kept whole as plain JSON because providers add
their own fields, which must be returned to them unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo

ModelItem: TypeAlias = dict[str, JsonValue]
"""A `ResponseItem` in the form of the Responses API, with any extra fields of the provider."""

ModelTool: TypeAlias = dict[str, JsonValue]
"""A tool in the form of the Responses API: function, custom, web_search, namespace, ..."""

FOREIGN_SEAL: Final = "treadle:"
"""Prefix of the `encrypted_content` of reasoning that only our own adapters can use."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request to a model: the whole history, the tools, and the options."""

    model: str
    instructions: str
    # The whole history, oldest first.
    input: Sequence[ModelItem]
    tools: Sequence[ModelTool] = ()
    parallel_tool_calls: bool = True
    effort: str | None = None
    summary: str | None = None
    verbosity: str | None = None
    # A JSON Schema for the final message.
    output_schema: JsonValue = None
    service_tier: str | None = None
    max_output_tokens: int | None = None
    thread_id: str
    turn_id: str
    originator: str = "treadle"
    user_agent: str = ""
    # The caller, if it is not the main agent: "review", "compact".
    subagent: str | None = None


class ResponseUsage(Struct, frozen=True):
    """The tokens of one response; input tokens include cached and cache-writing ones."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


MAX_TOKENS: Final = 10**12
"""The most tokens that a response may report of a kind; the totals of a thread stay storable."""


def count_of(usage: JsonValue, name: str) -> int:
    """Return a number of tokens that a provider reports, within its possible range."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return int(min(max(0, value), MAX_TOKENS)) if isinstance(value, int | float) else 0


class Created(Struct, frozen=True):
    """The provider has accepted the request and begins to respond."""

    response_id: str | None = None


class ItemStarted(Struct, frozen=True):
    """An item starts; it has an id, and often nothing else yet."""

    item: ModelItem


class ModelTextDelta(Struct, frozen=True):
    """More text of an assistant message."""

    item_id: str
    delta: str


class ReasoningPartAdded(Struct, frozen=True):
    """A new paragraph of a reasoning summary starts."""

    item_id: str
    index: int


class ReasoningSummaryDelta(Struct, frozen=True):
    """More text of one paragraph of a reasoning summary."""

    item_id: str
    index: int
    delta: str


class ReasoningTextDelta(Struct, frozen=True):
    """More of the model's raw reasoning."""

    item_id: str
    index: int
    delta: str


class ToolInputDelta(Struct, frozen=True):
    """More of the arguments of a tool call."""

    item_id: str
    call_id: str | None
    delta: str


class ItemDone(Struct, frozen=True):
    """An item is finished: its whole content, under the id of its start and its deltas."""

    item: ModelItem


class RateLimits(Struct, frozen=True):
    """The provider's rate limits, as a `RateLimitSnapshot` of the wire."""

    snapshot: JsonValue


class Rerouted(Struct, frozen=True):
    """The provider responds with another model than the requested one."""

    to_model: str
    reason: str = "highRiskCyberActivity"


class ServerModel(Struct, frozen=True):
    """The exact name of the responding model, if the provider reports it."""

    model: str


class Restarted(Struct, frozen=True):
    """The response starts over after a dropped stream: discard all that was not an `ItemDone`."""


class Completed(Struct, frozen=True):
    """The response is complete; always the last event."""

    response_id: str | None = None
    usage: ResponseUsage | None = None
    # False if the provider wants another request, True if it is done; None if unknown.
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
"""Events that are not part of the response itself, and may be repeated."""

Phase: TypeAlias = Literal["request", "stream"]
"""Where an attempt failed: before the response began, or in the middle of it."""


class ModelError(Exception):
    """A request to a model failed: a message for people, fields for programs.

    `is_retryable`: the same request may succeed later. `emitted`: the caller has already received
    part of the response.
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
        # The provider's own text, if `message` summarises it.
        self.details = details


class Model(Protocol):
    """A provider of models: makes one attempt at a time, as a stream of events."""

    provider_id: str

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request; closing the generator cancels it at once.

        Raises:
            ModelError: the attempt failed, at any point.
        """

    async def list_models(self) -> Sequence[str] | None:
        """The model names that the provider lists, or None if it has no list."""

    async def close(self) -> None:
        """Close connections; the model is not used afterwards."""
