"""Chat Completions requests for OpenAI, Ollama, vLLM, LM Studio and many others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence

from treadle.model.base import ModelEvent, ModelItem, ModelRequest
from treadle.model.chat.stream import CHAT_SEAL, ChatStream
from treadle.model.conversation import (
    Called,
    Said,
    conversation,
    images_of,
    leading_system_texts,
    raw_reasoning_of,
    text_of,
)
from treadle.model.http.client import ProviderEndpoint
from treadle.model.listing import listed
from treadle.model.responses.request import OUTPUT_SCHEMA_NAME
from treadle.model.structured.schema import to_strict
from treadle.model.tools import Functions, arguments_of
from treadle.protocol.base import JsonValue


class ChatModel:
    """A provider with the Chat Completions API."""

    def __init__(self, endpoint: ProviderEndpoint) -> None:
        self.provider_id = endpoint.provider_id
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request."""
        functions = Functions(request.tools)
        headers = {"user-agent": request.user_agent or request.originator}
        reading = ChatStream(functions, now=self._endpoint.now)
        body = body_of(request, functions)
        return self._endpoint.events("chat/completions", body, headers, reading)

    async def list_models(self) -> Sequence[str] | None:
        """Return the models that `/models` lists."""
        return await listed(self._endpoint)

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()


def body_of(request: ModelRequest, functions: Functions) -> dict[str, JsonValue]:
    """Return the request as JSON; unset options are omitted, since servers differ."""
    body: dict[str, JsonValue] = {
        "model": request.model,
        "messages": messages_of(request, functions),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if functions.all:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": function.name,
                    "description": function.description,
                    "parameters": function.parameters,
                    **({"strict": True} if function.strict else {}),
                },
            }
            for function in functions.all
        ]
        body["tool_choice"] = "auto"
        body["parallel_tool_calls"] = request.parallel_tool_calls
    given = {
        "reasoning_effort": request.effort,
        "verbosity": request.verbosity,
        "service_tier": request.service_tier,
        "max_completion_tokens": request.max_output_tokens,
        "response_format": _response_format(request.output_schema),
    }
    return body | {name: value for name, value in given.items() if value is not None}


def _response_format(schema: JsonValue) -> JsonValue:
    if schema is None:
        return None
    strict = to_strict(schema)
    wanted = {
        "name": OUTPUT_SCHEMA_NAME,
        "schema": strict.schema if strict.is_faithful else schema,
        "strict": strict.is_faithful,
    }
    return {"type": "json_schema", "json_schema": wanted}


def messages_of(request: ModelRequest, functions: Functions) -> list[JsonValue]:
    """Return the history as messages; leading developer messages join the instructions."""
    turns = list(conversation(request.input))
    opening = leading_system_texts(turns)
    turns = turns[len(opening) :]
    messages: list[JsonValue] = []
    system = "\n\n".join(text for text in (request.instructions, *opening) if text)
    if system:
        # Many chat templates allow a single system message, at the very start.
        messages.append({"role": "system", "content": system})
    last_user = max((at for at, turn in enumerate(turns) if isinstance(turn, Said)), default=-1)
    for at, turn in enumerate(turns):
        if isinstance(turn, Said):
            messages.append({"role": turn.role, "content": _content(turn.parts)})
        else:
            messages += _assistant(turn, functions, is_recent=at > last_user)
    return messages


def _assistant(turn: Called, functions: Functions, *, is_recent: bool) -> Iterable[JsonValue]:
    message: dict[str, JsonValue] = {"role": "assistant", "content": turn.text or None}
    if is_recent:
        # Models that reason between calls need their reasoning back until the turn is over.
        message |= _reasoning_fields(turn.reasoning)
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": str(call.get("call_id")),
                "type": "function",
                "function": {"name": functions.name_of(call), "arguments": arguments_of(call)},
            }
            for call in turn.calls
        ]
    yield message
    pictures: list[JsonValue] = []
    for call in turn.calls:
        output = turn.output_of(call)
        yield {"role": "tool", "tool_call_id": str(call.get("call_id")), "content": text_of(output)}
        pictures += [_image(url) for url in images_of(output)]
    if pictures:
        # Only user messages may contain images here.
        yield {"role": "user", "content": pictures}


def _reasoning_fields(reasoning: Sequence[ModelItem]) -> dict[str, JsonValue]:
    fields: dict[str, str] = {}
    for item in reasoning:
        seal = item.get("encrypted_content")
        if isinstance(seal, str) and seal.startswith(CHAT_SEAL):
            name = seal.removeprefix(CHAT_SEAL)
            fields[name] = fields.get(name, "") + raw_reasoning_of(item)
    return dict(fields)


def _content(parts: list[JsonValue]) -> JsonValue:
    pictures = images_of(parts)
    if not pictures:
        return text_of(parts)
    text = text_of(parts)
    opening = [{"type": "text", "text": text}] if text else []
    return [*opening, *(_image(url) for url in pictures)]


def _image(url: str) -> JsonValue:
    return {"type": "image_url", "image_url": {"url": url}}
