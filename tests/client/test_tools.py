"""Functions as tools: what the model sees of them, and the results it gets."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from tests.client.conftest import Reach
from tests.client.fake import THREAD, TURN
from treadle import Image, Tool, ToolContext, ToolError, tool
from treadle.client.tools import ToolLike, make_tool
from treadle.protocol.base import JsonValue
from treadle.protocol.tool import InputTextDynamicToolCallOutputContentItem

PNG = b"\x89PNG"


@dataclasses.dataclass
class Place:
    """Somewhere."""

    name: str
    zoom: int = 3


class Visitor(BaseModel):
    name: str
    age: int | None = None


class Options(TypedDict, total=False):
    loud: bool


def look_up(
    place: Place,
    visitor: Visitor,
    unit: Literal["c", "f"] = "c",
    tags: Annotated[list[str] | None, msgspec.Meta(description="Any number")] = None,
    options: Options | None = None,
) -> str:
    """Look up the weather.

    It may rain.

    Args:
        place: Where to look,
            as people call it.
        visitor: Who asks.
        unit (str): Celsius or Fahrenheit.
        tags: Not read: the annotation has its own words.
        options: More.

    Returns:
        Words.
    """
    return f"{place.name} {place.zoom} {visitor.name} {unit} {tags} {options}"


def test_a_schema_comes_from_the_signature_and_the_docstring() -> None:
    made = make_tool(look_up)
    assert (made.name, made.description) == ("look_up", "Look up the weather.\n\nIt may rain.")
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "place": {
                "title": "Place",
                "description": "Where to look, as people call it.",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "zoom": {"type": "integer", "default": 3},
                },
                "required": ["name"],
            },
            "visitor": {
                "title": "Visitor",
                "description": "Who asks.",
                "type": "object",
                "properties": {
                    "name": {"title": "Name", "type": "string"},
                    "age": {
                        "title": "Age",
                        "anyOf": [{"type": "integer"}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["name"],
            },
            "unit": {
                "description": "Celsius or Fahrenheit.",
                "enum": ["c", "f"],
                "default": "c",
            },
            "tags": {
                "description": "Any number",
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "default": None,
            },
            "options": {
                "description": "More.",
                "anyOf": [
                    {
                        "title": "Options",
                        "type": "object",
                        "properties": {"loud": {"type": "boolean"}},
                        "required": [],
                    },
                    {"type": "null"},
                ],
                "default": None,
            },
        },
        "required": ["place", "visitor"],
        "additionalProperties": False,
    }


def untyped(x) -> str:  # type: ignore[no-untyped-def]
    return str(x)


def many(*args: int) -> str:
    return str(args)


@pytest.mark.parametrize("function", [untyped, many])
def test_a_function_that_cannot_be_described_is_refused_when_it_is_registered(
    function: object,
) -> None:
    with pytest.raises(TypeError):
        make_tool(function)  # type: ignore[arg-type]  # that is what is tested


async def raises(text: str) -> str:
    """Fail."""
    raise ValueError(text)


def regrets() -> str:
    """Fail on purpose."""
    raise ToolError("not today")


@tool(name="where", description="Return the ids.")
async def where(context: ToolContext, deep: bool = False) -> dict[str, object]:
    return {"thread": context.thread_id, "turn": context.turn_id, "deep": deep}


def draws(folder: Path) -> list[object]:
    """Draw."""
    return ["a picture:", Image(PNG), Image(folder), Image("https://x/y.png")]


def lists() -> list[int]:
    """Count."""
    return [1, 2]


def nothing() -> None:
    """Do nothing."""


def models() -> Visitor:
    """Return a model."""
    return Visitor(name="v")


async def plain(arguments: JsonValue) -> str:
    return json.dumps(arguments)


PLAIN = Tool(
    name="linear_graphql", description="Raw", input_schema={"type": "object"}, function=plain
)
TOOLS: list[ToolLike] = [look_up, raises, regrets, where, draws, lists, nothing, models, PLAIN]


def text(value: str) -> JsonValue:
    return {"type": "inputText", "text": value}


def image(url: str) -> JsonValue:
    return {"type": "inputImage", "imageUrl": url}


async def test_calls_are_served_and_failures_are_reported_to_the_model(
    in_memory: Reach, tmp_path: Path
) -> None:
    """Sync and async functions, images, errors, and unknown tools."""
    picture = tmp_path / "p.gif"
    picture.write_bytes(PNG)
    place = {"place": {"name": "Ulm"}, "visitor": {"name": "v"}, "options": {"loud": True}}
    calls = [
        ("look_up", place),
        ("look_up", {"place": {"name": 5}, "visitor": {"name": "v"}}),
        ("raises", {"text": "oops"}),
        ("regrets", {}),
        ("where", {"deep": True}),
        ("draws", {"folder": str(picture)}),
        ("lists", None),
        ("nothing", {}),
        ("models", {}),
        ("linear_graphql", {"query": "{}"}),
        ("unknown", {}),
    ]
    tool_calls = [
        ("item/tool/call", {"tool": name, "arguments": arguments, "callId": f"call-{name}"})
        for name, arguments in calls
    ]
    async with in_memory("asks") as (client, log), client:
        thread = await client.start_thread(tools=TOOLS)
        await thread.run(json.dumps(tool_calls))
    (started,) = log.calls("thread/start")
    assert [spec["name"] for spec in started["dynamicTools"]] == [
        "look_up", "raises", "regrets", "where", "draws", "lists", "nothing", "models",
        "linear_graphql",
    ]  # fmt: skip
    answers = list(log.answers().values())
    gif = "data:image/gif;base64,iVBORw=="
    png = "data:image/png;base64,iVBORw=="
    ids = json.dumps({"thread": THREAD, "turn": TURN, "deep": True}, separators=(",", ":"))
    assert [(each["success"], each["contentItems"]) for each in answers] == [
        (True, [text("Ulm 3 v c None {'loud': True}")]),
        (False, [text("ValueError: Expected `str`, got `int` - at `$.place.name`")]),
        (False, [text("ValueError: oops")]),
        (False, [text("not today")]),
        (True, [text(ids)]),
        (True, [text("a picture:"), image(png), image(gif), image("https://x/y.png")]),
        (True, [text("[1,2]")]),
        (True, [text("")]),
        (True, [text('{"name":"v","age":null}')]),
        (True, [text('{"query": "{}"}')]),
        (False, [text("Unsupported dynamic tool 'unknown'.")]),
    ]


def exits() -> str:
    """Exit the program, as argument parsers do."""
    sys.exit(3)


async def exits_too() -> str:
    """Exit in a coroutine."""
    sys.exit("no such option")


async def is_left_alone() -> str:
    """Wait for a task that is cancelled."""
    task = asyncio.ensure_future(asyncio.Event().wait())  # noqa: TID251 - to be cancelled at once
    task.cancel()
    await task
    return "never"


def half() -> str:
    """Return a lone surrogate, as a file name may contain."""
    return os.fsdecode(b"a\xff")


def halves() -> list[str]:
    """Return several of them."""
    return [half()]


def complains() -> str:
    """Raise an error with one."""
    raise ToolError(half())


async def test_whatever_a_tool_does_the_server_gets_an_answer(in_memory: Reach) -> None:
    tools: list[ToolLike] = [exits, exits_too, is_left_alone, half, halves, complains]
    names = [getattr(each, "__name__", "") for each in tools]
    tool_calls = [["item/tool/call", {"tool": n, "arguments": {}, "callId": n}] for n in names]
    async with in_memory("asks") as (client, log), client:
        thread = await client.start_thread(tools=tools)
        await thread.run(json.dumps(tool_calls))
    answers = list(log.answers().values())
    assert [(each["success"], each["contentItems"]) for each in answers] == [
        (False, [text("RuntimeError: SystemExit: 3")]),
        (False, [text("RuntimeError: SystemExit: no such option")]),
        (False, [text("RuntimeError: the function awaited something that was cancelled")]),
        (True, [text("a\ufffd")]),
        (True, [text('["a\\udcff"]')]),
        (False, [text("a\ufffd")]),
    ]


async def test_tools_of_the_client_are_offered_in_each_thread_and_stay_functions(
    in_memory: Reach,
) -> None:
    async with in_memory("asks") as (client, log):

        @client.tool
        def double(number: int) -> int:
            """Double it."""
            return 2 * number

        @client.tool(name="echo")
        async def say(words: str) -> InputTextDynamicToolCallOutputContentItem:
            return InputTextDynamicToolCallOutputContentItem(words)

        assert double(4) == 8
        async with client:
            thread = await client.start_thread()
            tool_calls = [
                ("item/tool/call", {"tool": "double", "arguments": {"number": 4}, "callId": "a"}),
                ("item/tool/call", {"tool": "echo", "arguments": {"words": "hi"}, "callId": "b"}),
            ]
            await thread.run(json.dumps(tool_calls))
    (started,) = log.calls("thread/start")
    assert [spec["name"] for spec in started["dynamicTools"]] == ["double", "echo"]
    answers = log.answers().values()
    assert [each["contentItems"] for each in answers] == [[text("8")], [text("hi")]]


async def test_a_resumed_thread_gets_the_tools_of_the_resuming_client(in_memory: Reach) -> None:
    """Users, 60; a server that does not know the field ignores it."""
    async with in_memory("asks") as (client, log), client:
        thread = await client.resume_thread(THREAD, tools=[lists])
        tool_calls = [("item/tool/call", {"tool": "lists", "arguments": {}, "callId": "a"})]
        await thread.run(json.dumps(tool_calls))
    (resumed,) = log.calls("thread/resume")
    assert [spec["name"] for spec in resumed["dynamicTools"]] == ["lists"]
    assert [each["contentItems"] for each in log.answers().values()] == [[text("[1,2]")]]
