"""Without a script the model demonstrates the server, says what it is, and stops."""

from __future__ import annotations

import json

import pytest

from tests.model.double import collect, request, user
from treadle.model.base import ItemDone, ModelRequest
from treadle.model.scripted.demonstration import MAX_CALLS
from treadle.model.scripted.model import ScriptedModel
from treadle.protocol.base import JsonValue


def function(name: str) -> JsonValue:
    return {"type": "function", "name": name, "parameters": {}}


async def whole_turn(text: str, *tools: str, **settings: JsonValue) -> list[JsonValue]:
    """Play a whole turn, answering each call, and return what the model did."""
    model = ScriptedModel()
    history: list[JsonValue] = [user("<environment_context>x"), user(text)]
    made: list[JsonValue] = []
    for _ in range(MAX_CALLS + 2):
        model_request = request(*history, tools=[function(name) for name in tools], **settings)
        new = [
            event.item
            for event in await collect(model, model_request)
            if isinstance(event, ItemDone)
        ]
        calls = [item for item in new if item["type"] == "function_call"]
        made += new
        history += new
        history += [
            {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": f"output of {call['name']}",
            }
            for call in calls
        ]
        if not calls:
            return made
    pytest.fail("the turn does not end")


def outline(made: list[JsonValue]) -> list[JsonValue]:
    return [
        (item["name"], json.loads(item["arguments"]))
        if item["type"] == "function_call"
        else item["content"][0]["text"]
        for item in made
    ]


async def test_without_tools_it_says_what_it_is_and_quotes_the_input() -> None:
    [text] = outline(await whole_turn("How are you?"))
    assert "demonstration model" in text
    assert "3 words (12 characters): 'How are you?'" in text


@pytest.mark.parametrize(
    ("tool", "text", "arguments"),
    [
        ("exec_command", "what is here?", {"cmd": "ls"}),
        ("exec_command", "please do `git status` now", {"cmd": "git status"}),
        ("shell_command", "please\nRun: make check", {"command": "make check"}),
        ("shell", "`pwd`", {"command": ["bash", "-lc", "pwd"]}),
    ],
)
async def test_it_runs_the_requested_command_and_reports_its_output(
    tool: str, text: str, arguments: JsonValue
) -> None:
    greeting, call, report = outline(await whole_turn(text, tool))
    assert "demonstration model" in greeting
    assert call == (tool, arguments)
    assert f"output of {tool}" in report


async def test_it_updates_a_plan_where_it_can() -> None:
    made = outline(await whole_turn("hello", "update_plan", "exec_command"))
    assert [step[0] for step in made if isinstance(step, tuple)] == [
        "update_plan",
        "exec_command",
        "update_plan",
    ]
    assert [step["status"] for step in made[-2][1]["plan"]] == ["completed", "completed"]
    assert "output of exec_command" in made[-1]


async def test_it_ends_a_goal_that_it_cannot_reach() -> None:
    """Ours: an active goal would otherwise start turn after turn."""
    goal = "<objective>\nconquer\n</objective>"
    made = outline(await whole_turn(goal, "update_goal", "exec_command"))
    assert made[1] == ("update_goal", {"status": "blocked"})


async def test_a_schema_gets_a_valid_answer() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 3}},
        "required": ["name", "count"],
    }
    [text] = outline(await whole_turn("hi", "exec_command", output_schema=schema))
    assert json.loads(text) == {"name": "demonstration", "count": 3}


async def test_a_review_finds_nothing_and_a_summary_is_one_message() -> None:
    [review] = outline(await whole_turn("review this", "exec_command", subagent="review"))
    assert json.loads(review)["findings"] == []
    [summary] = outline(await whole_turn("sum up", "exec_command", subagent="compact"))
    assert "sum up" in summary


async def test_the_same_history_gets_the_same_answer() -> None:
    model_request: ModelRequest = request(user("again"), tools=[function("exec_command")])
    assert await collect(ScriptedModel(), model_request) == await collect(
        ScriptedModel(), model_request
    )
