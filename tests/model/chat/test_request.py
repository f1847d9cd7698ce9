"""Requests to Chat Completions."""

from __future__ import annotations

from tests.model.double import request, user
from treadle.model.chat.request import body_of
from treadle.model.tools import Functions
from treadle.protocol.base import JsonValue

TOOLS: JsonValue = [
    {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}},
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edit.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {
        "type": "namespace",
        "name": "agents",
        "tools": [{"type": "function", "name": "spawn", "strict": True}],
    },
    {"type": "web_search"},
]


def test_a_history_becomes_messages() -> None:
    history = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
            ],
        },
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "old"}],
            "encrypted_content": "treadle:chat:reasoning",
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "2", "name": "apply_patch", "input": "P"},
        {
            "type": "function_call",
            "call_id": "3",
            "namespace": "agents",
            "name": "spawn",
            "arguments": "{}",
        },
        {"type": "custom_tool_call_output", "call_id": "2", "output": "patched"},
        {
            "type": "function_call_output",
            "call_id": "1",
            "output": [
                {"type": "input_text", "text": "seen"},
                {"type": "input_image", "image_url": "http://x/y.png"},
            ],
        },
        {"type": "function_call_output", "call_id": "orphan", "output": "?"},
        user("go on"),
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "new"}],
            "encrypted_content": "treadle:chat:reasoning_content",
        },
        {"type": "function_call", "call_id": "4", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "4", "output": "fine"},
    ]
    body = body_of(request(*history, tools=TOOLS), Functions(TOOLS))
    assert body["messages"] == [
        {"role": "system", "content": "be brief\n\nD"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ],
        },
        {
            "role": "assistant",
            "content": "A",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a":1}'},
                },
                {
                    "id": "2",
                    "type": "function",
                    "function": {"name": "apply_patch", "arguments": '{"input":"P"}'},
                },
                {
                    "id": "3",
                    "type": "function",
                    "function": {"name": "agents__spawn", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
        {"role": "tool", "tool_call_id": "2", "content": "patched"},
        {"role": "tool", "tool_call_id": "3", "content": "aborted"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}],
        },
        {"role": "user", "content": "go on"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "new",
            "tool_calls": [
                {"id": "4", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "4", "content": "fine"},
    ]


def test_tools_become_functions() -> None:
    tools = body_of(request(tools=TOOLS), Functions(TOOLS))["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["f", "apply_patch", "agents__spawn"]
    assert tools[1]["function"]["parameters"]["required"] == ["input"]
    assert "start: x" in tools[1]["function"]["description"]
    assert tools[2]["function"]["strict"] is True


def test_only_requested_options_are_sent() -> None:
    plain = body_of(request(), Functions([]))
    assert set(plain) == {"model", "messages", "stream", "stream_options"}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    model_request = request(effort="low", output_schema=schema, max_output_tokens=5)
    body = body_of(model_request, Functions([]))
    assert (body["reasoning_effort"], body["max_completion_tokens"]) == ("low", 5)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "codex_output_schema",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"a": {"type": ["string", "null"]}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }
