"""The settings of turns: which overrides persist, and what clients and the model learn of them."""

from __future__ import annotations

import asyncio

from tests.harness.items import untimed
from tests.harness.model_server import Reply, completed, created, message, says
from tests.harness.threads import EPILOGUE, PROLOGUE, Stage, outline, params_of, text_input, words
from treadle.protocol.base import JsonValue

PLAN_MODE: JsonValue = {"mode": "plan", "settings": {"model": "mock-model"}}


async def test_settings_can_be_changed_without_a_turn(stage: Stage) -> None:
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    change = {"threadId": thread_id, "model": "mock-2", "effort": "high", "summary": "concise"}

    assert await client.request("thread/settings/update", change) == {}
    (notification,) = await client.until("thread/settings/updated")
    await client.request("thread/settings/update", change)
    await client.run(thread_id)

    settings = notification["params"]["threadSettings"]
    assert (settings["model"], settings["effort"], settings["summary"]) == (
        "mock-2",
        "high",
        "concise",
    )
    asked = stage.model.requests[0].body
    assert (asked["model"], asked["reasoning"]) == (
        "mock-2",
        {"effort": "high", "summary": "concise"},
    )
    # A change without effect is not published, nor is any change to clients without a subscription.
    assert len(params_of(client.received, "thread/settings/updated")) == 1
    await other.settled()
    assert params_of(other.received, "thread/settings/updated") == []


async def test_overrides_of_a_turn_persist_and_are_published_after_the_answer(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    overrides: dict[str, JsonValue] = {
        "model": "mock-2",
        "approvalPolicy": "on-request",
        "sandboxPolicy": {"type": "dangerFullAccess"},
        "serviceTier": "fast",
        "personality": "friendly",
    }
    messages = await client.run(thread_id, **overrides)
    await client.run(thread_id)

    settings = params_of(messages, "thread/settings/updated")[0]["threadSettings"]
    assert {name: settings[name] for name in overrides} == overrides
    assert outline(messages)[0] == "thread/settings/updated"
    first, second = (asked.body for asked in stage.model.requests)
    assert (second["model"], second["service_tier"]) == (first["model"], first["service_tier"])
    assert "without a sandbox" in first["input"][0]["content"][0]["text"]


async def test_a_tier_for_one_turn_leaves_the_thread_s_own_alone(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(serviceTier="flex")
    await client.run(thread_id, serviceTierForTurn="priority")
    await client.run(thread_id)

    tiers = [asked.body["service_tier"] for asked in stage.model.requests]
    assert tiers == ["priority", "flex"]


async def test_another_model_is_informed_that_it_takes_over(stage: Stage) -> None:
    """Upstream: a developer message `<model_switch>`."""
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)
    await client.run(thread_id, model="mock-2")
    await client.run(thread_id)

    switches = [
        sum(text.startswith("<model_switch>") for _, text in asked.messages("developer"))
        for asked in stage.model.requests
    ]
    assert switches == [0, 1, 1]


async def test_overrides_of_the_configuration_reach_the_turns(stage: Stage) -> None:
    client = await stage.client()
    config = {"model": "mock-7", "model_reasoning_effort": "low", "model_context_window": 5000}
    thread_id = await client.start(config=config)
    messages = await client.run(thread_id)

    asked = stage.model.requests[0].body
    assert (asked["model"], asked["reasoning"]) == ("mock-7", {"effort": "low"})
    usage = params_of(messages, "thread/tokenUsage/updated")[0]["tokenUsage"]
    assert usage["modelContextWindow"] == 5000


async def test_a_model_that_is_known_gets_its_usual_settings(stage: Stage) -> None:
    """Upstream: effort and summary by default, verbosity only where it is understood."""
    stage.configure('model_verbosity = "high"')
    client = await stage.client()
    messages = await client.run(await client.start(model="gpt-5.5"))
    await client.run(await client.start())

    known, unknown = (asked.body for asked in stage.model.requests)
    assert known["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert known["text"] == {"verbosity": "high"}
    assert known["include"] == ["reasoning.encrypted_content"]
    assert (unknown["reasoning"], "text" in unknown) == (None, False)
    assert params_of(messages, "warning") == []


async def test_an_unknown_model_is_reported_once(stage: Stage) -> None:
    """Upstream warns in every turn."""
    client = await stage.client()
    thread_id = await client.start()
    first = await client.run(thread_id)
    second = await client.run(thread_id)

    assert "`mock-model`" in params_of(first, "warning")[0]["message"]
    assert params_of(second, "warning") == []


async def test_a_plan_in_plan_mode_is_a_separate_item(stage: Stage) -> None:
    """Upstream: the marks are not shown, whichever way the deltas cut them."""
    text = "Intro\n<proposed_plan>\n- step 1\n- step 2\n</proposed_plan>\n"
    deltas = ["Intro\n<prop", "osed_plan>\n- st", "ep 1\n", "- step 2\n</proposed_", "plan>\n"]
    stage.model.plays(Reply([created(), *message(text, "m1", deltas), completed()]))
    client = await stage.client()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id, "plan it", collaborationMode=PLAN_MODE)
    messages = await client.end_of(turn_id)

    assert outline(messages) == [
        "thread/settings/updated",
        *PROLOGUE,
        "item/started agentMessage",
        "item/agentMessage/delta",
        "item/started plan",
        "item/plan/delta",
        "item/plan/delta",
        "item/plan/delta",
        "item/completed plan",
        "item/completed agentMessage",
        "thread/tokenUsage/updated",
        *EPILOGUE,
    ]
    plan, answer = (params["item"] for params in params_of(messages, "item/completed")[1:])
    steps = "- step 1\n- step 2\n"
    assert untimed(plan) == {"type": "plan", "id": f"{turn_id}-plan", "text": steps}
    assert answer["text"] == "Intro\n"
    deltas = [params["delta"] for params in params_of(messages, "item/plan/delta")]
    assert "".join(deltas) == plan["text"]
    assert words(await client.read(thread_id)) == [["plan it", plan["text"], "Intro\n"]]
    await client.run(thread_id, "go")
    assert stage.model.requests[1].conversation()[1] == ("assistant", text)
    assert "plan mode" in stage.model.requests[0].messages("developer")[0][1]


async def test_a_mode_decides_about_model_and_effort_until_they_are_changed(stage: Stage) -> None:
    """Upstream: mode, model and effort are one thing, and a mode without an effort ends one."""
    client = await stage.client()
    thread_id = await client.start()

    async def after(**change: JsonValue) -> list[JsonValue]:
        await client.request("thread/settings/update", {"threadId": thread_id, **change})
        settings = (await client.until("thread/settings/updated"))[-1]["params"]["threadSettings"]
        mode = settings["collaborationMode"]
        own = (mode["settings"]["model"], mode["settings"]["reasoning_effort"])
        assert own == (settings["model"], settings["effort"])
        return [mode["mode"], *own]

    plan: JsonValue = {"model": "mock-2", "reasoning_effort": "high"}
    default: JsonValue = {"model": "mock-3", "reasoning_effort": None}
    assert await after(collaborationMode={"mode": "plan", "settings": plan}) == [
        "plan",
        "mock-2",
        "high",
    ]
    assert await after(effort="low") == ["plan", "mock-2", "low"]
    assert await after(
        model="mock-4", effort="high", collaborationMode={"mode": "default", "settings": default}
    ) == ["default", "mock-3", None]


async def test_the_model_is_informed_when_plan_mode_ends(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "plan", collaborationMode=PLAN_MODE)
    default: JsonValue = {"mode": "default", "settings": {"model": "mock-model"}}
    await client.run(thread_id, "go", collaborationMode=default)

    first, second = (text for _, text in stage.model.requests[1].messages("developer"))
    assert ("You are in plan mode" in first, "You are in default mode" in first) == (True, False)
    assert "You are in default mode" in second


async def test_outside_plan_mode_the_marks_are_text(stage: Stage) -> None:
    text = "<proposed_plan>\nx\n</proposed_plan>"
    stage.model.plays(Reply([created(), *message(text, "m1"), completed()]))
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)

    assert words(await client.read(thread_id)) == [["hi", text]]


async def test_a_second_start_changes_the_settings_of_later_requests(stage: Stage) -> None:
    """It joins the turn that runs, with what it overrides."""
    gate, client = asyncio.Event(), await stage.client()
    stage.model.plays(says("done", "m1", [], gate))
    thread_id = await client.start()
    asked = {"threadId": thread_id, "input": [text_input("hi")], "model": "mock-2"}
    first = (await client.request("turn/start", asked))["turn"]["id"]
    second = (await client.request("turn/start", {**asked, "model": "mock-3"}))["turn"]["id"]
    gate.set()
    await client.end_of(first)
    await client.run(thread_id, "later")

    assert first == second
    assert stage.model.requests[-1].body["model"] == "mock-3"


async def test_an_external_sandbox_is_described_as_full_access_with_its_network(
    stage: Stage,
) -> None:
    """Upstream documents both: full access, and the network in the environment's context."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    for access in ("enabled", "restricted"):
        policy = {"type": "externalSandbox", "networkAccess": access}
        await client.run(thread_id, sandboxPolicy=policy)
    await client.run(thread_id, sandboxPolicy={"type": "dangerFullAccess"})

    last = stage.model.requests[-1]
    shown = [text for _, text in last.messages("user") if "<environment_context>" in text]
    networks = ["<network_access>enabled<", "<network_access>restricted<", None]
    assert [next((each for each in networks if each and each in text), None) for text in shown] == (
        networks
    )
    described = [text for _, text in last.messages("developer") if "<permissions" in text]
    assert ["full access to the file system" in text for text in described] == [True, True, False]
