"""Requests about the server itself; texts and values are those of release 0.169.0 on Linux."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.server.serving import configuration, refusal, result, serving
from treadle.engine.terminals.shell import user_shell
from treadle.protocol.base import JsonValue
from treadle.server.handlers.refused import REASONS

MISSING = "0199a213-81c0-7800-8aa1-bbab2a035a53"
PARAMS: dict[str, JsonValue] = {
    "account/bedrock/setup": {"type": "environment", "region": "us-east-1"},
    "account/gcp/setup": {"projectId": "p"},
    "environment/add": {"environmentId": "x", "execServerUrl": "ws://127.0.0.1:1"},
    "plugin/share/checkout": {"remotePluginId": "x"},
    "plugin/share/delete": {"remotePluginId": "x"},
    "plugin/share/save": {"pluginPath": "/x"},
    "plugin/share/updateTargets": {
        "remotePluginId": "x",
        "discoverability": "PRIVATE",
        "shareTargets": [],
    },
    "plugin/skill/read": {
        "remoteMarketplaceName": "x",
        "remotePluginId": "y",
        "skillName": "z",
    },
    "remoteControl/client/list": {"environmentId": "x"},
    "remoteControl/client/revoke": {"environmentId": "x", "clientId": "c"},
    "thread/prediction/request": {"threadId": MISSING, "sourceTurnId": "t"},
}
UNVERIFIED = "User verification is not available in this build or account."


@pytest.mark.parametrize("method", REASONS)
async def test_a_refused_method_states_the_reason(home: Path, method: str) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, method, PARAMS.get(method, {}))
    assert error["message"] == f"not supported by this server: {REASONS[method]}"
    assert (error["code"], error["data"]["kind"]) == (-32600, "unsupported")


async def test_the_only_environment_is_the_machine_of_the_server(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        info = await result(peer, "environment/info", {"environmentId": "local"})
        status = await result(peer, "environment/status", {"environmentId": "local"})
        error = await refusal(peer, "environment/info", {"environmentId": "x"})
        unknown = await result(peer, "environment/status", {"environmentId": "x"})

    shell = user_shell()
    assert info == {
        "shell": {"name": Path(shell).name, "path": shell},
        "cwd": Path.cwd().as_uri(),
    }
    assert status == {"status": "ready"}
    assert error["message"] == "unknown environment id `x`"
    assert unknown == {"status": "unknown", "error": "unknown environment id `x`"}


async def test_diagnostics_show_the_process_and_its_work(home: Path) -> None:
    async with playing(home, []) as server, client_of(server) as client:
        before = await client.request("server/diagnostics", {})
        await client.start()
        after = await client.request("server/diagnostics", {})

    assert before["process"]["id"] == os.getpid()
    assert before["process"]["residentMemoryBytes"] > 10 * 1024 * 1024
    gauges = [{each["name"]: each["value"] for each in seen["gauges"]} for seen in (before, after)]
    assert gauges == [
        {
            "app.requests.in_flight": 1,
            "app.clients.connected": 1,
            "core.threads.live": threads,
            "core.turns.active": 0,
        }
        for threads in (0, 1)
    ]


async def test_the_server_keeps_no_memories(home: Path) -> None:
    async with playing(home, []) as server, client_of(server) as client:
        about = {"threadId": await client.start()}
        status = await client.request("memory/status", {})
        assert status == {"v2ConsolidatedThreads": 0, "v2Ready": False}
        assert await client.request("memory/reset", None) == {}
        assert await client.request("thread/memory/read", about) == {"summary": None}
        assert await client.request("thread/memoryMode/set", {**about, "mode": "disabled"}) == {}
        error = await client.refusal("thread/memoryMode/set", {**about, "mode": "enabled"})
        missing = await client.refusal("thread/memory/read", {"threadId": MISSING})

    assert error.data == {"kind": "unsupported", "path": "mode"}
    assert missing.kind == "threadNotFound"


async def test_the_user_cannot_be_verified(home: Path) -> None:
    challenge = {"challenge": "c", "title": "t", "description": "d"}
    async with serving(configuration(home)) as peer:
        assert await result(peer, "userVerification/status", {}) == {
            "credentialId": None,
            "unavailableMessage": UNVERIFIED,
            "unavailableReason": "providerUnavailable",
        }
        for name, params in (("enroll", {}), ("verify", challenge), ("delete", {})):
            error = await refusal(peer, f"userVerification/{name}", params)
            assert (error["code"], error["message"]) == (-32603, UNVERIFIED)
            assert error["data"]["reason"] == "providerUnavailable"
        assert await result(peer, "userVerification/cancel", {"requestId": 7}) == {}


async def test_no_provider_uses_a_sign_in_to_a_gateway(home: Path) -> None:
    text = 'model_provider = "mine"\n[model_providers.mine]\nname = "Mine"\nbase_url = "http://x"\n'
    async with serving(configuration(home, text)) as peer:
        read = await result(peer, "account/gatewayOAuth/read", None)
        other = await result(peer, "account/gatewayOAuth/read", {"modelProvider": "openai"})
        missing = await refusal(peer, "account/gatewayOAuth/read", {"modelProvider": "none"})
        login = await refusal(peer, "account/gatewayOAuth/login", None)
        assert await result(peer, "account/gatewayOAuth/cancel", None) == {}

    assert read == {
        "providerId": "mine",
        "providerName": "Mine",
        "required": False,
        "supportsDeviceAuth": False,
        "status": None,
        "error": None,
    }
    assert other["providerName"] == "OpenAI"
    assert missing["data"]["path"] == "modelProvider"
    assert login["message"] == "The selected provider does not use gateway OAuth"
