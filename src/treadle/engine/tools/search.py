"""The web search tool: the provider runs it, the server only sets its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.engine.settings import RunSettings
from treadle.engine.tools.registry import Output, ToolCall, ToolRefused
from treadle.model.base import ModelTool
from treadle.model.catalog import traits_of
from treadle.protocol.base import JsonValue
from treadle.protocol.config import WebSearchLocation, WebSearchMode
from treadle.protocol.policy import DangerFullAccessSandboxPolicy

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn


class WebSearch:
    """Offers the web search of the provider."""

    name = "web_search"

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        settings = self._thread.settings
        mode = mode_of(settings)
        spec: ModelTool = {"type": "web_search", "external_web_access": mode != "cached"}
        if mode == "indexed":
            spec["indexed_web_access"] = True
        options = settings.web_search_options
        if options is not None and options.allowed_domains:
            spec["filters"] = {"allowed_domains": options.allowed_domains}
        if options is not None and options.location is not None:
            spec["user_location"] = _location(options.location)
        if options is not None and options.context_size is not None:
            spec["search_context_size"] = options.context_size
        if traits_of(settings.model).is_modern:
            spec["search_content_types"] = ["text", "image"]
        return spec

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:  # noqa: ARG002 - a tool's signature
        """Refuse the call: a provider with this tool runs it itself."""
        raise ToolRefused(f"unsupported call: {call.name}")


def mode_of(settings: RunSettings) -> WebSearchMode:
    """The search mode: as configured, otherwise `cached`, or `live` without a sandbox."""
    if settings.web_search is not None:
        return settings.web_search
    return "live" if isinstance(settings.sandbox, DangerFullAccessSandboxPolicy) else "cached"


def _location(location: WebSearchLocation) -> JsonValue:
    place = {
        "country": location.country,
        "region": location.region,
        "city": location.city,
        "timezone": location.timezone,
    }
    known = {name: value for name, value in place.items() if value is not None}
    return {"type": "approximate", **known}
