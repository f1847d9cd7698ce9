"""Recorded traffic: a provider's answers are replayed offline, and the file holds no key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import get_args

import aiohttp
import pytest

from treadle import AsyncClient, TurnFailed
from treadle.protocol.base import JsonValue
from treadle.testing import (
    CassetteMismatch,
    Provider,
    Script,
    calls,
    hostile,
    record,
    replay,
    says,
    scripted_provider,
    treadle_server,
)
from treadle.testing.provider import Wire

SECONDS = 50
WIRES = get_args(Wire)
KEY = "sk-proj-0123456789abcdefghijklmnop"


async def run(provider: Provider, text: str, wire: Wire = "responses") -> str:
    """Run a turn of a new server that uses this provider, with a key."""
    config = provider.config(wire, experimental_bearer_token=KEY)
    async with treadle_server(config=config) as server, AsyncClient(server) as client:
        return (await (await client.start_thread()).run(text)).agent_message


async def post(url: str, body: JsonValue, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_recording_is_replayed_without_the_provider(wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "greeting.json"
    async with asyncio.timeout(SECONDS):
        async with hostile.slow_drip("hello there") as real, record(real.base_url, path) as front:
            assert await run(front, "hi", wire) == "hello there"
        assert len(real.requests) == len(front.requests) == 1
        async with replay(path) as player:
            assert await run(player, "hi", wire) == "hello there"
    assert [player.unplayed, player.mismatches] == [[], []]


async def test_a_conversation_with_tools_is_replayed_in_another_folder(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = {"plan": [{"step": "look", "status": "completed"}]}
    script = Script([calls("update_plan", plan, call_id="c-1"), says("planned")])
    async with asyncio.timeout(SECONDS):
        async with scripted_provider(script) as real, record(real.base_url, path) as front:
            assert await run(front, "plan it") == "planned"
        async with replay(path) as player:
            assert await run(player, "plan it") == "planned"
    assert len(player.requests) == 2


async def test_an_unrecorded_request_is_refused_with_the_differences(tmp_path: Path) -> None:
    path = tmp_path / "greeting.json"
    async with asyncio.timeout(SECONDS):
        async with hostile.slow_drip() as real, record(real.base_url, path) as front:
            await run(front, "good morning")

        async def run_otherwise() -> None:
            async with replay(path) as player:
                with pytest.raises(TurnFailed, match="recorded 'good morning', now 'good evening'"):
                    await run(player, "good evening")

        with pytest.raises(CassetteMismatch, match=r"POST /responses is not as recorded") as caught:
            await run_otherwise()
    (difference,) = caught.value.differences
    assert difference.endswith(".content[0].text: recorded 'good morning', now 'good evening'")
    assert difference.startswith("body.input[")


async def test_a_surplus_request_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    async with hostile.slow_drip() as real, record(real.base_url, path) as front:
        await post(f"{front.base_url}/responses", {"input": []})

    async def ask_twice() -> list[int]:
        async with replay(path) as player:
            url = f"{player.base_url}/responses"
            return [(await post(url, {"input": []}))[0] for _ in range(2)]

    with pytest.raises(CassetteMismatch, match=r"one.json has no \(more\) POST /responses: 0 of 1"):
        await ask_twice()


async def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "bearer": "plain-word-as-a-key",
        "header": "another-plain-word",
        "variable": "word-of-the-environment",
        "shape": KEY,
        "name": "hunter2",
        "query": "key-in-the-query",
        "cookie": "crumbs-of-a-session",
    }
    monkeypatch.setenv("MY_PROVIDER_TOKEN", secrets["variable"])
    path = tmp_path / "secrets.json"
    secret_text = f"{secrets['bearer']} and {secrets['variable']} and {KEY}"
    body = {"input": [{"text": secret_text}], "auth": {"password": secrets["name"]}}
    async with hostile.slow_drip(secret_text, size=7) as real, record(real.base_url, path) as front:
        status, received = await post(
            f"{front.base_url}/responses?api_key={secrets['query']}&beta=1",
            body,
            authorization=f"Bearer {secrets['bearer']}",
            **{"x-api-key": secrets["header"], "cookie": f"session={secrets['cookie']}"},
        )
    # The client itself receives everything, and so does the provider.
    assert (status, secret_text in received) == (200, True)
    assert real.requests[0].json == body
    assert real.requests[0].headers["x-api-key"] == secrets["header"]

    written = path.read_text()
    assert [name for name, secret in secrets.items() if secret in written] == []
    (exchange,) = json.loads(written)["exchanges"]
    hidden = "[redacted] and [redacted] and [redacted]"
    assert exchange["request"] == {
        "method": "POST",
        "path": "/responses?api_key=%5Bredacted%5D&beta=1",
        "body": {"input": [{"text": hidden}], "auth": {"password": "[redacted]"}},
    }
    assert hidden in "".join(exchange["response"]["stream"])


async def test_a_secret_in_several_chunks_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "pieces.json"
    script = [says(f"the key is {KEY}, keep it", deltas=5)]
    async with scripted_provider(script) as real, record(real.base_url, path) as front:
        await post(f"{front.base_url}/responses", {"input": []})
    (exchange,) = json.loads(path.read_text())["exchanges"]
    events = [event.partition("data: ")[2] for event in exchange["response"]["stream"]]
    deltas = [event.get("delta", "") for event in map(json.loads, events)]
    assert "".join(deltas) == "the key is [redacted], keep it"


async def test_a_redacted_request_still_matches(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    async with hostile.slow_drip() as real, record(real.base_url, path) as front:
        request_body = {"input": "use plain-word-as-a-key now"}
        await post(
            f"{front.base_url}/responses", request_body, authorization="Bearer plain-word-as-a-key"
        )
    async with replay(path) as player:
        status, _ = await post(f"{player.base_url}/responses", {"input": "use no-key-at-all now"})
    assert status == 200


async def test_refusals_and_broken_streams_are_replayed_as_recorded(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    async with asyncio.timeout(SECONDS):
        async with (
            hostile.rate_limited(times=1, retry_after_s=7) as real,
            record(real.base_url, path) as front,
        ):
            url = f"{front.base_url}/responses"
            recorded = [await post(url, {"input": n}) for n in (1, 2)]
        async with replay(path) as player:
            url = f"{player.base_url}/responses"
            # In another order: each request finds its own answer.
            replayed = [await post(url, {"input": n}) for n in (2, 1)]
        assert [status for status, _ in recorded] == [429, 200]
        assert [(s, json.loads(t) if s == 429 else t) for s, t in reversed(replayed)] == [
            (s, json.loads(t) if s == 429 else t) for s, t in recorded
        ]
        (first, _) = json.loads(path.read_text())["exchanges"]
        assert first["response"]["headers"]["retry-after"] == "7"


async def test_a_broken_stream_is_broken_again(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    async with asyncio.timeout(SECONDS):
        async with hostile.disconnects() as real, record(real.base_url, path) as front:
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(f"{front.base_url}/responses", {})
        async with replay(path) as player:
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(f"{player.base_url}/responses", {})


async def test_prompts_may_change_unless_they_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "prompt.json"
    async with hostile.slow_drip() as real, record(real.base_url, path) as front:
        await post(f"{front.base_url}/responses", {"instructions": "be brief", "input": "hi"})
    changed = {"instructions": "be long", "input": "hi"}
    async with replay(path) as player:
        assert (await post(f"{player.base_url}/responses", changed))[0] == 200

    async def compare_all() -> None:
        async with replay(path, ignore=()) as player:
            await post(f"{player.base_url}/responses", changed)

    with pytest.raises(CassetteMismatch, match=r"body.instructions: recorded 'be brief', now"):
        await compare_all()


async def test_an_unreachable_provider_is_named(tmp_path: Path) -> None:
    async with record("http://127.0.0.1:1", tmp_path / "none.json") as front:
        status, text = await post(f"{front.base_url}/responses", {})
    assert (status, "cannot reach http://127.0.0.1:1" in text) == (502, True)


async def test_an_invalid_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text('{"exchanges": 5}')
    with pytest.raises(ValueError, match=r"odd.json is not a recording: .*exchanges"):
        async with replay(path):
            pass
