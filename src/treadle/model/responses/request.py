"""Requests of the Responses API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

from treadle.model.base import FOREIGN_SEAL, ModelEvent, ModelItem, ModelRequest
from treadle.model.http.client import ProviderEndpoint
from treadle.model.listing import listed
from treadle.model.responses.stream import ResponsesStream
from treadle.model.structured.schema import to_strict
from treadle.protocol.base import JsonValue

# Ids that the service itself could have assigned; it rejects others.
_ID_PREFIXES: Final = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "web_search_call": "ws_",
    "local_shell_call": "lsh_",
}
OUTPUT_SCHEMA_NAME: Final = "codex_output_schema"


class ResponsesModel:
    """A provider with the Responses API."""

    def __init__(self, endpoint: ProviderEndpoint) -> None:
        self.provider_id = endpoint.provider_id
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request."""
        reading = ResponsesStream(request.model, now=self._endpoint.now)
        return self._endpoint.events("responses", body_of(request), headers_of(request), reading)

    async def list_models(self) -> Sequence[str] | None:
        """Return the models that `/models` lists."""
        return await listed(self._endpoint)

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()


def headers_of(request: ModelRequest) -> dict[str, str]:
    """Return the headers for caller and thread, with the names of old and new servers."""
    metadata = {"session_id": request.thread_id, "turn_id": request.turn_id}
    headers = {
        "session_id": request.thread_id,
        "session-id": request.thread_id,
        "thread-id": request.thread_id,
        "x-client-request-id": request.thread_id,
        "x-codex-turn-metadata": msgspec.json.encode(metadata).decode(),
        "originator": request.originator,
        "user-agent": request.user_agent or request.originator,
    }
    if request.subagent is not None:
        headers["x-openai-subagent"] = request.subagent
    return headers


def body_of(request: ModelRequest) -> dict[str, JsonValue]:
    """Return the request as JSON."""
    reasoning = _reasoning(request)
    body: dict[str, JsonValue] = {
        "model": request.model,
        "instructions": request.instructions,
        "input": [sent for item in request.input if (sent := _outgoing(item)) is not None],
        "tools": list(request.tools),
        "tool_choice": "auto",
        "parallel_tool_calls": request.parallel_tool_calls,
        "reasoning": reasoning,
        "store": False,
        "stream": True,
        "include": [] if reasoning is None else ["reasoning.encrypted_content"],
        "prompt_cache_key": request.thread_id,
    }
    text = _text(request)
    if text:
        body["text"] = text
    if request.service_tier is not None:
        tier = request.service_tier
        # The service has another name for the tier that users know as "fast".
        body["service_tier"] = "priority" if tier == "fast" else tier
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    return body


def _reasoning(request: ModelRequest) -> dict[str, JsonValue] | None:
    summary = None if request.summary == "none" else request.summary
    if request.effort is None and summary is None:
        return None
    given = {"effort": request.effort, "summary": summary}
    return {name: value for name, value in given.items() if value is not None}


def _text(request: ModelRequest) -> dict[str, JsonValue]:
    text: dict[str, JsonValue] = {}
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    if request.output_schema is not None:
        strict = to_strict(request.output_schema)
        text["format"] = {
            "type": "json_schema",
            "strict": strict.is_faithful,
            "schema": strict.schema if strict.is_faithful else request.output_schema,
            "name": OUTPUT_SCHEMA_NAME,
        }
    return text


def _outgoing(item: ModelItem) -> ModelItem | None:
    """Return an item as the service accepts it; None if it cannot."""
    kind = item.get("type")
    dropped: set[str] = set()
    prefix = _ID_PREFIXES.get(str(kind))
    if prefix is not None and not str(item.get("id")).startswith(prefix):
        dropped.add("id")
    if kind == "reasoning":
        sealed = item.get("encrypted_content")
        if isinstance(sealed, str) and sealed.startswith(FOREIGN_SEAL):
            return None
        # Raw reasoning is for the reader; an id without encrypted content would not be found.
        dropped |= {"content"} if sealed else {"content", "id"}
    if not dropped & item.keys():
        return item
    return {name: value for name, value in item.items() if name not in dropped}
