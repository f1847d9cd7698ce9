"""`thread/increment_elicitation` and `decrement_elicitation` pause timeouts of commands."""

from __future__ import annotations

from tests.harness.model_server import calls, says
from tests.harness.threads import Client, Stage, params_of
from treadle.protocol.base import JsonValue

FREE: JsonValue = {"approvalPolicy": "never", "sandbox": "danger-full-access"}


async def runs_a_command(stage: Stage, client: Client, thread_id: str) -> str:
    """Start a turn with a command that ends when its file appears; its timeout is 1 ms."""
    script = f"until [ -e {stage.workspace}/go ]; do sleep 0.01; done; echo went"
    stage.model.plays(calls("shell_command", {"command": script, "timeout_ms": 1}), says("ok"))
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda params: params["item"]["type"] == "commandExecution")
    return turn_id


async def test_a_command_does_not_time_out_while_the_user_is_asked(stage: Stage) -> None:
    """Upstream: release 0.118.0 and later."""
    client = await stage.client()
    thread_id = await client.start(**FREE)
    about = {"threadId": thread_id}
    first = await client.request("thread/increment_elicitation", about)
    second = await client.request("thread/increment_elicitation", about)
    turn_id = await runs_a_command(stage, client, thread_id)
    third = await client.request("thread/decrement_elicitation", about)
    (stage.workspace / "go").touch()
    messages = await client.end_of(turn_id)
    fourth = await client.request("thread/decrement_elicitation", about)
    error = await client.refusal("thread/decrement_elicitation", about)

    assert (first, second) == ({"count": 1, "paused": True}, {"count": 2, "paused": True})
    assert (third, fourth) == ({"count": 1, "paused": True}, {"count": 0, "paused": False})
    assert error.message == "out-of-band elicitation count is already zero"
    (item,) = [
        params["item"]
        for params in params_of(messages, "item/completed")
        if params["item"]["type"] == "commandExecution"
    ]
    assert (item["exitCode"], item["aggregatedOutput"]) == (0, "went\n")


async def test_a_client_that_disconnects_asks_no_longer(stage: Stage) -> None:
    """Ours: otherwise the command, and with it the turn, would never end."""
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start(**FREE)
    await other.request("thread/increment_elicitation", {"threadId": thread_id})
    turn_id = await runs_a_command(stage, client, thread_id)
    await other.peer.transport.close()
    messages = await client.end_of(turn_id)
    (item,) = [
        params["item"]
        for params in params_of(messages, "item/completed")
        if params["item"]["type"] == "commandExecution"
    ]
    assert item["status"] == "failed"
