"""A deferred tool is offered once the model has found it, in the form that the model knows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.mcp import settled, stdio
from tests.harness.model_server import calls as server_calls
from tests.harness.questions import answer, question
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, staged
from treadle.engine.tools.tool_search import ToolSearch
from treadle.model.scripted.model import ScriptedModel, calls, gives, says
from treadle.model.scripted.script import Response
from treadle.model.tools import Functions
from treadle.protocol.base import JsonValue
from treadle.support.concurrency.workers import Workers


def tool(name: str, description: str, **properties: JsonValue) -> JsonValue:
    """A deferred tool."""
    return {
        "type": "function",
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
        "deferLoading": True,
    }


TICKETS = {
    "type": "namespace",
    "name": "desk",
    "description": "Where people get help",
    "tools": [
        tool("find_ticket", "Look up one ticket by its id", id={"type": "string"}),
        tool("closeTicket", "Mark as done", id={"type": "string"}),
        tool("listPeople", "Everybody in a team", team={"description": "Name of the crew"}),
    ],
}


@asynccontextmanager
async def conversing(
    home: Path, responses: Sequence[Response], model: str = "mock-model"
) -> AsyncIterator[tuple[Client, str, ScriptedModel]]:
    """A client and its thread with deferred tools."""
    scripted = ScriptedModel(responses)
    async with playing(home, scripted) as server, client_of(server) as client:
        yield client, await client.start(dynamicTools=[TICKETS], model=model), scripted


def search(query: JsonValue, call_id: str = "s1") -> Response:
    """A search in the form that modern models have for it."""
    return gives(
        {
            "type": "tool_search_call",
            "call_id": call_id,
            "execution": "client",
            "arguments": query,
            "status": "completed",
        }
    )


def last_output(model: ScriptedModel) -> JsonValue:
    """The newest item that the model was shown."""
    return model.requests[-1].input[-1]


def names(model: ScriptedModel) -> list[str]:
    """The deferred tools that were offered with the last request."""
    spaces = [tool for tool in model.requests[-1].tools if tool.get("name") == "desk"]
    return [tool["name"] for space in spaces for tool in space["tools"]]


async def test_a_model_without_native_search_searches_by_a_function(home: Path) -> None:
    script: list[Response] = [
        calls("tool_search", {"query": "ticket id"}, call_id="s1"),
        says("done"),
    ]
    async with conversing(home, script) as (client, thread_id, model):
        await client.run(thread_id)

        first = model.requests[0]
        (offered,) = [tool for tool in first.tools if tool.get("name") == "tool_search"]
        assert offered["type"] == "function"
        assert not any(tool.get("name") == "desk" for tool in first.tools)
        output = last_output(model)
        assert output["type"] == "function_call_output"
        assert [found["name"] for found in json.loads(output["output"])["tools"]] == [
            "find_ticket",
            "closeTicket",
        ]
        assert names(model) == ["find_ticket", "closeTicket"]


async def test_a_found_tool_can_be_called_and_is_offered_after_a_restart(
    home: Path,
) -> None:
    script: list[Response] = [
        calls("tool_search", {"query": "the crew"}, call_id="s1"),
        calls("listPeople", {"team": "x"}, call_id="c1", namespace="desk"),
        says("done"),
    ]
    async with conversing(home, script) as (client, thread_id, model):
        turn_id = await client.start_turn(thread_id)
        asked = await question(client, "item/tool/call")
        result = {"contentItems": [{"type": "inputText", "text": "Ada"}], "success": True}
        await answer(client, asked, result)
        await client.end_of(turn_id)

        assert (asked["params"]["namespace"], asked["params"]["tool"]) == ("desk", "listPeople")
        assert last_output(model)["output"] == "Ada"
        assert names(model) == ["listPeople"]

    later = ScriptedModel([says("again")])
    async with playing(home, later) as server, client_of(server) as client:
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)

        assert names(later) == ["listPeople"]


async def test_a_model_with_native_search_gets_the_tools_as_its_output(home: Path) -> None:
    script = [search({"query": "close", "limit": 1}), says("done")]
    async with conversing(home, script, "gpt-5.5") as (client, thread_id, model):
        await client.run(thread_id)

        first = model.requests[0]
        (offered,) = [tool for tool in first.tools if tool["type"] == "tool_search"]
        assert offered["execution"] == "client"
        assert last_output(model) == {
            "type": "tool_search_output",
            "call_id": "s1",
            "status": "completed",
            "execution": "client",
            "tools": [
                {
                    "type": "namespace",
                    "name": "desk",
                    "description": "Where people get help",
                    "tools": [
                        {
                            "type": "function",
                            "name": "closeTicket",
                            "description": "Mark as done",
                            "strict": False,
                            "defer_loading": True,
                            "parameters": {
                                "type": "object",
                                "properties": {"id": {"type": "string"}},
                            },
                        }
                    ],
                }
            ],
        }
        # The provider reads them from the output; offering them as well would offer them twice.
        assert names(model) == []


async def test_tools_that_one_model_found_are_offered_to_the_next_model(home: Path) -> None:
    script = [search({"query": "close", "limit": 1}), says("done"), says("hello")]
    async with conversing(home, script, "gpt-5.5") as (client, thread_id, model):
        await client.run(thread_id)
        await client.run(thread_id, model="mock-model")

        assert names(model) == ["closeTicket"]


@pytest.mark.parametrize("arguments", [{"query": " "}, {"query": "x", "limit": 0}, {}, None])
async def test_an_empty_search_finds_nothing(home: Path, arguments: JsonValue) -> None:
    script = [search(arguments), says("done")]
    async with conversing(home, script, "gpt-5.5") as (client, thread_id, model):
        await client.run(thread_id)

        assert last_output(model)["tools"] == []


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"query": ""}, "query must not be empty"),
        ({"query": "x", "limit": 0}, "limit must be greater than zero"),
        ({"query": "zeppelin"}, '{"tools":[]}'),
    ],
)
async def test_an_empty_search_by_function_is_answered_with_the_reason(
    home: Path, arguments: JsonValue, output: str
) -> None:
    async with conversing(home, [calls("tool_search", arguments), says("done")]) as (
        client,
        thread_id,
        model,
    ):
        await client.run(thread_id)

        assert last_output(model)["output"] == output
        assert names(model) == []


async def test_without_deferred_tools_there_is_no_search(home: Path) -> None:
    model = ScriptedModel([says("done")])
    async with playing(home, model) as server, client_of(server) as client:
        await client.run(await client.start(model="gpt-5.5"))

        assert "tool_search" not in str(model.requests[0].tools)


async def test_tools_of_an_mcp_server_can_be_deferred_and_work_once_found(
    home: Path,
) -> None:
    async with staged(home) as stage:
        deferred = "features.tool_search_always_defer_mcp_tools = true"
        stage.configure(f"{deferred}\n{stdio('near')}")
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await settled(client, "near")
        stage.model.plays(
            server_calls("tool_search", {"query": "say it again", "limit": 1}, "s1"),
            server_calls("mcp__near__echo", {"text": "hello"}, "c1"),
        )
        await client.run(thread_id)

        offered = [
            [tool["name"] for tool in asked.body["tools"] if tool.get("name", "")[:5] == "mcp__"]
            for asked in stage.model.requests
        ]
        assert offered == [[], ["mcp__near__echo"], ["mcp__near__echo"]]
        assert "echo: hello" in str(stage.model.requests[-1].outputs()["c1"])


def test_a_provider_that_supports_only_functions_gets_the_search_as_one() -> None:
    search = ToolSearch([], Workers("texts", 1), is_native=True).spec()

    (made,) = Functions([search]).all

    assert (made.name, made.tool, made.parameters) == (
        "tool_search",
        "tool_search",
        search["parameters"],
    )
