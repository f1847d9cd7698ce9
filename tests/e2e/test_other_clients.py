"""Clients that are not ours shake hands with the server."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai_codex import AsyncCodex, Codex, CodexConfig

from tests.harness.lines import SharedServers
from tests.harness.processes import TREADLE, environment
from tests.harness.raw_socket import BINARY, raw_socket

HELLO = {
    "id": 0,
    "method": "initialize",
    "params": {
        "clientInfo": {"name": "raw", "version": "1"},
        "capabilities": {"experimentalApi": True},
    },
}
ECHO = json.dumps({"id": 1, "method": "mock/experimentalMethod", "params": {"value": "x"}})


@pytest.fixture
def sdk_leaks() -> Iterator[None]:
    """The SDK leaves its child's pipes to the garbage collector: let it be here, and not later."""
    yield
    gc.collect()


leaks_are_known = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def config(home: Path) -> CodexConfig:
    return CodexConfig(codex_bin=TREADLE, cwd=str(home), env=environment(home))


@leaks_are_known
@pytest.mark.usefixtures("sdk_leaks")
def test_the_official_python_sdk_shakes_hands(home: Path) -> None:
    with Codex(config(home)) as codex:
        about = codex.metadata
    assert about.userAgent is not None
    assert about.userAgent.startswith("codex_python_sdk/0.163.0 (")
    assert about.serverInfo is not None
    assert about.serverInfo.name == "codex_python_sdk"
    assert (about.platformFamily, about.platformOs) == ("unix", "linux")


@leaks_are_known
@pytest.mark.usefixtures("sdk_leaks")
async def test_the_official_async_python_sdk_shakes_hands(home: Path) -> None:
    async with asyncio.timeout(20), AsyncCodex(config(home)) as codex:
        agent = codex.metadata.userAgent
    assert agent is not None
    assert agent.startswith("codex_python_sdk/0.163.0 (")


@pytest.fixture(params=["websocket", "unix"])
def where(request: pytest.FixtureRequest, shared_servers: SharedServers) -> str | Path:
    return shared_servers.url if request.param == "websocket" else shared_servers.socket


def test_a_raw_socket_client_shakes_hands(where: str | Path) -> None:
    with raw_socket(where) as client:
        status, headers = client.upgrade()
        assert status == "HTTP/1.1 101 Switching Protocols"
        assert headers["upgrade"] == "websocket"
        client.send(json.dumps(HELLO).encode())
        answer = client.receive()
        assert answer["id"] == 0
        assert answer["result"]["userAgent"].startswith("raw/0.163.0 (")
        client.send(b'{"method":"initialized"}')
        client.send(ECHO.encode())
        assert client.receive() == {"id": 1, "result": {"echoed": "x"}}


def test_binary_frames_are_dropped_and_the_connection_lives(where: str | Path) -> None:
    """Upstream drops them with a warning as well."""
    with raw_socket(where) as client:
        client.upgrade()
        client.send(json.dumps(HELLO).encode(), BINARY)
        client.send(b"\xff\x00\xfe", BINARY)
        client.send(json.dumps(HELLO).encode())
        assert client.receive()["id"] == 0
        client.send(ECHO.encode(), BINARY)
        client.send(ECHO.replace('"x"', '"y"').encode())
        assert client.receive() == {"id": 1, "result": {"echoed": "y"}}


def test_a_client_that_hangs_up_without_a_word_harms_nobody(where: str | Path) -> None:
    with raw_socket(where) as survivor:
        survivor.upgrade()
        with raw_socket(where) as client:
            client.upgrade()
            client.send(json.dumps(HELLO).encode())
        survivor.send(json.dumps(HELLO).encode())
        assert survivor.receive()["id"] == 0
