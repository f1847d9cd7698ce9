"""Requests of Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

from treadle.model.anthropic.stream import REDACTED_SEAL, THINKING_SEAL, AnthropicStream
from treadle.model.base import ModelEvent, ModelItem, ModelRequest
from treadle.model.catalog import traits_of
from treadle.model.conversation import (
    Called,
    Said,
    conversation,
    images_of,
    leading_system_texts,
    text_of,
)
from treadle.model.http.client import ProviderEndpoint
from treadle.model.listing import listed
from treadle.model.structured.schema import BOUNDS, to_strict
from treadle.model.tools import Functions, arguments_of
from treadle.protocol.base import JsonValue

API_VERSION: Final = "2023-06-01"
# Models that need a token budget for thinking; later ones choose it themselves.
_BUDGETED: Final = re.compile(r"claude-(2|3|instant|(opus|sonnet|haiku)-4(-[015])?(-?20\d{6})?$)")
_BUDGETS: Final = {"low": 4096, "medium": 10_000, "high": 20_000, "xhigh": 30_000, "max": 60_000}
_EFFORTS: Final = {"minimal": "low", "ultra": "max"}
# Models that can enforce a schema; others get it as an instruction.
_STRUCTURED: Final = re.compile(r"claude-(opus|sonnet|haiku)-(4-[5-9]|[5-9])")
_DATA_URL: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_CACHED: Final = {"cache_control": {"type": "ephemeral"}}


class AnthropicModel:
    """A provider with the Messages API."""

    def __init__(self, endpoint: ProviderEndpoint) -> None:
        self.provider_id = endpoint.provider_id
        self._endpoint = endpoint
        base_url = (endpoint.config.base_url or "").rstrip("/")
        # The address may or may not include the version.
        self._prefix = "" if base_url.endswith("/v1") else "v1/"

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request."""
        functions = Functions(request.tools)
        headers = {
            "anthropic-version": API_VERSION,
            "user-agent": request.user_agent or request.originator,
        }
        reading = AnthropicStream(functions, now=self._endpoint.now)
        body = body_of(request, functions)
        return self._endpoint.events(f"{self._prefix}messages", body, headers, reading)

    async def list_models(self) -> Sequence[str] | None:
        """Return the models that `/models` lists."""
        headers = {"anthropic-version": API_VERSION}
        return await listed(self._endpoint, f"{self._prefix}models?limit=1000", headers)

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()


def body_of(request: ModelRequest, functions: Functions) -> dict[str, JsonValue]:
    """Return the request as JSON."""
    turns = list(conversation(request.input))
    opening = leading_system_texts(turns)
    turns = turns[len(opening) :]
    max_tokens = request.max_output_tokens or traits_of(request.model).max_output_tokens
    system = [request.instructions, *opening]
    output_config: dict[str, JsonValue] = {}
    if request.output_schema is not None:
        if _STRUCTURED.match(request.model):
            output_config["format"] = _format(request.output_schema)
        else:
            system.append(_asked_for(request.output_schema))
    body: dict[str, JsonValue] = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": _messages(turns, functions),
        "stream": True,
    }
    if any(system):
        text = "\n\n".join(part for part in system if part)
        body["system"] = [{"type": "text", "text": text, **_CACHED}]
    body |= _thinking(request, turns, max_tokens, output_config)
    if output_config:
        body["output_config"] = output_config
    return body | _tools(request, functions)


def _tools(request: ModelRequest, functions: Functions) -> dict[str, JsonValue]:
    if not functions.all:
        return {}
    choice: dict[str, JsonValue] = {"type": "auto"}
    if not request.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    tools = [
        {
            "name": function.name,
            "description": function.description,
            "input_schema": function.parameters,
        }
        for function in functions.all
    ]
    return {"tools": tools, "tool_choice": choice}


def _thinking(
    request: ModelRequest,
    turns: Sequence[Said | Called],
    max_tokens: int,
    output_config: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    effort = request.effort
    if effort is None or effort == "none":
        return {}
    effort = _EFFORTS.get(effort, effort)
    if not _BUDGETED.match(request.model):
        output_config["effort"] = effort
        display = "omitted" if request.summary == "none" else "summarized"
        return {"thinking": {"type": "adaptive", "display": display}}
    last = turns[-1] if turns else None
    # A budget is rejected in the middle of a turn that began without thinking.
    if isinstance(last, Called) and not any(map(_thought, last.reasoning)):
        return {}
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), max_tokens - 1024)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= 1024 else {}


def _format(schema: JsonValue) -> JsonValue:
    return {"type": "json_schema", "schema": to_strict(schema, without=BOUNDS).schema}


def _asked_for(schema: JsonValue) -> str:
    text = msgspec.json.encode(schema).decode()
    return (
        "Your final message must be a JSON value of this JSON Schema, and nothing else: no "
        f"text around it, no code fence.\n{text}"
    )


def _messages(turns: Sequence[Said | Called], functions: Functions) -> list[JsonValue]:
    messages: list[dict[str, JsonValue]] = []
    for turn in turns:
        if isinstance(turn, Said):
            # There is no third role: later developer messages become user messages.
            _add(messages, "user", _content(turn.parts))
        else:
            _add(messages, "assistant", _assistant(turn, functions))
            results = [_result(call, turn.output_of(call)) for call in turn.calls]
            _add(messages, "user", results)
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"][-1] = {**messages[-1]["content"][-1], **_CACHED}
    return list(messages)


def _add(messages: list[dict[str, JsonValue]], role: str, content: list[JsonValue]) -> None:
    if not content:
        return
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += content
    else:
        messages.append({"role": role, "content": content})


def _assistant(turn: Called, functions: Functions) -> list[JsonValue]:
    blocks: list[JsonValue] = []
    for item in turn.items:
        match item.get("type"):
            case "reasoning":
                blocks += filter(None, [_thought(item)])
            case "message":
                text = text_of(item.get("content"))
                # White space at the end of the last message is rejected.
                blocks += [{"type": "text", "text": text.rstrip()}] if text.strip() else []
            case _:
                blocks.append(
                    {
                        "type": "tool_use",
                        "id": str(item.get("call_id")),
                        "name": functions.name_of(item),
                        "input": _object(arguments_of(item)),
                    }
                )
    return blocks


def _thought(item: ModelItem) -> JsonValue:
    """Return a thinking block with its signature; None if it came from elsewhere."""
    seal = item.get("encrypted_content")
    if not isinstance(seal, str):
        return None
    if seal.startswith(REDACTED_SEAL):
        return {"type": "redacted_thinking", "data": seal.removeprefix(REDACTED_SEAL)}
    if seal.startswith(THINKING_SEAL):
        signature = seal.removeprefix(THINKING_SEAL)
        return {
            "type": "thinking",
            "thinking": text_of(item.get("summary")),
            "signature": signature,
        }
    return None


def _result(call: ModelItem, output: JsonValue) -> JsonValue:
    content: JsonValue = _content(output) if isinstance(output, list) else text_of(output)
    return {"type": "tool_result", "tool_use_id": str(call.get("call_id")), "content": content}


def _content(parts: JsonValue) -> list[JsonValue]:
    text = text_of(parts)
    pictures = [_picture(url) for url in images_of(parts)]
    return [*pictures, *([{"type": "text", "text": text}] if text.strip() else [])]


def _picture(url: str) -> JsonValue:
    data = _DATA_URL.fullmatch(url)
    if data is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    source = {"type": "base64", "media_type": data["type"], "data": data["data"]}
    return {"type": "image", "source": source}


def _object(arguments: str) -> JsonValue:
    """Return the arguments as the object that this API requires."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}
