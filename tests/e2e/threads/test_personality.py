"""The communication style that a user chooses, as the model sees it."""

from __future__ import annotations

import pytest

from tests.harness.model_server import ReceivedRequest
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue

KNOWN: JsonValue = {"model": "gpt-5.5"}
FRIENDLY, PRAGMATIC = "Be warm and encouraging", "Be direct and concise"


def style(request: ReceivedRequest) -> str | None:
    """The style in the instructions of a request."""
    text = request.body["instructions"]
    return "friendly" if FRIENDLY in text else "pragmatic" if PRAGMATIC in text else None


def switches(request: ReceivedRequest) -> list[str]:
    """The messages about changes of the style."""
    texts = [text for _, text in request.messages("developer")]
    return [text for text in texts if text.startswith("<personality_spec>")]


async def run(client: Client, stage: Stage, thread_id: str, **params: JsonValue) -> ReceivedRequest:
    """Run a turn; return its request."""
    await client.run(thread_id, **params)
    return stage.model.requests[-1]


@pytest.mark.parametrize("chosen", ["friendly", "pragmatic"])
async def test_the_style_of_a_thread_is_part_of_its_instructions(stage: Stage, chosen: str) -> None:
    """Upstream 0.118."""
    client = await stage.client()
    usual = await run(client, stage, await client.start(**KNOWN))
    asked = await run(client, stage, await client.start(**KNOWN, personality=chosen))

    assert (style(usual), style(asked)) == (None, chosen)
    assert asked.body["instructions"].startswith(usual.body["instructions"])
    assert switches(asked) == []


async def test_the_style_none_leaves_the_instructions_alone(stage: Stage) -> None:
    """Upstream: the placeholder is replaced with an empty string."""
    client = await stage.client()
    usual = await run(client, stage, await client.start(**KNOWN))
    none = await run(client, stage, await client.start(**KNOWN, personality="none"))

    assert none.body["instructions"] == usual.body["instructions"]


async def test_the_configured_style_applies_unless_the_request_names_one(stage: Stage) -> None:
    stage.configure('personality = "pragmatic"')
    client = await stage.client()
    configured = await run(client, stage, await client.start(**KNOWN))
    named = await run(client, stage, await client.start(**KNOWN, personality="friendly"))

    assert (style(configured), style(named)) == ("pragmatic", "friendly")


async def test_a_change_is_explained_to_the_model_once(stage: Stage) -> None:
    """Upstream: a developer message `<personality_spec>`; ours also after the change to `none`."""
    client = await stage.client()
    thread_id = await client.start(**KNOWN, personality="friendly")
    asked = [
        await run(client, stage, thread_id, personality=chosen)
        for chosen in ("friendly", "pragmatic", "pragmatic", "none")
    ]

    assert [style(request) for request in asked] == ["friendly", "pragmatic", "pragmatic", None]
    assert [len(switches(request)) for request in asked] == [0, 1, 1, 2]
    assert PRAGMATIC in switches(asked[1])[0]
    assert "No particular style" in switches(asked[3])[1]


async def test_a_change_without_a_turn_applies_to_the_next_one(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(**KNOWN)
    await run(client, stage, thread_id)
    change = {"threadId": thread_id, "personality": "friendly"}
    await client.request("thread/settings/update", change)
    asked = await run(client, stage, thread_id)

    assert (style(asked), len(switches(asked))) == ("friendly", 1)


async def test_a_resumed_thread_keeps_its_style_or_takes_another(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(**KNOWN, personality="friendly")
    await run(client, stage, thread_id)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    kept = await run(client, stage, thread_id)
    await stage.restart()
    client = await stage.client()
    resume = {"threadId": thread_id, "personality": "pragmatic"}
    await client.request("thread/resume", resume)
    changed = await run(client, stage, thread_id)

    assert (style(kept), len(switches(kept))) == ("friendly", 0)
    assert (style(changed), len(switches(changed))) == ("pragmatic", 1)


async def test_a_style_survives_a_compaction(stage: Stage) -> None:
    """Ours: the instructions hold it, not only the history."""
    client = await stage.client()
    thread_id = await client.start(**KNOWN)
    await run(client, stage, thread_id, personality="friendly")
    await client.request("thread/compact/start", {"threadId": thread_id})
    await client.until("turn/completed")
    asked = await run(client, stage, thread_id)

    assert style(asked) == "friendly"


@pytest.mark.parametrize(
    ("settings", "params"),
    [
        ("", {"model": "mock-model"}),
        ("", {**KNOWN, "baseInstructions": "Only this."}),
        ("[features]\npersonality = false", KNOWN),
    ],
    ids=["a model that does not support it", "instructions of the client", "the feature is off"],
)
async def test_a_style_that_cannot_apply_changes_nothing(
    stage: Stage, settings: str, params: JsonValue
) -> None:
    """Upstream."""
    stage.configure(settings)
    client = await stage.client()
    thread_id = await client.start(**params, personality="friendly")
    await run(client, stage, thread_id)
    asked = await run(client, stage, thread_id, personality="pragmatic")

    assert (style(asked), switches(asked)) == (None, [])


@pytest.mark.parametrize("method", ["thread/start", "turn/start", "thread/settings/update"])
async def test_an_unknown_style_is_refused(stage: Stage, method: str) -> None:
    client = await stage.client()
    thread_id = await client.start(**KNOWN)
    params = {"threadId": thread_id, "input": [], "personality": "grumpy"}
    refused = await client.refusal(method, params)

    assert "unknown variant `grumpy`" in refused.message


async def test_the_list_of_models_shows_which_support_it(stage: Stage) -> None:
    stage.configure("", retries=0)
    client = await stage.client()
    answer = await client.request("model/list", {})
    support = {model["model"]: model["supportsPersonality"] for model in answer["data"]}

    assert support["mock-model"] is False
    assert all(support[name] for name in support if name.startswith("gpt-"))
