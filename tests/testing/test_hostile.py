"""Misbehaving providers do what their names say, in the format of every API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import get_args

import pytest

from treadle import AsyncClient, TurnFailed
from treadle.model.base import (
    Completed,
    ItemDone,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
)
from treadle.model.provider import ProviderConfig, build_model
from treadle.protocol.base import JsonValue
from treadle.testing import Provider, hostile, treadle_server
from treadle.testing.plugin import ServerFactory
from treadle.testing.provider import Wire

SECONDS = 50
WIRES = get_args(Wire)
REQUEST = ModelRequest(
    model="m",
    instructions="",
    input=[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    thread_id="thr",
    turn_id="trn",
)


async def ask(
    provider: Provider, wire: Wire, into: list[ModelEvent] | None = None, **settings: JsonValue
) -> list[ModelEvent]:
    """Send one request over real HTTP; return its events, in `into` also those before an error."""
    config = ProviderConfig(base_url=provider.base_url, wire_api=wire, **settings)
    model = build_model("hostile", config, environ={})
    events: list[ModelEvent] = [] if into is None else into
    try:
        async with asyncio.timeout(SECONDS):
            async for event in model.stream(REQUEST):
                events.append(event)  # noqa: PERF401 - it has those before an error too
    finally:
        await model.close()
    return events


async def fails(provider: Provider, wire: Wire, **settings: JsonValue) -> tuple[ModelError, str]:
    """Send a request that must fail; return the error and the text before it."""
    events: list[ModelEvent] = []
    with pytest.raises(ModelError) as caught:
        await ask(provider, wire, events, **settings)
    return caught.value, text_of(events)


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.delta for event in events if isinstance(event, ModelTextDelta))


def message_of(events: list[ModelEvent]) -> str:
    (item,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(events[-1], Completed)
    text: str = item["content"][0]["text"]
    return text


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", [hostile.disconnects, hostile.ends_early])
async def test_a_stream_breaks_off_in_the_middle(
    wire: Wire, kind: Callable[[], hostile.Served]
) -> None:
    async with kind() as provider:
        error, text = await fails(provider, wire)
    assert (error.is_retryable, text) == (True, hostile.HALF)


@pytest.mark.parametrize("wire", WIRES)
async def test_overload_is_reported_under_http_200(wire: Wire) -> None:
    async with hostile.overloaded() as provider:
        error, text = await fails(provider, wire)
    assert (error.info, error.is_retryable, text) == ("serverOverloaded", True, "")
    async with hostile.overloaded(after_text=True) as provider:
        assert (await fails(provider, wire))[1] == hostile.HALF


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("before_head", "text"), [(True, ""), (False, hostile.HALF)])
async def test_a_half_open_connection_sends_nothing_more(
    wire: Wire, before_head: bool, text: str
) -> None:
    settings = {"first_byte_timeout_ms": 200, "stream_idle_timeout_ms": 200}
    async with hostile.half_open(before_head=before_head) as provider:
        error, partial_text = await fails(provider, wire, **settings)
    assert (error.is_retryable, partial_text) == (True, text)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_line_of_32_mib_is_refused_and_one_of_1_mib_arrives(wire: Wire) -> None:
    async with hostile.huge_line() as provider:
        error, _ = await fails(provider, wire)
    assert "an event of the stream is larger than" in error.message
    async with hostile.huge_line(1024 * 1024) as provider:
        assert len(message_of(await ask(provider, wire))) == 1024 * 1024


@pytest.mark.parametrize("wire", WIRES)
async def test_a_lone_surrogate_arrives_unchanged_or_replaced(wire: Wire) -> None:
    async with hostile.lone_surrogates() as provider:
        text = message_of(await ask(provider, wire))
    assert (text[:5], text[6:]) == ("half ", " of a pair")


@pytest.mark.parametrize("wire", WIRES)
async def test_429_says_when_to_retry_and_then_succeeds(wire: Wire) -> None:
    async with hostile.rate_limited(times=1, retry_after_s=7) as provider:
        error, _ = await fails(provider, wire)
        assert (error.http_status, error.retry_after_s) == (429, 7)
        assert message_of(await ask(provider, wire)) == hostile.RECOVERED
    async with hostile.rate_limited(reset="6m0s") as provider:
        error, _ = await fails(provider, wire)
        assert (error.http_status, error.retry_after_s) == (429, 360)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_arrives_byte_by_byte(wire: Wire) -> None:
    async with hostile.slow_drip() as provider:
        assert message_of(await ask(provider, wire)) == "drop by drop"


@pytest.mark.parametrize("wire", WIRES)
async def test_noise_is_harmless_and_garbage_is_not(wire: Wire) -> None:
    async with hostile.noisy() as provider:
        assert message_of(await ask(provider, wire)) == "in spite of the noise"
    async with hostile.garbage() as provider:
        assert (await fails(provider, wire))[1] == hostile.HALF


@pytest.mark.parametrize("wire", WIRES)
async def test_a_whole_server_recovers_from_a_broken_stream(
    wire: Wire, treadle_server: ServerFactory
) -> None:
    async with asyncio.timeout(SECONDS), hostile.disconnects(times=1) as provider:
        config = provider.config(wire, stream_max_retries=1)
        async with treadle_server(config=config) as server, AsyncClient(server) as client:
            result = await (await client.start_thread()).run("hi")
    assert result.agent_message == hostile.RECOVERED
    assert len(provider.requests) == 2


async def test_a_refusal_reaches_the_client_with_its_status() -> None:
    async with (
        asyncio.timeout(SECONDS),
        hostile.refuses(401, "<html>maintenance</html>") as provider,
        treadle_server(config=provider.config()) as server,
        AsyncClient(server) as client,
    ):
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="maintenance") as caught:
            await thread.run("hi")
    assert caught.value.http_status == 401


async def test_a_custom_scenario_uses_the_format_of_the_api() -> None:
    async def play(exchange: hostile.Exchange) -> None:
        await exchange.write(*exchange.begin("mine"))
        exchange.cut()

    async with hostile.scenario(play) as provider:
        assert (await fails(provider, "chat"))[1] == "mine"
