"""Clients learn that the sandbox does not work when a command needs it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.model_server import calls, says
from tests.harness.sandbox import using
from tests.harness.threads import Stage, outline, params_of
from treadle.protocol.base import JsonValue
from treadle.sandbox.backends.selection import BackendName, SandboxUnavailable
from treadle.sandbox.supervisor.launched import RunningCommand

REASON = "no sandbox works here; "


class Broken:
    """A backend that confines nothing."""

    name: BackendName = "none"
    gaps = ()

    async def launch(self, argv: Sequence[str], **_options: object) -> RunningCommand:
        """Refuse."""
        raise SandboxUnavailable("no sandbox works here", f"{argv[0]} needs one")


async def test_a_missing_sandbox_is_an_error_that_does_not_end_the_turn(stage: Stage) -> None:
    """Upstream documents `sandboxError`; ours is published once per turn."""
    commands = [calls("exec_command", {"cmd": "touch x"}, call_id=f"c{at}") for at in range(2)]
    stage.model.plays(*commands, says("no commands"))
    client = await stage.client()
    with using(Broken()):
        messages = await client.run(await client.start(cwd=str(stage.workspace)))

    errors: list[JsonValue] = params_of(messages, "error")
    assert [(each["error"]["codexErrorInfo"], each["willRetry"]) for each in errors] == [
        ("sandboxError", True)
    ]
    assert errors[0]["error"]["message"].startswith(REASON)
    assert outline(messages)[-1] == "turn/completed completed"
    outputs = stage.model.requests[-1].outputs()
    assert all(REASON in str(output) for output in outputs.values())
    assert len(outputs) == 2


async def test_a_command_without_a_sandbox_needs_none(stage: Stage) -> None:
    stage.model.plays(calls("exec_command", {"cmd": "echo hi"}))
    client = await stage.client()
    params = {"cwd": str(stage.workspace), "sandbox": "danger-full-access"}
    with using(Broken()):
        messages = await client.run(await client.start(**params))

    assert params_of(messages, "error") == []
