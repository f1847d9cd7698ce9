"""Loaded threads follow the configuration when a client asks for it (`reloadUserConfig`)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.model_server import ReceivedRequest, calls, says
from tests.harness.threads import Client, Stage, params_of
from treadle.protocol.base import JsonValue

CHANGES: JsonValue = {
    "model": "mock-2",
    "model_reasoning_effort": "high",
    "sandbox_mode": "danger-full-access",
    "approval_policy": "on-request",
    "web_search": "disabled",
    "features.goals": False,
}


async def write(client: Client, changes: JsonValue, *, reloads: bool = True) -> None:
    """Write settings, and reload them by default."""
    edits = [
        {"keyPath": key, "value": value, "mergeStrategy": "replace"}
        for key, value in changes.items()
    ]
    await client.request("config/batchWrite", {"edits": edits, "reloadUserConfig": reloads})


async def asked(client: Client, stage: Stage, thread_id: str) -> ReceivedRequest:
    """Run a turn; return its request."""
    await client.run(thread_id)
    return stage.model.requests[-1]


def tools(request: ReceivedRequest) -> set[str]:
    """The names of the tools in a request."""
    return {tool.get("name", tool["type"]) for tool in request.body["tools"]}


def shown(messages: Sequence[JsonValue]) -> JsonValue:
    """The settings that clients were shown last."""
    return params_of(messages, "thread/settings/updated")[-1]["threadSettings"]


async def test_model_policy_tools_and_features_of_a_loaded_thread_follow(stage: Stage) -> None:
    """Upstream documents it."""
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    before = await asked(client, stage, thread_id)
    await write(client, CHANGES)
    after = await asked(client, stage, thread_id)

    assert (after.body["model"], after.body["reasoning"]) == ("mock-2", {"effort": "high"})
    assert tools(before) - tools(after) == {
        *("get_goal", "create_goal", "update_goal", "web_search")
    }
    permissions = [text for _, text in after.messages("developer") if "sandbox" in text]
    assert "without a sandbox" in permissions[-1]
    settings = shown(client.received)
    assert (settings["model"], settings["approvalPolicy"]) == ("mock-2", "on-request")
    assert settings["sandboxPolicy"] == {"type": "dangerFullAccess"}


async def test_a_tool_runs_under_the_reloaded_policy(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    made = stage.workspace / "made"
    await asked(client, stage, thread_id)
    await write(client, {"sandbox_mode": "danger-full-access"})
    stage.model.plays(calls("exec_command", {"cmd": f"touch {made}"}), says("done"))
    await client.run(thread_id)

    assert made.exists()


async def test_without_the_request_loaded_threads_stay_as_they_are(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    await write(client, CHANGES, reloads=False)
    after = await asked(client, stage, thread_id)

    assert after.body["model"] == "mock-model"
    assert params_of(client.received, "thread/settings/updated") == []


async def test_what_a_client_chose_stays(stage: Stage) -> None:
    """Ours: also a choice that equals the configuration of that time."""
    client = await stage.client()
    chosen: JsonValue = {"model": "mock-model", "sandbox": "read-only"}
    thread_id = await client.start(cwd=str(stage.workspace), **chosen)
    await client.run(thread_id, approvalPolicy="never")
    await write(client, CHANGES)
    after = await asked(client, stage, thread_id)

    assert after.body["model"] == "mock-model"
    settings = shown(client.received)
    assert (settings["approvalPolicy"], settings["effort"]) == ("never", "high")
    assert settings["sandboxPolicy"]["type"] == "readOnly"


async def test_the_config_of_a_thread_s_request_stays(stage: Stage) -> None:
    client = await stage.client()
    config = {"model": "mock-7", "features.view_image": False}
    thread_id = await client.start(cwd=str(stage.workspace), config=config)
    await write(client, CHANGES)
    after = await asked(client, stage, thread_id)

    assert after.body["model"] == "mock-7"
    assert tools(after).isdisjoint({"view_image", "get_goal"})


async def test_a_resumed_thread_keeps_what_differs_from_the_configuration(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace), model="mock-9")
    await client.run(thread_id)
    await stage.restart()
    client = await stage.client()
    await client.request("thread/resume", {"threadId": thread_id})
    await write(client, CHANGES)
    after = await asked(client, stage, thread_id)

    assert (after.body["model"], shown(client.received)["approvalPolicy"]) == (
        "mock-9",
        "on-request",
    )


async def test_a_sub_agent_keeps_the_model_that_its_parent_gave_it(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(calls("spawn_agent", {"message": "x", "model": "mock-5"}), says("done"))
    await client.run(thread_id)
    await write(client, CHANGES)
    ids = (await client.request("thread/loaded/list", {}))["data"]
    (child,) = [id_ for id_ in ids if id_ != thread_id]
    after = await asked(client, stage, child)

    assert (after.body["model"], "get_goal" in tools(after)) == ("mock-5", False)


async def test_a_thread_whose_configuration_is_invalid_keeps_its_settings(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    valid = (stage.home / "config.toml").read_text()
    (stage.home / "config.toml").write_text(valid.replace('"mock-model"', "3"))
    await client.request("experimentalFeature/enablement/set", {"enablement": {"plugins": False}})
    (warning,) = params_of(await client.until("warning"), "warning")
    (stage.home / "config.toml").write_text(valid)
    after = await asked(client, stage, thread_id)

    assert warning["threadId"] == thread_id
    assert "the configuration was not reloaded: invalid type at `model`" in warning["message"]
    assert after.body["model"] == "mock-model"


async def test_a_switched_feature_reaches_loaded_threads_and_nothing_else_does(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.configure("", retries=0)
    text = (stage.home / "config.toml").read_text().replace("mock-model", "mock-2")
    (stage.home / "config.toml").write_text(text)
    switch = {"enablement": {"apps": False}}
    await client.request("experimentalFeature/enablement/set", switch)
    params = {"threadId": thread_id}
    answer = await client.request("experimentalFeature/list", params)
    after = await asked(client, stage, thread_id)

    states = {each["name"]: each["enabled"] for each in answer["data"]}
    assert (states["apps"], states["plugins"]) == (False, True)
    assert after.body["model"] == "mock-model"
