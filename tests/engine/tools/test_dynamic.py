"""Which tools a client may bring, and how the model is offered them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from treadle.model.base import ModelTool
from treadle.model.scripted.model import ScriptedModel, says
from treadle.protocol.base import JsonValue

SCHEMA: JsonValue = {"type": "object", "properties": {"id": {"type": "string"}}}


def function(name: str, **changes: JsonValue) -> JsonValue:
    """A tool that stands alone, or in a namespace."""
    base = {"type": "function", "name": name, "description": "d", "inputSchema": SCHEMA}
    return {**base, **changes}


def namespace(name: str, *tools: JsonValue, description: str = "d") -> JsonValue:
    """Tools that belong together."""
    return {"type": "namespace", "name": name, "description": description, "tools": list(tools)}


@pytest.fixture
def model() -> ScriptedModel:
    """A model that has nothing to say."""
    return ScriptedModel(lambda _request: says("done"))


@pytest.fixture
async def client(home: Path, model: ScriptedModel) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    async with playing(home, model) as server, client_of(server) as client:
        yield client


LONG = "x" * 129
WIDE = "n" * 65


@pytest.mark.parametrize(
    ("tool", "path", "message"),
    [
        (function(""), ".name", "dynamic tool name must not be empty"),
        (function(" x"), ".name", "dynamic tool name has leading/trailing whitespace:  x"),
        (
            function("bad name!"),
            ".name",
            "dynamic tool name must match ^[a-zA-Z0-9_-]+$ to match Responses API: bad name!",
        ),
        (
            function(LONG),
            ".name",
            f"dynamic tool name must be at most 128 characters to match Responses API: {LONG}",
        ),
        (function("mcp"), ".name", "dynamic tool name is reserved: mcp"),
        (function("mcp__x"), ".name", "dynamic tool name is reserved: mcp__x"),
        (
            function("x", deferLoading=True),
            ".deferLoading",
            "deferred dynamic tool must include a namespace: x",
        ),
        (
            function("a", inputSchema=5),
            ".inputSchema",
            "dynamic tool input schema is not supported for a: expected an object",
        ),
        (
            function("a", inputSchema={"type": "null"}),
            ".inputSchema",
            (
                "dynamic tool input schema is not supported for a: "
                "tool input schema must not be a singleton null type"
            ),
        ),
        (
            function("a", inputSchema={"type": "object", "properties": 5}),
            ".inputSchema",
            "dynamic tool input schema is not supported for a: `properties` must be an object",
        ),
        (namespace("", function("a")), ".name", "dynamic tool namespace must not be empty"),
        (
            namespace("a b", function("a")),
            ".name",
            "dynamic tool namespace must match ^[a-zA-Z0-9_-]+$ to match Responses API: a b",
        ),
        (
            namespace(WIDE, function("a")),
            ".name",
            f"dynamic tool namespace must be at most 64 characters to match Responses API: {WIDE}",
        ),
        (namespace("mcp__a", function("a")), ".name", "dynamic tool namespace is reserved: mcp__a"),
        (
            namespace("functions", function("a")),
            ".name",
            "dynamic tool namespace collides with a reserved Responses API namespace: functions",
        ),
        (namespace("n"), ".tools", "dynamic tool namespace must contain at least one tool: n"),
        (
            namespace("n", function("a"), description="d" * 1025),
            ".description",
            "dynamic tool namespace description must be at most 1024 characters",
        ),
        (
            namespace("n", function("a"), function("a")),
            ".tools[1].name",
            "duplicate dynamic tool name in namespace n: a",
        ),
        (
            namespace("n", function("mcp__a")),
            ".tools[0].name",
            "dynamic tool name is reserved: mcp__a",
        ),
    ],
)
async def test_an_invalid_tool_is_rejected_with_the_name_of_its_field(
    client: Client, tool: JsonValue, path: str, message: str
) -> None:
    """The words are upstream's."""
    refused = await client.refusal("thread/start", {"dynamicTools": [function("good"), tool]})

    assert (refused.code, refused.message) == (-32600, message)
    assert refused.data == {"kind": "invalidParams", "path": f"dynamicTools[1]{path}"}


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([function("a"), function("a")], "duplicate dynamic tool name: a"),
        (
            [namespace("n", function("a")), namespace("n", function("b"))],
            "duplicate dynamic tool namespace: n",
        ),
    ],
)
async def test_two_tools_of_one_name_are_rejected(
    client: Client, tools: JsonValue, message: str
) -> None:
    refused = await client.refusal("thread/start", {"dynamicTools": tools})

    assert (refused.message, refused.kind) == (message, "invalidParams")


async def test_tools_on_resume_are_validated_and_nothing_changes_if_one_is_invalid(
    client: Client, model: ScriptedModel
) -> None:
    thread_id = await client.start(dynamicTools=[function("kept")])

    refused = await client.refusal(
        "thread/resume", {"threadId": thread_id, "dynamicTools": [function("mcp")]}
    )
    await client.run(thread_id)

    assert refused.data == {"kind": "invalidParams", "path": "dynamicTools[0].name"}
    assert [tool["name"] for tool in offered(model, "kept", "mcp")] == ["kept"]


def offered(model: ScriptedModel, *names: str) -> list[ModelTool]:
    """The tools of these names that the model was offered last."""
    return [tool for tool in model.requests[-1].tools if tool.get("name") in names]


def shown(name: str, parameters: JsonValue = SCHEMA) -> JsonValue:
    """A tool as the model is offered it."""
    about = {"type": "function", "name": name, "description": "d", "strict": False}
    return {**about, "parameters": parameters}


async def test_tools_of_a_namespace_are_offered_together_and_deferred_ones_are_not(
    client: Client, model: ScriptedModel
) -> None:
    hidden = function("hidden", deferLoading=True)
    space = namespace("tickets", function("find"), hidden, function("close"))
    thread_id = await client.start(dynamicTools=[function("find"), space])

    await client.run(thread_id)

    assert offered(model, "find", "tickets") == [
        shown("find"),
        {
            "type": "namespace",
            "name": "tickets",
            "description": "d",
            "tools": [shown("find"), shown("close")],
        },
    ]


async def test_the_older_flat_spelling_of_a_namespace_means_the_same(
    client: Client, model: ScriptedModel
) -> None:
    older = {"description": "d", "inputSchema": SCHEMA, "namespace": "tickets"}
    hidden = {**older, "name": "hidden", "exposeToContext": False}
    tools = [{**older, "name": "find"}, hidden, {**older, "name": "close"}]
    thread_id = await client.start(dynamicTools=tools)

    await client.run(thread_id)

    assert offered(model, "tickets") == [
        {
            "type": "namespace",
            "name": "tickets",
            "description": "Tools in the tickets namespace.",
            "tools": [shown("find"), shown("close")],
        }
    ]


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        ({}, {"type": "object", "properties": {}}),
        (True, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "wat", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ],
)
async def test_a_schema_that_providers_would_reject_is_completed(
    client: Client, model: ScriptedModel, schema: JsonValue, parameters: JsonValue
) -> None:
    thread_id = await client.start(dynamicTools=[function("a", inputSchema=schema)])

    await client.run(thread_id)

    assert offered(model, "a") == [shown("a", parameters)]


async def test_a_client_tool_cannot_replace_a_built_in_tool(
    client: Client, model: ScriptedModel
) -> None:
    thread_id = await client.start(dynamicTools=[function("view_image"), function("mine")])

    await client.run(thread_id)

    (ours, theirs) = offered(model, "view_image", "mine")
    assert ours["description"] != "d"
    assert theirs == shown("mine")


async def test_a_fork_has_the_tools_of_its_source(client: Client, model: ScriptedModel) -> None:
    thread_id = await client.start(dynamicTools=[function("mine")])
    await client.run(thread_id)

    fork = await client.request("thread/fork", {"threadId": thread_id})
    await client.run(fork["thread"]["id"])

    assert offered(model, "mine") == [shown("mine")]
