"""The methods of the protocol that the server can do; the rest says that it is not built.

The list grows with each method that gets a handler.
"""

from __future__ import annotations

import json

import pytest

from tests.harness.lines import attached, local_server
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.legacy import LEGACY_REQUESTS

BUILT = set(
    """
    account/bedrock/checkGovCloudRequirements account/login/cancel account/login/start
    account/logout account/rateLimits/read account/read account/usage/read
    account/workspaceMessages/read collaborationMode/list command/exec command/exec/resize
    command/exec/terminate command/exec/write config/batchWrite config/mcpServer/reload config/read
    config/value/write configRequirements/read experimentalFeature/enablement/set
    experimentalFeature/list
    fs/copy fs/createDirectory fs/getMetadata fs/readDirectory fs/readFile fs/remove fs/unwatch
    fs/watch fs/writeFile getAuthStatus hooks/list initialize mcpServer/event/stream/start
    mcpServer/event/stream/stop mcpServer/oauth/login mcpServer/resource/read
    mcpServer/tool/call mcpServerStatus/list mock/experimentalMethod model/list
    permissionProfile/list review/start skills/config/write skills/list
    thread/approveGuardianDeniedAction thread/archive
    thread/backgroundTerminals/clean thread/backgroundTerminals/list
    thread/backgroundTerminals/terminate
    thread/compact/start thread/delete thread/fork
    thread/goal/clear thread/goal/get thread/goal/set thread/inject_items thread/items/list
    thread/items/read thread/list thread/loaded/list thread/metadata/update thread/name/set
    thread/read thread/resume thread/revert thread/rollback thread/search
    thread/searchOccurrences thread/settings/update thread/shellCommand thread/start
    thread/turns/list
    thread/unarchive thread/unsubscribe turn/interrupt turn/settings/update turn/start
    turn/steer
    """.split()
)


async def test_the_methods_without_a_handler_are_all_but_these() -> None:
    known = CLIENT_REQUESTS.keys() | LEGACY_REQUESTS.keys()
    assert known >= BUILT
    async with local_server() as server:
        assert set(server.unbuilt_methods()) == known - BUILT


@pytest.mark.parametrize("method", ["thread/realtime/listVoices", "thread/realtime/stop"])
async def test_a_method_without_a_handler_says_so(method: str) -> None:
    """Params are checked first: a client learns of its mistakes before the method is there."""
    params = {"threadId": "t", "target": {"type": "uncommittedChanges"}}
    async with local_server() as server, attached(server) as peer:
        await peer.initialize(experimentalApi=True)
        assert await peer.ask(method, params) == {
            "error": {
                "code": -32601,
                "message": f"{method} is not implemented by this server",
                "data": {"kind": "notImplemented", "method": method},
            }
        }
        (refusal,) = await peer.replies(
            json.dumps({"id": 1, "method": method, "params": ["x"]}).encode()
        )
        assert refusal["error"]["data"]["kind"] == "invalidParams"
