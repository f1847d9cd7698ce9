"""Prompts evaluated with our server and the reference: answers, events, usage, size limits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from weakincentives.adapters import PromptEvaluationError
from weakincentives.runtime import PromptExecuted, PromptRendered, TokenUsage, ToolInvoked
from weakincentives.runtime.session.rendered_tools import RenderedTools

from tests.harness.model_server import ReceivedRequest, Reply, calls, says
from tests.wink.ground import Chosen, Ground, Log, prompt, tool
from treadle.protocol.base import JsonValue


@dataclass(frozen=True)
class Summary:
    title: str
    files: list[str]
    subtitle: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)


async def test_a_prompt_gets_its_answer_and_the_session_its_events(ground: Ground) -> None:
    ground.model.plays(says("Hello."))
    log = Log()

    response = await ground.adapter().evaluate_async(prompt("Greet me."), session=log.session)

    assert (response.prompt_name, response.text, response.output) == ("the_prompt", "Hello.", None)
    rendered, tools, executed = log.events
    assert isinstance(rendered, PromptRendered)
    assert isinstance(tools, RenderedTools)
    assert isinstance(executed, PromptExecuted)
    assert tools.render_event_id == rendered.event_id
    assert {each.adapter for each in (rendered, executed)} == {"codex_app_server"}
    assert executed.result == response
    assert executed.usage == TokenUsage(input_tokens=10, output_tokens=5, cached_tokens=0)
    (request,) = ground.model.requests
    assert request.conversation()[-1] == ("user", rendered.rendered_prompt)


async def test_a_tool_of_the_prompt_is_called_and_reported_with_its_call_id(ground: Ground) -> None:
    ground.model.plays(calls("upper", {"text": "abc"}, "call-7"), says("It is ABC."))
    log = Log()

    response = await ground.adapter().evaluate_async(prompt("Go.", tool()), session=log.session)

    assert response.text == "It is ABC."
    (invoked,) = log.of(ToolInvoked)
    assert (invoked.name, invoked.params, invoked.call_id) == ("upper", {"text": "abc"}, "call-7")
    assert (invoked.result.success, invoked.rendered_output) == (True, "ABC")


async def test_usage_is_the_sum_of_all_requests_of_the_evaluation(ground: Ground) -> None:
    ground.model.plays(calls("upper", {"text": "a"}), says("Done."))
    log = Log()

    await ground.adapter().evaluate_async(prompt("Go.", tool()), session=log.session)

    assert log.of(PromptExecuted)[0].usage == TokenUsage(20, 10, 0)


async def test_an_answer_is_parsed_as_the_prompts_type_with_maps_and_optional_fields(
    ground: Ground,
) -> None:
    ground.model.plays(
        says(
            '{"title": "T", "files": ["a"], "subtitle": null, "sizes": [{"key": "a", "value": 3}]}'
        )
    )
    log = Log()

    response = await ground.adapter().evaluate_async(prompt(kind=Summary), session=log.session)

    assert response.output == Summary("T", ["a"], None, {"a": 3})
    format_ = ground.model.requests[0].body["text"]["format"]
    assert format_["strict"] is True
    assert format_["schema"]["properties"]["subtitle"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }


async def test_a_list_of_answers_is_wrapped_in_an_object(ground: Ground) -> None:
    ground.model.plays(
        says('{"items": [{"title": "T", "files": [], "subtitle": null, "sizes": null}]}')
    )
    log = Log()
    wanted: JsonValue = list[Summary]

    response = await ground.adapter().evaluate_async(prompt(kind=wanted), session=log.session)

    assert response.output == [Summary("T", [])]


async def test_an_answer_of_the_wrong_type_fails_in_the_response_phase(own_ground: Ground) -> None:
    # Our server asks the model again before it accepts such an answer.
    own_ground.model.plays(*[says('{"title": "T"}', f"m-{number}") for number in range(9)])
    log = Log()

    with pytest.raises(PromptEvaluationError, match="Missing required field: 'files'") as failed:
        await own_ground.adapter().evaluate_async(prompt(kind=Summary), session=log.session)

    assert failed.value.phase == "response"
    assert failed.value.provider_payload == {"raw_text": '{"title": "T"}'}
    assert log.of(PromptExecuted) == []


async def test_lines_longer_than_64_kilobytes_pass_in_both_directions(ground: Ground) -> None:
    answer = "a" * 70_000
    ground.model.plays(says(answer))
    log = Log()

    response = await ground.adapter().evaluate_async(prompt("q" * 70_000), session=log.session)

    assert response.text == answer


async def test_the_answer_of_a_sub_agent_is_not_the_prompts_answer(ground: Ground) -> None:
    """The child ends before its parent does."""

    def choose(request: ReceivedRequest) -> Reply:
        outputs = request.outputs()
        if "wait" in outputs:
            return says("PARENT", "end")
        if "spawn" in outputs:
            child_id = json.loads(outputs["spawn"])["agent_id"]
            return _deals(request, "wait_agent", {"targets": [child_id]}, "wait")
        if "child-task" in str(request.conversation()[-1]):
            return says("CHILD")
        return _deals(request, "spawn_agent", {"message": "child-task"}, "spawn")

    ground.model.replies = Chosen(ground.model, choose)
    log = Log()

    response = await ground.adapter().evaluate_async(prompt("Go."), session=log.session)

    assert response.text == "PARENT"
    # Three requests of the parent and one of the child.
    assert log.of(PromptExecuted)[0].usage == TokenUsage(40, 20, 0)


def _deals(request: ReceivedRequest, name: str, arguments: JsonValue, call_id: str) -> Reply:
    """Return a call of one of the agent tools, which the reference keeps in a namespace."""
    space = next((each for each in request.body["tools"] if each["type"] == "namespace"), None)
    reply = calls(name, arguments, call_id)
    call: JsonValue = reply.steps[1]
    if space is not None:
        call["item"]["namespace"] = space["name"]
    return reply
