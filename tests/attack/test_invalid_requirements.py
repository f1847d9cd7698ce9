"""Invalid requirements of the administrator: nothing starts, and every client learns why."""

from __future__ import annotations

import logging

import pytest

from tests.harness.model_server import says
from tests.harness.threads import EPILOGUE, Stage, outline, params_of

INVALID = ["x = [", "allowed_sandbox_modes = 5", "[rules]\nprefix_rules = 3"]


@pytest.mark.parametrize("text", INVALID)
async def test_invalid_requirements_are_reported_to_each_client(
    stage: Stage, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """A failed request alone does not say what the administrator must do."""
    stage.require(text)
    with caplog.at_level(logging.ERROR):
        client = await stage.client()
        warnings = params_of(await client.settled(), "configWarning")
        refused = await client.refusal("thread/start", {})

    assert [
        warning
        for warning in warnings
        if warning["summary"].startswith("The administrator's requirements are invalid")
    ]
    assert refused.kind == "invalidConfig"
    assert caplog.records == []


async def test_a_client_of_invalid_requirements_gets_announcements(stage: Stage) -> None:
    """It works as soon as the administrator has corrected the file."""
    stage.require("x = [")
    client = await stage.client()
    other = await stage.client()
    stage.require("")
    thread_id = await other.start()
    await other.request("thread/name/set", {"threadId": thread_id, "name": "Loom"})
    await client.until("thread/started")
    stage.model.plays(says("ok"))

    assert outline(await other.run(thread_id))[-2:] == EPILOGUE
