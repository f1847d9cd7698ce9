"""Methods of the protocol without a handler return an error that says so."""

from __future__ import annotations

import json

import pytest

from tests.harness.lines import attached, local_server
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.legacy import LEGACY_REQUESTS
from treadle.server import handlers
from treadle.server.handlers._table import RESOURCES


async def test_the_methods_without_a_handler_are_those_not_in_the_table() -> None:
    known = CLIENT_REQUESTS.keys() | LEGACY_REQUESTS.keys()
    built = {method for methods in RESOURCES.values() for method in methods}
    async with local_server() as server:
        assert set(server.unbuilt_methods()) == known - built


@pytest.mark.parametrize("method", ["project/delete", "threadSection/delete"])
async def test_a_method_without_a_handler_is_refused_as_such(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Params are checked first: a client learns of its mistakes before the method exists."""
    without = {
        resource: tuple(each for each in methods if each != method)
        for resource, methods in RESOURCES.items()
    }
    monkeypatch.setattr(handlers, "RESOURCES", without)
    params = {"projectId": "p", "sectionId": "s"}
    async with local_server() as server, attached(server) as peer:
        await peer.initialize(experimentalApi=True)
        assert await peer.request(method, params) == {
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
