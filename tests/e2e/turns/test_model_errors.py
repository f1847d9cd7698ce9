"""What happens to a turn whose model fails: upstream's steps, and our additions."""

from __future__ import annotations

import pytest

from tests.harness.model_server import (
    Reply,
    completed,
    created,
    done,
    fails,
    message,
    refuses,
    says,
)
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    FAILURE,
    PROLOGUE,
    Stage,
    outline,
    params_of,
    words,
)
from treadle.protocol.base import JsonValue

DISCONNECTED = {"responseStreamDisconnected": {"httpStatusCode": None}}
INCOMPLETE: JsonValue = {
    "type": "response.incomplete",
    "response": {"id": "r", "incomplete_details": {"reason": "max_output_tokens"}},
}
CASES: list[tuple[Reply, JsonValue, str]] = [
    (refuses(500, {"error": {"message": "boom"}}), "internalServerError", "boom"),
    (refuses(400, {"error": {"message": "bad thing"}}), "badRequest", "bad thing"),
    (
        refuses(401, {"error": {"message": "no auth"}}),
        {"httpConnectionFailed": {"httpStatusCode": 401}},
        "unexpected status 401 Unauthorized: no auth, url: ",
    ),
    (
        refuses(429, {"error": {"type": "usage_limit_reached", "message": "limit"}}),
        "usageLimitExceeded",
        "limit",
    ),
    (
        refuses(429, {"error": {"message": "slow down"}}),
        {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
        "exceeded retry limit, last status: 429 Too Many Requests",
    ),
    (refuses(503, {"error": {"message": "overloaded"}}), "serverOverloaded", "overloaded"),
    (
        Reply([created()], is_cut=True),
        DISCONNECTED,
        "stream disconnected before completion: ",
    ),
    (
        Reply([], is_cut=True),
        {"responseStreamConnectionFailed": {"httpStatusCode": 200}},
        "stream disconnected before completion: ",
    ),
    (fails("context_length_exceeded", "too long"), "contextWindowExceeded", "too long"),
    (fails("insufficient_quota", "no money"), "usageLimitExceeded", "no money"),
    (fails("server_error", "srv"), "internalServerError", "srv"),
    (Reply([created(), INCOMPLETE]), "other", "max_output_tokens"),
]


@pytest.mark.parametrize(("reply", "info", "text"), CASES)
async def test_a_failed_turn_reports_the_same_error_three_times_and_the_thread_continues(
    stage: Stage, reply: Reply, info: JsonValue, text: str
) -> None:
    """Upstream: status, `error` and `turn/completed` with one and the same error."""
    client = await stage.client()
    thread_id = await client.start()
    stage.model.plays(reply)

    messages = await client.run(thread_id, "one")
    status = (await client.request("thread/read", {"threadId": thread_id}))["thread"]["status"]
    again = await client.run(thread_id, "two")

    assert outline(messages) == [*PROLOGUE, *FAILURE]
    error = params_of(messages, "error")[0]["error"]
    assert error == messages[-1]["params"]["turn"]["error"]
    assert error["codexErrorInfo"] == info
    assert text in error["message"]
    assert status == {"type": "systemError"}
    assert outline(again) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    assert words(await client.read(thread_id)) == [["one"], ["two", "done"]]


async def test_a_stream_that_is_cut_twice_is_asked_for_a_third_time(stage: Stage) -> None:
    """Upstream: `Reconnecting... n/max` with `willRetry`, then the answer."""
    stage.configure(retries=2)
    cut = Reply([created()], is_cut=True)
    stage.model.plays(cut, cut, says("recovered", "m1"))
    client = await stage.client()

    messages = await client.run(await client.start())

    retry = "error willRetry=True"
    assert outline(messages) == [*PROLOGUE, retry, retry, *ANSWER, *EPILOGUE]
    errors = [params["error"] for params in params_of(messages, "error")]
    assert [error["message"] for error in errors] == ["Reconnecting... 1/2", "Reconnecting... 2/2"]
    assert [error["codexErrorInfo"] for error in errors] == [DISCONNECTED, DISCONNECTED]
    assert errors[0]["additionalDetails"].startswith("stream disconnected before completion")
    usage = params_of(messages, "thread/tokenUsage/updated")
    assert [each["tokenUsage"]["total"]["totalTokens"] for each in usage] == [15]


async def test_a_stream_that_breaks_after_a_finished_item_goes_on_from_that_item(
    stage: Stage,
) -> None:
    """Upstream: the item is kept and shown to the model, which is asked to go on."""
    stage.configure(retries=1)
    first = message("first", "m1")
    stage.model.plays(Reply([created(), *first], is_cut=True), says("second", "m2"))
    client = await stage.client()
    thread_id = await client.start()

    messages = await client.run(thread_id)

    assert outline(messages) == [
        *PROLOGUE,
        *ANSWER[:2],
        "error willRetry=True",
        *ANSWER,
        *EPILOGUE,
    ]
    assert stage.model.requests[1].conversation() == [("user", "hi"), ("assistant", "first")]
    assert words(await client.read(thread_id)) == [["hi", "first", "second"]]


async def test_a_message_that_breaks_off_is_completed_as_far_as_it_came(stage: Stage) -> None:
    """Ours: no published text is withdrawn, though the model starts over."""
    stage.configure(retries=1)
    steps = message("never whole", "m1", ["never", " "])[:-1]
    stage.model.plays(Reply([created(), *steps], is_cut=True), says("whole", "m2"))
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)

    assert words(await client.read(thread_id)) == [["hi", "never ", "whole"]]
    await client.run(thread_id, "next")
    assert stage.model.requests[2].conversation() == [
        ("user", "hi"),
        ("assistant", "whole"),
        ("user", "next"),
    ]


async def test_a_call_that_was_made_before_the_stream_broke_is_not_left_open(
    stage: Stage,
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "nope", "arguments": "{}"}
    stage.model.plays(Reply([created(), done(call)], is_cut=True))
    client = await stage.client()
    thread_id = await client.start()
    messages = await client.run(thread_id)
    await client.run(thread_id, "next")

    assert outline(messages)[-3:] == FAILURE
    assert stage.model.requests[1].outputs() == {"c1": "unsupported call: nope"}


async def test_an_unknown_provider_fails_the_turn_with_its_name(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    (stage.home / "config.toml").write_text('model_provider = "openai"\n', "utf-8")

    messages = await client.run(thread_id)

    assert outline(messages)[-3:] == FAILURE
    assert "`mock_provider` not found" in params_of(messages, "error")[0]["error"]["message"]


async def test_rate_limits_that_the_provider_reports_reach_every_client(stage: Stage) -> None:
    headers = {"x-codex-primary-used-percent": "12.5", "x-codex-primary-window-minutes": "300"}
    steps = [created(), *message("ok", "m1"), completed()]
    stage.model.plays(Reply(steps, headers=headers))
    client, other = await stage.client(), await stage.client()
    await client.run(await client.start())

    for each in (client, other):
        await each.settled()
        params = params_of(each.received, "account/rateLimits/updated")[-1]["rateLimits"]
        assert params["primary"] == {"usedPercent": 12, "windowDurationMins": 300, "resetsAt": None}


async def test_an_answer_of_another_model_is_reported(stage: Stage) -> None:
    steps = [created(), *message("ok", "m1"), completed()]
    stage.model.plays(Reply(steps, headers={"openai-model": "mock-other"}))
    client = await stage.client()
    thread_id = await client.start()
    messages = await client.run(thread_id)

    rerouted = params_of(messages, "model/rerouted")
    assert [(each["fromModel"], each["toModel"]) for each in rerouted] == [
        ("mock-model", "mock-other")
    ]


HEADERS: list[JsonValue] = [
    {
        "type": "response.created",
        "response": {"id": "r", "headers": {"OpenAI-Model": "mock-other"}},
    },
    {
        "type": "response.created",
        "response": {"id": "r"},
        "headers": {"x-openai-model": ["mock-other"]},
    },
]


@pytest.mark.parametrize("event", HEADERS, ids=["in the response", "in the event"])
async def test_headers_inside_the_stream_name_another_model_too(
    stage: Stage, event: JsonValue
) -> None:
    """Upstream: `response.created` carries the headers where the transport has none."""
    stage.model.plays(Reply([event, event, *message("ok", "m1"), completed()]))
    client = await stage.client()
    messages = await client.run(await client.start())

    rerouted = params_of(messages, "model/rerouted")
    assert [(each["fromModel"], each["toModel"]) for each in rerouted] == [
        ("mock-model", "mock-other")
    ]


ODD_HEADERS: list[JsonValue] = [5, [], "x", {"openai-model": 5}, {"openai-model": []}, {"a": None}]


@pytest.mark.parametrize("headers", ODD_HEADERS, ids=str)
async def test_headers_of_an_unexpected_shape_are_ignored(stage: Stage, headers: JsonValue) -> None:
    event = {**created(), "headers": headers}
    stage.model.plays(Reply([event, *message("ok", "m1"), completed()]))
    client = await stage.client()
    messages = await client.run(await client.start())

    assert outline(messages)[-1] == "turn/completed completed"
    assert params_of(messages, "model/rerouted") == []


async def test_the_number_of_models_that_a_stream_names_is_limited(stage: Stage) -> None:
    events = [{**created(), "headers": {"openai-model": f"mock-{at}"}} for at in range(100)]
    stage.model.plays(Reply([*events, *message("ok", "m1"), completed()]))
    client = await stage.client()
    messages = await client.run(await client.start())

    assert len(params_of(messages, "model/rerouted")) == 16


ODD_ITEMS: list[JsonValue] = [
    5,
    {"type": []},
    {"type": "function_call"},
    {"type": "function_call", "name": 5, "call_id": [], "arguments": {}},
    {"type": "custom_tool_call", "name": "apply_patch", "input": [1], "call_id": "z"},
    {"type": "message", "role": 5, "id": [1], "content": [{"type": "output_text", "text": None}]},
    {"type": "message", "content": [5, None]},
    {"type": "reasoning", "summary": 7, "content": {}},
    {"type": "web_search_call", "action": [1]},
]


@pytest.mark.parametrize("item", ODD_ITEMS, ids=str)
@pytest.mark.parametrize("step", ["added", "done"])
async def test_an_item_of_an_unexpected_shape_fails_no_turn(
    stage: Stage, step: str, item: JsonValue
) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    event = {"type": f"response.output_item.{step}", "output_index": 0, "item": item}
    stage.model.plays(Reply([created(), event, completed()]), says("ok"))
    messages = await client.run(thread_id)

    assert params_of(messages, "turn/completed")[-1]["turn"]["status"] == "completed"
