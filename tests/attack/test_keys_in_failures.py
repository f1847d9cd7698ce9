"""Refusals that end too early, and results of tools that failed, repeat no key."""

from __future__ import annotations

import asyncio

import pytest

from tests.attack.test_keys_in_errors import KEY, leaked_parts
from tests.model.double import collect
from treadle.model.base import ModelError
from treadle.model.provider import ProviderConfig, build_model


async def test_refusal_that_stops_within_a_key_shows_no_part_of_it() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 X\r\ncontent-length: 99\r\n\r\nbad key " + KEY[:10].encode())
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = ProviderConfig(base_url=url, env_key="KEY", stream_idle_timeout_ms=300)
        model = build_model("pausing", config, environ={"KEY": KEY})
        with pytest.raises(ModelError) as caught:
            await collect(model)
        await model.close()
        ended.set()

    assert caught.value.http_status == 401
    assert "401 X: bad key [redacted]" in caught.value.message
    assert leaked_parts(f"{caught.value.message} {caught.value.details}") == []
