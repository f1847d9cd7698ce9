"""Questions that the model asks the user."""

from __future__ import annotations

import json

import pytest

from tests.harness.model_server import calls
from tests.harness.questions import answer, question, refuse
from tests.harness.threads import ANSWER, EPILOGUE, Stage, outline, params_of
from treadle.protocol.base import JsonValue

ASK = "item/tool/requestUserInput"
OPTIONS = [
    {"label": "Red (Recommended)", "description": "warm"},
    {"label": "Blue", "description": "cold"},
]
QUESTION = {
    "id": "color",
    "header": "Color",
    "question": "Which colour?",
    "options": OPTIONS,
}
PLAN = {
    "mode": "plan",
    "settings": {
        "model": "mock-model",
        "reasoning_effort": "medium",
        "developer_instructions": None,
    },
}
WAITING = {"type": "active", "activeFlags": ["waitingOnUserInput"]}
ACTIVE = {"type": "active", "activeFlags": []}
NOTHING = '{"answers":{}}'


async def test_in_plan_mode_the_user_is_asked_and_the_answers_reach_the_model(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}))

    turn_id = await client.start_turn(thread_id, collaborationMode=PLAN)
    before = await client.until(ASK)
    await answer(client, before[-1], {"answers": {"color": {"answers": ["Blue"]}}})
    after = await client.end_of(turn_id)

    assert before[-1]["params"] == {
        "threadId": thread_id,
        "turnId": turn_id,
        "itemId": "call-1",
        "questions": [{**QUESTION, "isOther": True, "isSecret": False}],
        "isBlocking": True,
        "autoResolutionMs": None,
    }
    assert params_of(before, "thread/status/changed")[-1]["status"] == WAITING
    assert outline(after)[-len(ANSWER) - 4 :] == [
        "serverRequest/resolved",
        "thread/status/changed active",
        *ANSWER,
        *EPILOGUE,
    ]
    assert params_of(after, "thread/status/changed")[0]["status"] == ACTIVE
    output = stage.model.requests[-1].outputs()["call-1"]
    assert output == '{"answers":{"color":{"answers":["Blue"]}}}'


async def test_outside_plan_mode_the_model_may_not_ask(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}))

    await client.run(thread_id)

    output = stage.model.requests[-1].outputs()["call-1"]
    assert output == "request_user_input is unavailable in Default mode"


async def test_a_feature_lets_the_model_ask_in_default_mode_too(stage: Stage) -> None:
    stage.configure("features.default_mode_request_user_input = true")
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}))

    turn_id = await client.start_turn(thread_id)
    await answer(client, await question(client, ASK), json.loads(NOTHING))
    await client.end_of(turn_id)

    assert stage.model.requests[-1].outputs() == {"call-1": NOTHING}
    tools = stage.model.requests[0].body["tools"]
    (offered,) = [tool for tool in tools if tool.get("name") == "request_user_input"]
    assert "Default or Plan mode" in offered["description"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"questions": []}, "request_user_input requires at least one question"),
        (
            {"questions": [{**QUESTION, "options": []}]},
            "request_user_input requires non-empty options for every question",
        ),
        (
            {"questions": [{key: QUESTION[key] for key in ("id", "header", "question")}]},
            "request_user_input requires non-empty options for every question",
        ),
        (
            {},
            "failed to parse function arguments: Object missing required field `questions`",
        ),
    ],
)
async def test_questions_without_options_are_rejected_without_a_server_request(
    stage: Stage, arguments: JsonValue, output: str
) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("request_user_input", arguments))

    messages = await client.run(thread_id, collaborationMode=PLAN)

    assert ASK not in outline(messages)
    assert stage.model.requests[-1].outputs() == {"call-1": output}


async def test_an_error_or_an_invalid_answer_counts_as_no_answer(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(
        calls("request_user_input", {"questions": [QUESTION]}, "call-1"),
        calls("request_user_input", {"questions": [QUESTION]}, "call-2"),
    )

    turn_id = await client.start_turn(thread_id, collaborationMode=PLAN)
    await refuse(client, await question(client, ASK))
    await answer(client, await question(client, ASK), {"bad": 1})
    messages = await client.end_of(turn_id)

    assert stage.model.requests[-1].outputs() == {"call-1": NOTHING, "call-2": NOTHING}
    assert outline(messages)[-2:] == EPILOGUE


async def test_a_server_request_carries_its_deadline_and_resolves_itself(stage: Stage) -> None:
    stage.configure("asks.deadline_ms = 500")
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}))

    messages = await client.run(thread_id, collaborationMode=PLAN)

    (asked,) = params_of(messages, ASK)
    assert (asked["isBlocking"], asked["autoResolutionMs"]) == (False, 500)
    assert stage.model.requests[-1].outputs() == {"call-1": NOTHING}
    assert "serverRequest/resolved" in outline(messages)


async def test_an_open_question_shows_in_the_status_and_ends_with_an_interrupted_turn(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}))

    turn_id = await client.start_turn(thread_id, collaborationMode=PLAN)
    await question(client, ASK)
    thread = (await client.request("thread/read", {"threadId": thread_id}))["thread"]
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.until("serverRequest/resolved")

    assert thread["status"] == WAITING
    assert outline(messages)[-3:] == [
        "thread/status/changed idle",
        "turn/completed interrupted",
        "serverRequest/resolved",
    ]


async def test_an_open_question_survives_a_restart_of_the_server(stage: Stage) -> None:
    first = await stage.client()
    thread_id = await first.start()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}))
    turn_id = await first.start_turn(thread_id, collaborationMode=PLAN)
    asked = await question(first, ASK)
    await stage.restart()

    second = await stage.client()
    await second.request("thread/resume", {"threadId": thread_id})
    again = await question(second, ASK)
    await answer(second, again, {"answers": {"color": {"answers": ["Blue"]}}})
    await second.end_of(turn_id)

    assert again["params"] == asked["params"]
    output = stage.model.requests[-1].outputs()["call-1"]
    assert output == '{"answers":{"color":{"answers":["Blue"]}}}'
