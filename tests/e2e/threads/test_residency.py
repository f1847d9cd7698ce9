"""The administrator's requirement on where model requests may be processed."""

from __future__ import annotations

import pytest

from tests.harness.model_server import refuses
from tests.harness.threads import Stage, params_of

HEADER = "x-openai-internal-codex-residency"
REQUIRED = 'enforce_residency = "us"\n'


def sent(stage: Stage) -> list[str | None]:
    """The header of each request to the model."""
    return [request.headers.get(HEADER) for request in stage.model.requests]


async def test_requests_name_the_required_residency(stage: Stage) -> None:
    """Upstream: the same header."""
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)
    stage.require(REQUIRED)
    await client.run(thread_id)
    await client.request("thread/compact/start", {"threadId": thread_id})
    await client.until("turn/completed")

    assert sent(stage) == [None, "us", "us"]


@pytest.mark.parametrize(
    "headers",
    [
        'http_headers = { "X-OpenAI-Internal-Codex-Residency" = "eu" }',
        'env_http_headers = { "x-openai-internal-codex-residency" = "HOME" }',
    ],
)
async def test_no_setting_of_a_provider_replaces_it(stage: Stage, headers: str) -> None:
    stage.require(REQUIRED)
    stage.configure()
    with (stage.home / "config.toml").open("a") as file:
        file.write(headers + "\n")
    client = await stage.client()
    await client.run(await client.start())

    assert sent(stage) == ["us"]


async def test_it_is_not_taken_for_a_secret(stage: Stage) -> None:
    stage.require(REQUIRED)
    stage.model.plays(refuses(400, {"error": {"message": "just a customer's status"}}))
    client = await stage.client()
    messages = await client.run(await client.start())

    (error,) = params_of(messages, "error")
    assert "just a customer's status" in error["error"]["message"]


async def test_an_unknown_residency_is_refused(stage: Stage) -> None:
    stage.require('enforce_residency = "moon"\n')
    client = await stage.client()
    refused = await client.refusal("configRequirements/read", {})

    assert "`moon`" in refused.message
