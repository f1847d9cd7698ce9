"""The web is searched by the provider: how it is offered, and what clients see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.items import untimed
from tests.harness.model_server import Reply, added, calls, completed, created, done
from tests.harness.threads import params_of, staged
from treadle.protocol.base import JsonValue

OPTIONS = """
[tools.web_search]
context_size = "high"
allowed_domains = ["a.com"]
location = {country = "DE", city = "Berlin"}
"""


@pytest.mark.parametrize(
    ("config", "params", "offered"),
    [
        ("", {}, [{"type": "web_search", "external_web_access": False}]),
        ('web_search = "cached"', {}, [{"type": "web_search", "external_web_access": False}]),
        ('web_search = "live"', {}, [{"type": "web_search", "external_web_access": True}]),
        (
            'web_search = "indexed"',
            {},
            [
                {
                    "type": "web_search",
                    "external_web_access": True,
                    "indexed_web_access": True,
                }
            ],
        ),
        ('web_search = "disabled"', {}, []),
        (
            "",
            {"sandbox": "danger-full-access"},
            [{"type": "web_search", "external_web_access": True}],
        ),
        # Ours: what is set holds, also without a sandbox.
        (
            'web_search = "cached"',
            {"sandbox": "danger-full-access"},
            [{"type": "web_search", "external_web_access": False}],
        ),
        (
            "",
            {"model": "gpt-5.5", "config": {"web_search": "live"}},
            [
                {
                    "type": "web_search",
                    "external_web_access": True,
                    "search_content_types": ["text", "image"],
                }
            ],
        ),
        (
            OPTIONS,
            {},
            [
                {
                    "type": "web_search",
                    "external_web_access": False,
                    "filters": {"allowed_domains": ["a.com"]},
                    "user_location": {"type": "approximate", "country": "DE", "city": "Berlin"},
                    "search_context_size": "high",
                }
            ],
        ),
    ],
)
async def test_the_search_is_offered_as_the_configuration_says(
    home: Path, config: str, params: JsonValue, offered: JsonValue
) -> None:
    async with staged(home) as stage:
        stage.configure(config)
        client = await stage.client()
        await client.run(await client.start(**params))

        tools = stage.model.requests[0].body["tools"]
        assert [tool for tool in tools if tool["type"] == "web_search"] == offered


async def test_clients_see_a_search_begin_and_end(home: Path) -> None:
    async with staged(home) as stage:
        client = await stage.client()
        thread_id = await client.start()
        search = {"type": "web_search_call", "id": "ws-1"}
        action = {"type": "search", "query": "weather", "queries": ["weather"]}
        steps = [
            added({**search, "status": "in_progress"}),
            done({**search, "status": "completed", "action": action}),
        ]
        stage.model.plays(Reply([created(), *steps, completed()]))

        messages = await client.run(thread_id)

        item = {"type": "webSearch", "id": "ws-1", "results": None}
        assert untimed(params_of(messages, "item/started")[1]["item"]) == {
            **item,
            "query": "",
            "action": {"type": "other"},
        }
        assert untimed(params_of(messages, "item/completed")[1]["item"]) == {
            **item,
            "query": "weather",
            "action": action,
        }


async def test_a_web_search_called_as_a_function_is_rejected(home: Path) -> None:
    async with staged(home) as stage:
        client = await stage.client()
        thread_id = await client.start()
        stage.model.plays(calls("web_search", {"query": "weather"}))

        await client.run(thread_id)

        assert stage.model.requests[-1].outputs() == {"call-1": "unsupported call: web_search"}
